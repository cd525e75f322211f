package jetstream

import (
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

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
	for _, at := range l.index {
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
	floor := l.bottom()
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

// Encoding and decoding the records of a message gives the same records. A header field that is cut
// short or has a wrong character is rejected.
func TestRecords(t *testing.T) {
	want := []record{
		{kind: batch, position: 7, group: 99, parts: 1, sum: 1, Header: engine.Header{Kind: engine.Batch, Seq: 3, Time: -5, Count: 2, Size: 10, ContentType: "a/b", Key: "key", Tag: "tag"}},
		{kind: gapClosed, position: 8, group: 99, parts: 1, Header: engine.Header{Kind: engine.GapClosed, First: 4, Seq: 1<<53 - 1, Flags: engine.Lost | engine.Ends}},
		{kind: trim, position: 9, group: 99, parts: 1, sum: 2, Header: engine.Header{Seq: 2, Size: 6}},
	}
	text := encode(want...)
	if raw, err := base64.RawURLEncoding.DecodeString(text); err != nil || raw[0] != tagged {
		t.Errorf("a message that closes a stream has version %d, %v; older programs must refuse it", raw[0], err)
	}
	got, err := decode(nats.Header{field: {text}}, 11, tagged)
	if err != nil || len(got) != len(want) {
		t.Fatalf("decoded %+v, %v; want %d records", got, err, len(want))
	}
	for i, offset := range []uint32{0, 10, 10} {
		if got[i].record != want[i] || got[i].js != 11 || got[i].offset != offset {
			t.Errorf("decoded %+v, want %+v at offset %d", got[i], want[i], offset)
		}
	}
	for i := range text {
		for _, wrong := range []string{text[:i], text[:i] + "~" + text[i+1:], text[:i] + string(text[i]^1) + text[i+1:]} {
			if got, err := decode(nats.Header{field: {wrong}}, 11, tagged); err == nil {
				t.Errorf("decode(%s) = %+v, want an error", wrong, got)
			}
		}
	}
}
