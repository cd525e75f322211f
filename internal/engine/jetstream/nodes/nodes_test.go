package nodes

import (
	"log/slog"
	"testing"
	"time"

	"weir/internal/engine/jetstream/embedded"
	"weir/internal/engine/jetstream/record"
	"weir/internal/engine/jetstream/wire"
)

// A node that has been silent for long no longer counts, even if no page lists the nodes.
func TestOlderNodeIsForgotten(t *testing.T) {
	s, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	servers, err := wire.Connect(nc)
	if err != nil {
		t.Fatal(err)
	}
	n := New(&wire.Client{Servers: servers}, Options{
		Store: "store", Now: time.Now, Reads: record.Newest, Format: 1, Removed: func(string) bool { return false }, Logger: slog.New(slog.DiscardHandler),
	})
	if err := n.Join(Self{Name: "a", Words: func() []byte { return nil }, Hear: func([]byte) {}}); err != nil {
		t.Fatal(err)
	}
	defer n.Leave()
	n.mu.Lock()
	n.heard["b"] = sign{at: time.Now().Add(-missedFor), reads: record.Newest - 1}
	n.agree()
	n.mu.Unlock()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for within := time.After(time.Minute); n.Common() != record.Newest; {
		select {
		case <-tick.C:
		case <-within:
			t.Fatal("the silent node still counts")
		}
	}
}
