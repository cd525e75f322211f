package jetstream

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// rivals returns nodes that share a store, and a log that each of them has open.
func rivals(t *testing.T, n int, o Options) (nodes []*Engine, logs []*log) {
	t.Helper()
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	o.Name, o.Shards = "store", 2
	for range n {
		nodes = append(nodes, node(t, s, o))
	}
	doc, err := nodes[0].Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range nodes {
		logs = append(logs, attach(t, e, doc.Created, &follower{}))
	}
	return nodes, logs
}

func (t *turns) has() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.holds
}

func (t *turns) wantedBy(node uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.find(node) >= 0
}

// A node that is not writing gives its turn to another node that asks, and then waits for the other
// node to write. If no other node asked, this node does not wait. The other node is writing when this
// node asks, and gives the turn back after its write.
func TestTurns(t *testing.T) {
	t.Parallel()
	nodes, logs := rivals(t, 2, Options{turn: time.Hour})
	ours, theirs := logs[0], logs[1]
	put(t, ours, "first", "no one else")
	ours.turns.ask(nodes[1].node)
	awaitTrue(t, func() bool { return theirs.turns.has() })
	seize(theirs) // otherwise the log is idle there and gives its turn back at once
	both := make(chan error)
	go func() { both <- theirs.Append(ctx, text("theirs")) }()
	awaitTrue(t, func() bool { return theirs.waiting() > 0 })
	go func() { both <- ours.Append(ctx, text("later")) }()
	awaitTrue(t, func() bool { return theirs.turns.wantedBy(nodes[0].node) })
	theirs.start(time.Now())
	if err := errors.Join(<-both, <-both); err != nil {
		t.Fatal(err)
	}
	if got, want := payloads(t, ours), []string{"first", "no one else", "theirs", "later"}; !slices.Equal(got, want) {
		t.Errorf("the log holds %q, want %q", got, want)
	}
}

// Nodes that write to one log by turns get the turn from the node that wrote last, although that
// node has nothing to write. Only the first write of a node that did not know the log fails.
func TestTurnsWithoutConflict(t *testing.T) {
	t.Parallel()
	nodes, logs := rivals(t, 3, Options{turn: time.Hour, rivalry: time.Hour})
	for i := range 30 {
		put(t, logs[i%3], fmt.Sprint(i))
	}
	conflicts := uint64(0)
	for _, e := range nodes {
		conflicts += e.Counts().Conflicts
	}
	if conflicts > 3 {
		t.Errorf("%d of 30 writes failed because another node had written first, want at most one per node", conflicts)
	}
}

// A turn goes to the node that asked first. A node that asks again keeps its place, and a node that
// has stopped waiting gets no turn.
func TestTurnsInOrder(t *testing.T) {
	t.Parallel()
	_, logs := rivals(t, 1, Options{turn: time.Hour})
	l := logs[0]
	put(t, l, "first")
	seize(l) // otherwise the log is idle and gives its turn away at once
	for _, node := range []uint64{1, 2, 3, 1} {
		l.turns.ask(node)
	}
	l.turns.mu.Lock()
	l.turns.asked[0].at = time.Now().Add(-2 * time.Hour)
	l.turns.mu.Unlock()
	l.turns.give()
	if !l.turns.gave.After(time.Time{}) || l.turns.holds || l.turns.find(1) >= 0 || l.turns.find(2) >= 0 || l.turns.find(3) != 0 {
		t.Errorf("after a turn was given to node 2, the nodes %+v want one", l.turns.asked)
	}
	l.turns.give()
	if l.turns.find(3) != 0 {
		t.Error("a node gave its turn twice")
	}
	// Messages up to the given sequence were stored before the turn. A later message of another node
	// ends the turn.
	l.turns.take(l.e.node, l.last+5)
	for _, followed := range []bool{true, false} {
		l.mu.Lock()
		l.attendance.followed = followed
		l.mu.Unlock()
		if l.turns.ready() == followed {
			t.Errorf("messages before the turn are missing: ready is %v if the log is followed: %v", !followed, followed)
		}
	}
	l.turns.overtaken(l.last + 5)
	held := l.turns.holds
	l.turns.overtaken(l.last + 6)
	if !held || l.turns.holds {
		t.Errorf("a message before the turn left the turn %v, a message after it %v; want true and false", held, l.turns.holds)
	}
	l.start(time.Now())
}
