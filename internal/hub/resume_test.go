package hub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/jetstream"
	"weir/internal/engine/jetstream/embedded"
	"weir/internal/engine/jetstream/wire"
)

// reader counts the messages of logs that a node reads from the servers.
type reader struct {
	wire.Servers
	read atomic.Int64
}

func (r *reader) Read(ctx context.Context, stream string, q wire.Query) ([]wire.Stored, uint64, error) {
	all, upTo, err := r.Servers.Read(ctx, stream, q)
	if strings.HasPrefix(stream, "weir-log-") {
		r.read.Add(int64(len(all)))
	}
	return all, upTo, err
}

func (r *reader) Headers(ctx context.Context, stream, subject string, from uint64, visit func(wire.Stored) error) error {
	return r.Servers.Headers(ctx, stream, subject, from, func(m wire.Stored) error {
		r.read.Add(1)
		return visit(m)
	})
}

// readingNode is like node, and also counts what the node reads.
func readingNode(t *testing.T, s *embedded.Server, o Options) (*Hub, *reader) {
	t.Helper()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	servers, err := wire.Connect(nc)
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{Servers: servers}
	e, err := jetstream.OpenOn(ctx, r, jetstream.Options{Shards: 2, Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	h := open(t, e, o)
	t.Cleanup(func() {
		if err := errors.Join(h.Close(), e.Close()); err != nil {
			t.Error(err)
		}
	})
	return h, r
}

// rest closes the log of a stream, as the sweeper does when the stream is idle.
func rest(t *testing.T, s *Stream) {
	t.Helper()
	s.hub.closeFeed(s, false)
	if s.openFeed() != nil {
		t.Fatal("the log is still open")
	}
}

func withKey(key string) *Publish {
	return &Publish{Key: key, Batch: weir.Batch{Events: 1, Payload: make([]byte, 100)}}
}

// resumeCase is what other nodes do with a stream of fill batches while it is idle here, and how
// this node then answers.
type resumeCase struct {
	name string
	gone bool // the stream is deleted meanwhile
	// meanwhile uses the stream on another node while it is idle here
	meanwhile func(t *testing.T, there *Stream)
	check     func(t *testing.T, here *Stream)
}

// fill is the number of batches of a stream in TestResume.
const fill = 200

var resumeCases = []resumeCase{
	{"nothing happens", false, func(*testing.T, *Stream) {}, func(t *testing.T, here *Stream) {
		if ack := publish(t, here, withKey("7")); !ack.Duplicate || ack.Seq != 8 {
			t.Errorf("publish with a known key: %+v", ack)
		}
		if ack := publish(t, here, withKey("new")); ack.Duplicate || ack.Seq != fill+1 {
			t.Errorf("publish with a new key: %+v", ack)
		}
	}},
	{"another node publishes", false, func(t *testing.T, there *Stream) {
		publish(t, there, withKey("theirs"))
		publish(t, there, at(fill+4, "above a gap"))
	}, func(t *testing.T, here *Stream) {
		if ack := publish(t, here, withKey("theirs")); !ack.Duplicate || ack.Seq != fill+1 {
			t.Errorf("publish with a key that another node stored: %+v", ack)
		}
		if ack := publish(t, here, at(fill+2, "late")); ack.Duplicate || ack.Cursor != fill+4 {
			t.Errorf("publish into a gap that another node opened: %+v", ack)
		}
	}},
	{"another node closes the gaps", false, func(t *testing.T, there *Stream) {
		publish(t, there, at(fill+4, "above a gap"))
		f, err := there.acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer f.release()
		marker := &engine.Entry{Header: engine.Header{Kind: engine.GapClosed}, Proposer: &closing{gaps: true}}
		if err := f.log.Append(ctx, marker); err != nil {
			t.Fatal(err)
		}
	}, func(t *testing.T, here *Stream) {
		if _, err := here.Publish(ctx, at(fill+2, "late")); code(err) != weir.InvalidSequence {
			t.Errorf("publish into a closed gap: %v", err)
		}
	}},
	{"another node evicts", false, func(t *testing.T, there *Stream) {
		evictHalf(t, there)
	}, func(t *testing.T, here *Stream) {
		if o, err := here.Object(ctx); err != nil || o.BytesStored > 100*100 || o.Cursor != fill {
			t.Errorf("the stream object: %+v, %v", o, err)
		}
		if _, err := here.Publish(ctx, at(3, "evicted")); code(err) != weir.InvalidSequence {
			t.Errorf("publish an evicted sequence: %v", err)
		}
	}},
	{"another node closes the stream", false, func(t *testing.T, there *Stream) {
		if _, err := there.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}, func(t *testing.T, here *Stream) {
		if _, err := here.Publish(ctx, withKey("new")); code(err) != weir.StreamClosed {
			t.Errorf("publish to a closed stream: %v", err)
		}
	}},
	{"another node deletes the stream and creates it again", true, func(t *testing.T, there *Stream) {
		spec := there.Spec()
		if err := there.Delete(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := there.hub.Create(ctx, spec); err != nil {
			t.Fatal(err)
		}
		publish(t, find(t, there.hub, spec.ID), withKey("of the second stream"))
	}, func(t *testing.T, here *Stream) {
		if _, err := here.Publish(ctx, withKey("new")); code(err) != weir.StreamNotFound {
			t.Errorf("publish to the first stream: %v", err)
		}
		again := find(t, here.hub, here.ID)
		if ack := publish(t, again, withKey("7")); ack.Duplicate || ack.Seq != 2 {
			t.Errorf("publish to the second stream: %+v", ack)
		}
	}},
}

// On a shared store, reopening an idle stream reads only what other nodes have stored meanwhile,
// however many batches the stream has. The answers are those of a log that stayed open.
func TestResume(t *testing.T) {
	const few = 20
	now := time.Now()
	server := shared(t)
	for _, c := range resumeCases {
		t.Run(c.name, func(t *testing.T) {
			o := Options{GapGrace: time.Hour, Now: func() time.Time { return now }}
			a, r := readingNode(t, server, o)
			b := node(t, server, o)
			here := made(t, a, func(s *Spec) { s.ID = weir.NewStreamID() })
			for i := range fill {
				publish(t, here, withKey(fmt.Sprint(i)))
			}
			rest(t, here)
			c.meanwhile(t, find(t, b, here.ID))
			if c.gone {
				c.check(t, here)
				return
			}
			r.read.Store(0)
			f, err := here.acquire(ctx)
			if err != nil {
				t.Fatal(err)
			}
			f.release()
			if got := r.read.Load(); got > few {
				t.Errorf("reopening read %d messages, want at most %d", got, few)
			}
			c.check(t, here)
		})
	}
}

// evictHalf makes the limit of a stream smaller, so that half of its batches are evicted, and
// removes them from the log.
func evictHalf(t *testing.T, s *Stream) {
	t.Helper()
	size := int64(100 * 130)
	if _, err := s.Change(ctx, Change{MaxBytes: &size}); err != nil {
		t.Fatal(err)
	}
	f, err := s.acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer f.release()
	if !f.wantsTrim(s.hub.now(), true) {
		t.Fatal("nothing was evicted")
	}
	if err := f.trim(); err != nil {
		t.Fatal(err)
	}
}
