package jetstream

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"weir"
	"weir/internal/engine"
)

// Entries that wait at the same time are written in one message. Each of them can be read, received
// by other nodes, restored and trimmed like an entry with its own message.
func TestPacked(t *testing.T) {
	t.Parallel()
	s := server(t, quickDir(t))
	defer s.Stop()
	e, other := open(t, s, "store"), open(t, s, "store")
	defer e.Close()
	defer other.Close()
	doc, err := e.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	judge := &follower{}
	l := attach(t, e, doc.Created, judge)
	b := attach(t, other, doc.Created, &follower{})
	seize(l)
	var all sync.WaitGroup
	const n = 100
	for i := range n {
		all.Go(func() {
			if err := l.Append(ctx, text(fmt.Sprint("entry ", i))); err != nil {
				t.Error(err)
			}
		})
	}
	for waiting := 0; waiting < n; runtime.Gosched() {
		l.mu.Lock()
		waiting = len(l.queue)
		l.mu.Unlock()
	}
	l.start(time.Now())
	all.Wait()
	places := map[uint64]bool{}
	for _, at := range l.index.entries {
		places[at.js] = true
	}
	if len(places) != 1 {
		t.Errorf("%d entries take %d messages, want 1", n, len(places))
	}
	if err := b.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	want := payloads(t, l)
	judge.low = 40
	if err := l.Trim(ctx, 40, nil); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	floor := l.index.bottom()
	l.mu.Unlock()
	l.purge(floor)
	if err := b.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for who, log := range map[string]engine.Log{"writer": l, "restored": attach(t, other, doc.Created, &follower{})} {
		if got := payloads(t, log); !slices.Equal(got, want[40:]) {
			t.Errorf("%s: the log holds %q, want %q", who, got, want[40:])
		}
		for i := range n {
			switch got, err := log.Read(ctx, weir.Seq(i)); {
			case i < 40 && !errors.Is(err, engine.ErrNotFound), i >= 40 && (err != nil || string(got.Payload) != want[i]):
				t.Errorf("%s: entry %d is %q, %v; want entries below 40 to be trimmed", who, i, got.Payload, err)
			}
		}
		if h, err := log.Header(ctx, 70); err != nil || h.Seq != 70 || int(h.Size) != len(want[70]) {
			t.Errorf("%s: header 70: %+v, %v", who, h, err)
		}
	}
}
