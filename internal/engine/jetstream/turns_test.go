package jetstream

import (
	"slices"
	"testing"
	"time"
)

// If another node asked to write while this node wrote, this node lets the other node write next. If
// no other node asked, this node does not wait.
func TestTurns(t *testing.T) {
	t.Parallel()
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	o := Options{Name: "store", Shards: 2, turn: time.Hour}
	a, b := node(t, s, o), node(t, s, o)
	doc, err := a.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := attach(t, a, doc.Created, &follower{}), attach(t, b, doc.Created, &follower{})
	put(t, ours, "first", "no one else")
	ours.turns.wanted.Store(time.Now().UnixNano())
	put(t, ours, "they want to")
	later := make(chan error)
	go func() { later <- ours.Append(ctx, text("later")) }()
	put(t, theirs, "theirs")
	if err := <-later; err != nil {
		t.Fatal(err)
	}
	if got, want := payloads(t, ours), []string{"first", "no one else", "they want to", "theirs", "later"}; !slices.Equal(got, want) {
		t.Errorf("the log holds %q, want %q", got, want)
	}
}
