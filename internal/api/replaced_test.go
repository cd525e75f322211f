package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"weir/internal/access"
	"weir/internal/api"
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

// memoWriter is a response writer of an event loop that keeps what the API has learned.
type memoWriter struct {
	loopWriter
	memo any
}

func (w *memoWriter) Memo() *any { return &w.memo }

// On a node of a cluster, an event loop begins publishes too. If the node does not know the key or the
// stream, a goroutine asks the other nodes, and not the loop.
func TestServeLaterInACluster(t *testing.T) {
	store := &distant{Engine: memory.New()}
	svc := startServiceWith(t, servicetest.Options{Engine: store})
	const key, stream, both = "key", "stream", "key and stream"
	for _, c := range []struct {
		name   string
		gone   string // the document that this node knows to be deleted
		lost   string // the document that another node deletes
		made   string // the document that another node creates again
		fails  error
		status int
	}{
		{name: "all is known", status: 202},
		{name: "a new stream", gone: stream, made: stream, status: 202},
		{name: "a stream that was replaced", lost: stream, made: stream, status: 503},
		{name: "a stream that was deleted", lost: stream, status: 404},
		{name: "a stream that does not exist", gone: stream, status: 404},
		{name: "a stream that may exist", gone: stream, fails: engine.ErrUnavailable, status: 503},
		{name: "a new key", gone: key, made: key, status: 202},
		{name: "a key that does not exist", gone: key, status: 401},
		{name: "a key that may exist", gone: key, fails: engine.ErrUnavailable, status: 503},
		{name: "a new key and a new stream", gone: both, made: both, status: 202},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer store.set(false, nil)
			id := string(svc.NewStream(hub.Spec{}))
			svc.ids["published"] = id
			svc.publish("published", "1")
			_, secret, err := svc.Access.CreateKey(t.Context(), access.KeySpec{Project: svc.Project, Kind: access.Live})
			if err != nil {
				t.Fatal(err)
			}
			digest := sha256.Sum256([]byte(secret.Reveal()))
			docs := map[string]*engine.Document{stream: {Key: hub.DocumentKind + "/" + id}, key: {Key: "key/" + hex.EncodeToString(digest[:])}}
			remove := func(what string) {
				for name, d := range docs {
					if !strings.Contains(what, name) {
						continue
					}
					if *d, err = store.Get(t.Context(), d.Key); err == nil {
						err = store.Delete(t.Context(), d.Key, d.Revision)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			remove(c.gone)
			store.set(true, c.fails)
			remove(c.lost)
			for name, d := range docs {
				if strings.Contains(c.made, name) {
					if _, err := store.Create(t.Context(), d.Key, d.Value); err != nil {
						t.Fatal(err)
					}
				}
			}

			read := svc.request("GET", "/v1/streams/"+id, []string{"accept: text/event-stream"}, "")
			if taken, _ := svc.API.ServeLater(parkingLoopWriter{parked: new(api.Parked)}, read); taken {
				t.Error("an event loop took a subscription")
			}
			body := `{"events":["x"]}`
			req := svc.request("POST", "/v1/streams/"+id+"/publish", []string{"Authorization: Bearer " + secret.Reveal(), jsonBody}, body)
			req.RemoteAddr, req.Body = "127.0.0.1:1", arrived{strings.NewReader(body)}
			w := &memoWriter{loopWriter: loopWriter{httptest.NewRecorder(), make(chan interface{ Finish() }, 1)}}
			if taken, done := svc.API.ServeLater(w, req); !taken || done {
				t.Fatalf("taken %v, done %v; want a request that is pending", taken, done)
			}
			if (<-w.ready).Finish(); w.Code != c.status {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, c.status)
			}
		})
	}
}
