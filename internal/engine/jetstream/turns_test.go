package jetstream

import (
	"context"
	"slices"
	"testing"
	"time"
)

// Who wrote while another one wanted to leaves it the next turn; nobody waits who is not asked.
func TestTurns(t *testing.T) {
	t.Parallel()
	s := server(t, quickDir(t))
	defer s.Stop()
	open := func() *Engine {
		nc, err := s.Connect()
		if err != nil {
			t.Fatal(err)
		}
		e, err := Open(context.Background(), nc, Options{Name: "store", Shards: 2, turn: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	a, b := open(), open()
	defer a.Close()
	defer b.Close()
	doc, err := a.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := attach(t, a, doc.Created, &follower{}), attach(t, b, doc.Created, &follower{})
	append := func(l *log, what string) {
		t.Helper()
		if err := l.Append(ctx, text(what)); err != nil {
			t.Fatal(err)
		}
	}
	append(ours, "first")
	append(ours, "nobody waits")
	ours.wanted.Store(time.Now().UnixNano())
	append(ours, "they want to")
	later := make(chan error)
	go func() { later <- ours.Append(ctx, text("later")) }()
	append(theirs, "theirs")
	if err := <-later; err != nil {
		t.Fatal(err)
	}
	if got, want := payloads(t, ours), []string{"first", "nobody waits", "they want to", "theirs", "later"}; !slices.Equal(got, want) {
		t.Errorf("the log holds %q, want %q", got, want)
	}
}
