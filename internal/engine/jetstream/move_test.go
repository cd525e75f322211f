package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/copies"
	"weir/internal/engine/jetstream/embedded"
	"weir/internal/natstest"
)

// steps records the progress of Balance or Expel.
type steps []string

func (s *steps) tell(p copies.Progress) { *s = append(*s, p.Doing) }

// Three nodes hold a store with three copies of each stream, and two more join. Balance spreads the copies and leaders
// over all of them, and leaves them alone when it is called again. Then one node is removed while
// it runs: its copies move to the others, which learn of the removal. A dead node is
// removed only by force. A cluster that would be too small is left as it is.
func TestMove(t *testing.T) {
	within, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	told := make(chan []string, 100)
	o := Options{Replicas: 3, Shards: 4, Patience: time.Minute, Removed: func(names []string) { told <- names }}
	addresses := natstest.Addresses(t, 5)
	servers, engines := startNodes(t, within, o, addresses[:3], 0)
	a, b := engines[0], engines[1]
	ids := fill(t, a, "before")
	moreServers, moreEngines := startNodes(t, within, o, addresses, 3)
	servers, engines = append(servers, moreServers...), append(engines, moreEngines...)

	var first, second steps
	if err := a.Copies.Balance(within, first.tell); err != nil {
		t.Fatal(err)
	}
	standing := a.Copies.Stand(within)
	leads, copies := standing.Servers()
	for i := range servers {
		if name := fmt.Sprint("node-", i); copies[name] != 3 || leads[name] != 1 {
			t.Errorf("%s has %d copies and leads %d streams, want 3 and 1, after %q", name, copies[name], leads[name], first)
		}
	}
	if err := b.Copies.Balance(within, second.tell); err != nil || len(second) > 0 {
		t.Errorf("a balanced cluster: error %v, and the steps %q", err, second)
	}
	holds(t, b, "before", ids)

	var none steps
	expect(t, a.Copies.Expel(within, "node-0", false, none.tell), "ask another node")
	expect(t, a.Copies.Expel(within, "node-9", false, none.tell), "is not a node")
	expect(t, a.Copies.Expel(within, "node-4", true, none.tell), "leave out --force")

	// The test stands in for the service of the removed node, which stops when it is told.
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for range told {
			engines[4].Close()
			servers[4].Kill()
			return
		}
	}()
	if err := a.Copies.Expel(within, "node-4", false, none.tell); err != nil {
		t.Fatal(err)
	}
	<-stopped
	if err := b.CatchUp(within); err != nil || !b.isRemoved("node-4") {
		t.Errorf("another node does not know of the removal (error %v)", err)
	}
	if connected, all, err := servers[1].Members(); err != nil || all != 4 || slices.Contains(connected, "node-4") {
		t.Errorf("the members are %v of %d (error %v), want the four others", connected, all, err)
	}
	standing = b.Copies.Stand(within)
	if _, copies := standing.Servers(); copies["node-4"] != 0 || len(copies) != 4 {
		t.Errorf("the copies are on %v, want the four other nodes", copies)
	}
	holds(t, b, "before", ids)
	later := fill(t, b, "later")

	removeDead(within, t, servers, engines)
	holds(t, a, "before", ids)
	holds(t, b, "later", later)
}

// expect checks that an error says why copies cannot be moved.
func expect(t *testing.T, err error, want string) {
	t.Helper()
	if !errors.Is(err, copies.ErrMove) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
}

// removeDead kills the fourth node and removes it.
func removeDead(within context.Context, t *testing.T, servers []*embedded.Server, engines []*Engine) {
	t.Helper()
	a := engines[0]
	var none steps
	// A node that dies cannot be asked to move its copies.
	engines[3].Close()
	servers[3].Kill()
	awaitTrue(t, func() bool {
		connected, _, err := servers[0].Members()
		return err == nil && !slices.Contains(connected, "node-3")
	})
	awaitTrue(t, func() bool { s := a.Copies.Stand(within); return s.Headless == 0 })
	expect(t, a.Copies.Expel(within, "node-3", false, none.tell), "--force")
	if err := a.Copies.Balance(within, none.tell); !errors.Is(err, copies.ErrMove) {
		t.Errorf("balance without a node: %v, want copies.ErrMove", err)
	}
	if err := a.Copies.Expel(within, "node-3", true, none.tell); err != nil {
		t.Fatal(err)
	}
	if err := a.Copies.Expel(within, "node-3", true, none.tell); err != nil {
		t.Errorf("remove a node that was removed: %v", err)
	}
	expect(t, a.Copies.Expel(within, "node-2", false, none.tell), "2 connected nodes would remain, and each shard has 3 copies")
}

// Servers that run elsewhere are left to the tools of NATS.
func TestMoveElsewhere(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	e := node(t, s, Options{Name: "store", Shards: 1})
	if err := e.Copies.Balance(ctx, nil); !errors.Is(err, copies.ErrMove) {
		t.Errorf("balance: %v, want copies.ErrMove", err)
	}
	if err := e.Copies.Expel(ctx, "a", false, nil); !errors.Is(err, copies.ErrMove) || errors.Is(err, engine.ErrUnavailable) {
		t.Errorf("expel: %v, want copies.ErrMove", err)
	}
}
