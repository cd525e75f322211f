package api_test

import (
	"context"
	"sync"
	"testing"

	"weir/internal/engine"
	"weir/internal/engine/memory"
	"weir/internal/hub"
	"weir/internal/service/servicetest"
)

// distant is a store that another node uses too. While it is behind, this node learns of changes of
// documents only when it catches up.
type distant struct {
	engine.Engine
	mu     sync.Mutex
	behind bool
	unread []func() // what CatchUp tells this node
	fails  error
}

func (d *distant) Shared() bool { return true }

func (d *distant) Watch(ctx context.Context, of engine.Prefixes, visit func(engine.Change)) error {
	return d.Engine.Watch(ctx, of, func(c engine.Change) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.behind {
			d.unread = append(d.unread, func() { visit(c) })
			return
		}
		visit(c)
	})
}

func (d *distant) CatchUp(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fails != nil {
		return d.fails
	}
	for _, tell := range d.unread {
		tell()
	}
	d.unread = nil
	return nil
}

func (d *distant) set(behind bool, fails error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.behind, d.fails = behind, fails
}

// If other nodes delete a stream and create another one with the same id, this node finds that the
// log of the first stream has ended. It does not answer that the stream does not exist before it has
// asked for changes that it does not know.
func TestReplacedStream(t *testing.T) {
	store := &distant{Engine: memory.New()}
	svc := startServiceWith(t, servicetest.Options{Engine: store})
	for _, c := range []struct {
		name, method, path, body string
		deleted                  bool
		fails                    error
		status                   int
	}{
		{name: "the object", method: "GET", status: 200},
		{name: "the cursor", method: "GET", path: "/cursor", status: 200},
		{name: "a page", method: "GET", path: "/batches", status: 200},
		{name: "a deletion", method: "DELETE", status: 204},
		{name: "a publish, whose body is read only once", method: "POST", path: "/publish", body: `{"events":[1]}`, status: 503},
		{name: "a deleted stream", method: "GET", deleted: true, status: 404},
		{name: "a store that does not answer", method: "GET", deleted: true, fails: engine.ErrUnavailable, status: 503},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer store.set(false, nil)
			id := svc.NewStream(hub.Spec{})
			svc.ids["replaced"] = string(id)
			svc.publish("replaced", "1")
			key := hub.DocumentKind + "/" + string(id)
			doc, err := store.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			store.set(true, c.fails)
			if err := store.Delete(t.Context(), key, doc.Revision); err != nil {
				t.Fatal(err)
			}
			if !c.deleted {
				if _, err := store.Create(t.Context(), key, doc.Value); err != nil {
					t.Fatal(err)
				}
			}
			a := svc.do(noListener, svc.request(c.method, "/v1/streams/{replaced}"+c.path, []string{jsonBody}, c.body))
			if a.status != c.status {
				t.Errorf("got %d %s, want %d", a.status, a.body, c.status)
			}
		})
	}
}
