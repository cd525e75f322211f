package jetstream

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/wire"
)

// leaderless are servers of which none leads the shards any more. They store two fences more, and
// answer reads from old data, without a certain message.
type leaderless struct {
	wire.Servers
	missing atomic.Uint64 // sequence of the message; 0 while the servers work
	fences  atomic.Int64
}

func (l *leaderless) Store(ctx context.Context, msgs []*nats.Msg) (uint64, error) {
	if l.missing.Load() > 0 && strings.Contains(msgs[0].Subject, ".log.") && l.fences.Add(1) > 2 {
		return 0, nats.ErrNoResponders
	}
	return l.Servers.Store(ctx, msgs)
}

func (l *leaderless) Message(ctx context.Context, stream string, q wire.Query) (wire.Stored, error) {
	if q.Seq > 0 && q.Seq == l.missing.Load() {
		return wire.Stored{}, &jetstream.APIError{Code: 404, ErrorCode: jetstream.JSErrCodeMessageNotFound}
	}
	return l.Servers.Message(ctx, stream, q)
}

func (l *leaderless) Read(ctx context.Context, stream string, q wire.Query) ([]wire.Stored, uint64, error) {
	if q.Seq > 0 && q.Seq == l.missing.Load() {
		return nil, 0, nil
	}
	return l.Servers.Read(ctx, stream, q)
}

// An entry that no server can find does not count as damaged while no server leads the shard: the
// servers that have the entry may not answer.
func TestReadFromStaleServers(t *testing.T) {
	t.Parallel()
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	servers, err := wire.Connect(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	old := &leaderless{Servers: servers}
	e, err := OpenOn(ctx, old, Options{Name: "store", Shards: 1, Patience: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	doc, err := e.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	l, _ := openUnattended(t, e, doc.Created)
	if err := l.Append(ctx, &engine.Entry{Header: engine.Header{Kind: engine.Batch}, Payload: []byte("entry")}); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	first := l.index.entries[0]
	l.mu.Unlock()
	old.missing.Store(first.js)
	if _, err := l.Read(ctx, first.seq); !errors.Is(err, engine.ErrUnavailable) {
		t.Errorf("read an entry that no server finds, without a leader: %v, want ErrUnavailable", err)
	}
	old.missing.Store(0)
}

// hasty are servers on which another node deletes a document as soon as this node has created it. The
// message of the creation is never delivered, and that of the deletion not before this node stores a
// fence.
type hasty struct {
	wire.Servers
	subject string
	deleted atomic.Bool
	fenced  chan struct{} // closed when a fence is stored after the deletion
	dropped atomic.Uint64 // deliveries left out
}

func (h *hasty) Store(ctx context.Context, msgs []*nats.Msg) (uint64, error) {
	m := msgs[0]
	seq, err := h.Servers.Store(ctx, msgs)
	switch {
	case err != nil:
	case m.Subject == h.subject && m.Header.Get("KV-Operation") == "":
		gone := nats.NewMsg(h.subject)
		gone.Header.Set("KV-Operation", "DEL")
		if _, err := h.Servers.Store(ctx, []*nats.Msg{gone}); err != nil {
			return 0, err
		}
		h.deleted.Store(true)
	case strings.HasSuffix(m.Subject, "~") && h.deleted.CompareAndSwap(true, false):
		close(h.fenced)
	}
	return seq, err
}

func (h *hasty) Follow(ctx context.Context, stream string, from uint64, headersOnly bool) (*wire.Feed, error) {
	f, err := h.Servers.Follow(ctx, stream, from, headersOnly)
	if err != nil {
		return nil, err
	}
	own, count := *f, uint64(0)
	var held *wire.Delivery
	own.Next = func(within time.Duration) (wire.Delivery, error) {
		if held != nil {
			<-h.fenced
			d := *held
			held = nil
			return d, nil
		}
		for {
			d, err := f.Next(within)
			if err == nil && d.Subject == h.subject && d.Header.Get("KV-Operation") == "" {
				h.dropped.Add(1)
				continue
			}
			d.Count -= min(d.Count, h.dropped.Load())
			if err == nil && d.Subject == h.subject {
				held = &d
				return wire.Delivery{Beat: true, Count: count, Passed: d.Seq - 1}, nil
			}
			if d.Seq > 0 {
				count = d.Count
			}
			return d, err
		}
	}
	return &own, nil
}

// A document may be deleted before the node that created it has received it back. When Create
// returns, the watchers have received the deletion.
func TestDocumentChangedAtOnce(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	servers, err := wire.Connect(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	quick := &hasty{Servers: servers, subject: "$KV.store-docs.YQ", fenced: make(chan struct{})} // YQ is "a" in base64
	e, err := OpenOn(ctx, quick, Options{Name: "store", Shards: 1, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var gone atomic.Bool
	if err := e.Watch(ctx, engine.Everything, func(c engine.Change) { gone.Store(c.Key == "a" && c.Deleted) }); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Create(ctx, "a", nil); err != nil {
		t.Fatal(err)
	}
	if !gone.Load() {
		t.Error("Create has returned, and the watcher knows neither the document nor its deletion")
	}
}

// crowded are servers that store a document without an answer, and have no space when they get it
// again.
type crowded struct {
	wire.Servers
	subject  string
	attempts atomic.Int64
}

func (c *crowded) Store(ctx context.Context, msgs []*nats.Msg) (uint64, error) {
	if msgs[0].Subject != c.subject {
		return c.Servers.Store(ctx, msgs)
	}
	if c.attempts.Add(1) > 1 {
		return 0, &jetstream.APIError{Code: 503, ErrorCode: 10047, Description: "insufficient storage resources available"}
	}
	if _, err := c.Servers.Store(ctx, msgs); err != nil {
		return 0, err
	}
	return 0, nats.ErrTimeout
}

// A document that an attempt without an answer has stored is stored, even if there is no space for the
// next attempt.
func TestDocumentStoredWithoutAnswer(t *testing.T) {
	t.Parallel()
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	servers, err := wire.Connect(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	c := &crowded{Servers: servers, subject: "$KV.store-docs.YQ"} // YQ is "a" in base64
	e, err := OpenOn(ctx, c, Options{Name: "store", Shards: 1, Patience: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	doc, err := e.Create(ctx, "a", []byte("value"))
	if err != nil {
		t.Errorf("create: %v, want the document that was stored", err)
	}
	if c.attempts.Load() < 2 {
		t.Error("the document was sent only once")
	}
	if got, err := e.Get(ctx, "a"); err != nil || got.Revision != doc.Revision || string(got.Value) != "value" {
		t.Errorf("got %+v (%v), want %+v", got, err, doc)
	}
}
