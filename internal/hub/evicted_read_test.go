package hub

import (
	"context"
	"slices"
	"strings"
	"testing"

	"weir"
	"weir/internal/engine"
)

// beforeScan is an engine whose logs can call a function before a scan (the field call), or before
// they list headers (the field list).
type beforeScan struct {
	engine.Engine
	call, list func()
}

type beforeScanLog struct {
	engine.Log
	e *beforeScan
}

func (e *beforeScan) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := e.Engine.Open(ctx, id, j)
	return &beforeScanLog{l, e}, err
}

func (l *beforeScanLog) Scan(ctx context.Context, start weir.Seq, run int, visit func(*engine.Entry) bool) error {
	if l.e.call != nil {
		l.e.call()
	}
	return l.Log.Scan(ctx, start, run, visit)
}

func (l *beforeScanLog) Headers(start weir.Seq, visit func(engine.Header) bool) {
	if l.e.list != nil {
		l.e.list()
	}
	l.Log.Headers(start, visit)
}

// evicting returns a stream that keeps only the newest five of the batches 1 to last. Just before
// the next scan of the log (or, if the parameter early is set, before the next listing of its
// headers) a large batch is published, so that only the newest two of these five are kept. The
// evicted batches are also trimmed, that is, removed from the log.
func evicting(t *testing.T, e engine.Engine, last weir.Seq, early bool) (*Hub, *Stream) {
	t.Helper()
	on := &beforeScan{Engine: e}
	h := open(t, on, Options{})
	s := made(t, h, func(s *Spec) { s.MaxBytes = 5000 })
	for seq := weir.Seq(1); seq <= last; seq++ {
		publish(t, s, at(seq, strings.Repeat("x", 1000)))
	}
	evict := func() {
		on.call, on.list = nil, nil
		publish(t, s, &Publish{Batch: weir.Batch{Payload: []byte(strings.Repeat("y", 3000))}})
		if err := s.openFeed().trim(); err != nil {
			t.Error(err)
		}
	}
	if early {
		on.list = evict
	} else {
		on.call = evict
	}
	return h, s
}

// If batches are evicted and trimmed while Read reads them, the scan of the log leaves them out.
// Read must say so: otherwise its caller would take the rest for all that was stored.
func TestEvictedDuringRead(t *testing.T) {
	for _, early := range []bool{false, true} {
		for _, limit := range []int{1 << 20, 2000, 1} { // these limits allow Read to visit all batches, two, or one
			engines(t, func(t *testing.T, e engine.Engine) {
				h, s := evicting(t, e, 5, early)
				defer h.Close()
				var visited []weir.Seq
				got, err := s.Read(ctx, 1, limit, func(int) error { return nil }, func(b *weir.Batch) { visited = append(visited, b.Seq) })
				if err != nil || !got.Gone || got.Next != 1 {
					t.Errorf("early %t, limit %d: Read visited %v and returned %+v, %v; want Gone and the position 1", early, limit, visited, got, err)
				}
			})
		}
	}
}

// If a page starts at a sequence that can no longer be read, the page has a gap up to its first
// batch. The gap includes sequences that were evicted while the page was read. A page that asks
// only for batches that are still kept has no gap (D37).
func TestGapGrowsWhileReadingAPage(t *testing.T) {
	for _, c := range []struct {
		q     PageQuery
		gap   *Gap
		early bool
	}{
		{PageQuery{From: After(0)}, &Gap{From: 1, To: 4}, false},
		{PageQuery{From: After(0)}, &Gap{From: 1, To: 4}, true},
		{PageQuery{From: After(1)}, &Gap{From: 2, To: 4}, true},
		{PageQuery{From: Oldest}, nil, false},
		{PageQuery{From: Oldest}, nil, true},
		{PageQuery{Last: 4}, nil, false},
		{PageQuery{Since: 1}, nil, false},
	} {
		engines(t, func(t *testing.T, e engine.Engine) {
			h, s := evicting(t, e, 6, c.early)
			defer h.Close()
			c.q.Limit, c.q.Bytes = 10, 1<<20
			p, err := s.Page(ctx, c.q)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			var got []weir.Seq
			for !p.IsDone() {
				p.Plan(1 << 20)
				got = nil
				if _, err := p.Read(ctx, nil, func(b []byte, batch *weir.Batch) []byte { got = append(got, batch.Seq); return b }); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(got, []weir.Seq{5, 6, 7}) {
				t.Errorf("%+v: got the batches %v, want 5 to 7", c.q, got)
			}
			if (p.Gap == nil) != (c.gap == nil) || c.gap != nil && *p.Gap != *c.gap {
				t.Errorf("%+v: the gap is %v, want %v", c.q, p.Gap, c.gap)
			}
		})
	}
}

// A stream that evicts a batch with each publish can be read from its oldest batch: batches that
// were read completely do not count as missing, even if they were evicted meanwhile.
func TestEvictedAfterRead(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, func(s *Spec) { s.MaxBytes = 3000 })
		payload := strings.Repeat("x", 1000)
		for seq := range weir.Seq(3) {
			publish(t, s, at(seq+1, payload))
		}
		var visited []weir.Seq
		evicts := func(int) error { publish(t, s, at(4, payload)); return nil }
		got, err := s.Read(ctx, 1, 1<<20, evicts, func(b *weir.Batch) { visited = append(visited, b.Seq) })
		if err != nil || got.Gone || got.Next != 4 || !slices.Equal(visited, []weir.Seq{1, 2, 3}) {
			t.Errorf("Read visited %v and returned %+v, %v; want batches 1 to 3 and the position 4", visited, got, err)
		}
	})
}
