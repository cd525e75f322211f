package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/jetstream/record"
	"weir/internal/engine/jetstream/wire"
)

// returning is a judge that continues with the state of an earlier one (engine.Returning).
type returning struct {
	*follower
	left     engine.Log
	restored int // number of entries that Restore received
	resumed  bool
}

func (r *returning) Left() engine.Log  { return r.left }
func (r *returning) Resume(engine.Log) { r.resumed = true }
func (r *returning) Restore(note []byte, entries iter.Seq[*engine.Header]) error {
	r.follower = &follower{}
	return r.follower.Restore(note, func(yield func(*engine.Header) bool) {
		for h := range entries {
			if r.restored++; !yield(h) {
				return
			}
		}
	})
}

// readings counts the messages that are read, except the newest one of a log, and the requests for
// them.
type readings struct {
	wire.Servers
	calls, messages atomic.Int64
}

func (r *readings) Read(ctx context.Context, stream string, q wire.Query) ([]wire.Stored, uint64, error) {
	all, upTo, err := r.Servers.Read(ctx, stream, q)
	if q.Newest == nil {
		r.calls.Add(1)
		r.messages.Add(int64(len(all)))
	}
	return all, upTo, err
}

func (r *readings) Headers(ctx context.Context, stream, subject string, from uint64, visit func(wire.Stored) error) error {
	r.calls.Add(1)
	return r.Servers.Headers(ctx, stream, subject, from, func(m wire.Stored) error {
		r.messages.Add(1)
		return visit(m)
	})
}

// countedPair opens one log on two nodes, and counts what the first one reads.
func countedPair(t *testing.T) (count *readings, here, there *log, mine, theirs *follower) {
	t.Helper()
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	servers, err := wire.Connect(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	count = &readings{Servers: servers}
	o := Options{Name: "store", Shards: 2, sure: time.Hour}
	e, err := OpenOn(ctx, count, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	doc, err := e.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	here, mine = openUnattended(t, e, doc.Created)
	there, theirs = openUnattended(t, node(t, s, o), doc.Created)
	return count, here, there, mine, theirs
}

// A log that is closed and opened again reads only what other nodes have stored in the meantime. It
// reads everything if another node has removed records that this node has not read yet, or if the
// judge returns a log that cannot be continued.
func TestResume(t *testing.T) {
	const n = 20
	use := func(low weir.Seq, purge bool) func(t *testing.T, there *log, judge *follower) {
		return func(t *testing.T, there *log, judge *follower) {
			put(t, there, "their first", "their second")
			if judge.low = low; low > 0 {
				if err := there.Trim(ctx, low, nil); err != nil {
					t.Fatal(err)
				}
			}
			if purge {
				there.mu.Lock()
				floor := there.index.bottom()
				there.mu.Unlock()
				there.purge(floor)
			}
		}
	}
	for _, c := range []struct {
		name      string
		meanwhile func(t *testing.T, there *log, judge *follower)
		resumed   bool
		messages  int64
		seqs      []weir.Seq
	}{
		{"unchanged", func(*testing.T, *log, *follower) {}, true, 0, between(0, n)},
		{"appended", use(0, false), true, 1, between(0, n+2)},
		{"trimmed", use(5, false), true, 3, between(5, n+2)},
		{"trimmed and purged", use(5, true), true, 3, between(5, n+2)},
		{"trimmed and purged beyond what this node knows", use(n+1, true), false, 2, between(n+1, n+2)},
	} {
		t.Run(c.name, func(t *testing.T) {
			count, here, there, mine, theirs := countedPair(t)
			put(t, here, make([]string, n)...)
			if err := there.CatchUp(ctx); err != nil {
				t.Fatal(err)
			}
			if err := here.Close(); err != nil {
				t.Fatal(err)
			}
			c.meanwhile(t, there, theirs)
			count.calls.Store(0)
			count.messages.Store(0)
			judge := &returning{follower: mine, left: here}
			l, err := here.e.Open(ctx, here.id, judge)
			if err != nil {
				t.Fatal(err)
			}
			if judge.resumed != c.resumed || (judge.restored > 0) == c.resumed {
				t.Errorf("resumed: %v, restored with %d entries", judge.resumed, judge.restored)
			}
			if got := count.messages.Load(); c.resumed && got != c.messages || (count.calls.Load() == 0) != (c.messages == 0) {
				t.Errorf("%d messages were read, want %d", got, c.messages)
			}
			var seqs []weir.Seq
			l.Headers(0, func(h engine.Header) bool { seqs = append(seqs, h.Seq); return true })
			if !slices.Equal(seqs, c.seqs) {
				t.Errorf("the log holds %v, want %v", seqs, c.seqs)
			}
			put(t, l.(*log), "mine")
			if err := there.CatchUp(ctx); err != nil {
				t.Fatal(err)
			}
			if got, want := theirs.seen, c.seqs[len(c.seqs)-1]+2; got != want {
				t.Errorf("after another append, the other node knows the entries below %d, want %d", got, want)
			}
		})
	}
}

// between returns the sequences from low to last-1.
func between(low, last weir.Seq) (all []weir.Seq) {
	for seq := low; seq < last; seq++ {
		all = append(all, seq)
	}
	return all
}

// A log that was deleted, or that another log has continued, or that failed, cannot be continued.
func TestResumeNot(t *testing.T) {
	here, there, judges := pair(t)
	put(t, here, "a", "b", "c")
	if err := here.Close(); err != nil {
		t.Fatal(err)
	}
	for _, left := range []engine.Log{nil, there, newLog(here.e, here.id+1, judges[0])} {
		judge := &returning{follower: &follower{}, left: left}
		l, err := here.e.Open(ctx, here.id, judge)
		if err != nil || judge.resumed || judge.restored != 3 {
			t.Errorf("opened with another log: %v, resumed %v, restored %d entries", err, judge.resumed, judge.restored)
		}
		l.Close()
	}
	if err := there.e.Delete(ctx, "a", 0); err != nil {
		t.Fatal(err)
	}
	judge := &returning{follower: judges[0], left: here}
	if _, err := here.e.Open(ctx, here.id, judge); !errors.Is(err, engine.ErrDropped) || judge.resumed {
		t.Errorf("open a deleted log: %v, resumed %v; want ErrDropped", err, judge.resumed)
	}
}

// When most of the entries of a log are trimmed, the memory of the index is freed.
func TestIndexShrinks(t *testing.T) {
	l := &log{}
	for seq := range weir.Seq(10_000) {
		l.index.insert(record.Record{Header: engine.Header{Seq: seq}})
	}
	for low := range weir.Seq(9_990) {
		l.index.cut(low)
	}
	if len(l.index.entries) != 11 || cap(l.index.entries) > 50 || l.index.entries[0].seq != 9_989 {
		t.Errorf("%d entries are left, in an array of %d", len(l.index.entries), cap(l.index.entries))
	}
}

// The index of a closed log, which may be kept for long, takes as much memory as Held counted.
func TestKeptIndex(t *testing.T) {
	if size := unsafe.Sizeof(entry{}); size != perEntry {
		t.Errorf("an entry of the index takes %d bytes, and %d are counted", size, perEntry)
	}
	here, _, judges := pair(t)
	put(t, here, make([]string, 300)...)
	judges[0].low = 140 // less than half, so that the index is not copied
	if err := here.Trim(ctx, 140, nil); err != nil {
		t.Fatal(err)
	}
	counted := here.e.Held(here.id)
	if err := here.Close(); err != nil {
		t.Fatal(err)
	}
	if took := int64(here.index.removed+cap(here.index.entries)) * perEntry; took != counted || counted != 160*perEntry {
		t.Errorf("the index of the closed log takes %d bytes, Held counted %d for 160 entries", took, counted)
	}
}

// A purge that began before a log was closed may end after another log has taken over its index.
func TestResumeDuringPurge(t *testing.T) {
	_, here, _, mine, _ := countedPair(t)
	put(t, here, make([]string, 20)...)
	mine.low = 5
	if err := here.Trim(ctx, 5, nil); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		here.mu.Lock()
		floor := here.index.bottom()
		here.mu.Unlock()
		if err := here.Close(); err != nil {
			t.Fatal(err)
		}
		old, purged := here, make(chan struct{})
		go func() { old.purge(floor); close(purged) }() // as tidy began it just before Close
		l, err := here.e.Open(ctx, here.id, &returning{follower: mine, left: here})
		if err != nil {
			t.Fatal(err)
		}
		<-purged
		here = l.(*log)
	}
}

// consumers counts how often a log is read with a consumer.
type consumers struct {
	wire.Servers
	n int
}

func (c *consumers) Headers(ctx context.Context, stream, subject string, from uint64, visit func(wire.Stored) error) error {
	c.n++
	return c.Servers.Headers(ctx, stream, subject, from, visit)
}

// A short log is opened without a consumer, which all servers of a cluster would have to agree on.
// However a log is read, all of its entries are there.
func TestOpenShort(t *testing.T) {
	s := server(t, quickDir(t))
	defer s.Stop()
	e := open(t, s, "store")
	defer e.Close()
	servers, err := wire.Connect(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	counting := &consumers{Servers: servers}
	other, err := OpenOn(ctx, counting, Options{Name: "store", Patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, c := range []struct {
		name      string
		n, size   int
		trim      weir.Seq
		consumers int
	}{
		{"empty", 0, 1, 0, 0},
		{"one message", 1, 1, 0, 0},
		{"chain", 16, 1, 0, 0},
		{"more than a chain", 17, 1, 0, 0},
		{"short", 64, 1, 0, 0},
		{"long", 65, 1, 0, 1},
		{"trimmed", 10, 1, 5, 0},
		{"trimmed as a whole", 10, 1, 10, 0},
		{"an entry of two messages", 1, 1 << 20, 0, 0},
		{"an entry of several messages", 1, 5 << 19, 0, 1},
		{"few large entries", 10, 100 << 10, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc, err := e.Create(ctx, c.name, nil)
			if err != nil {
				t.Fatal(err)
			}
			judge := &follower{}
			l := attach(t, e, doc.Created, judge)
			for i := range c.n {
				put(t, l, fmt.Sprint(i, strings.Repeat("x", c.size)))
			}
			if c.trim > 0 {
				judge.low = c.trim
				if err := l.Trim(ctx, c.trim, nil); err != nil {
					t.Fatal(err)
				}
				l.mu.Lock()
				floor := l.index.bottom()
				l.mu.Unlock()
				l.purge(floor)
			}
			if err := other.CatchUp(ctx); err != nil {
				t.Fatal(err)
			}
			counting.n = 0
			restored := &follower{}
			there, err := other.Open(ctx, doc.Created, restored)
			if err != nil {
				t.Fatal(err)
			}
			if counting.n != c.consumers {
				t.Errorf("the log was read with %d consumers, want %d", counting.n, c.consumers)
			}
			if got, want := payloads(t, there), payloads(t, l); !slices.Equal(got, want) || len(got) != c.n-int(c.trim) {
				t.Errorf("the log has %d entries, want %d", len(got), len(want))
			}
		})
	}
}
