package hub

import (
	"context"
	"fmt"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// PageQuery says which batches a page has (D37).
type PageQuery struct {
	From  From      // where the page starts, unless Last or Since is set
	Last  int       // if above 0, the page starts this many batches before the end of the stream
	Since weir.Time // if above 0, the page has only batches that were stored at this time or later
	Limit int       // maximum number of batches
	Bytes int       // maximum size of all encoded batches together; a larger batch is a page of its own
}

// Page is a range of batches of a stream, in increasing order of sequence. The caller reads the
// batches run by run: it calls Plan, and then Read, until IsDone returns true. A page ends before
// an open gap, as a subscription does (D4). The field Gap has the evicted and lost batches below
// the first batch of the page. If batches of the page are evicted while the page is being read, the
// page ends before them.
//
// A Page must be used by one goroutine at a time. The caller must close it.
type Page struct {
	Gap *Gap // sequences below the first batch that belong to the query but can no longer be read; nil if there are none

	f      *feed
	query  PageQuery
	next   weir.Seq // the sequence to read next
	end    weir.Seq // the page ends below this sequence
	run    weir.Seq // the planned run ends below this sequence
	after  weir.Seq // the sequence above the last batch that was read
	count  int      // batches that were read
	bytes  int      // payload bytes of the planned run
	size   int      // encoded size of the batches that were read
	cursor weir.Seq
	stored weir.Seq // the sequence above all stored batches; 0 if nothing was ever stored
	ended  bool     // the stream is closed
}

// Page returns the page for a query. The page includes every batch that any node acknowledged
// before the call. Page fails with StreamNotFound or StorageUnavailable.
func (s *Stream) Page(ctx context.Context, q PageQuery) (*Page, error) {
	f, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	s.use(ctx)
	p := &Page{f: f, query: q}
	if err := f.catchUp(ctx); err != nil {
		p.Close()
		return nil, err
	}
	if err := p.start(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close ends the use of the page.
func (p *Page) Close() { p.f.release() }

// start finds the first sequence of the page, and the range from there.
func (p *Page) start() error {
	f := p.f
	f.mu.Lock()
	f.evict(f.hub.now())
	low, end := f.state.Low(), f.state.Resolve(Head)
	p.next = f.state.Resolve(p.query.From)
	f.mu.Unlock()
	switch {
	case p.query.Last > 0:
		p.next = lastOf(f.log, low, end, p.query.Last)
	case p.query.Since > 0:
		p.next = firstSince(f.log, low, end, p.query.Since)
	}
	return p.refresh()
}

// refresh finds the range of the page again, from p.next upwards. It must not be called after a
// batch of the page was read. refresh skips what the page does not have: evicted and lost batches,
// which it records in p.Gap, and batches that were stored before query.Since.
func (p *Page) refresh() error {
	for {
		low, err := p.locate()
		if err != nil {
			return err
		}
		// If low has risen, the log may have been trimmed before locate read it. Then p.next is above
		// evicted batches that p.Gap does not have.
		if evicted, err := p.f.evictedFrom(max(low, p.run)); err != nil || !evicted {
			return err
		}
		p.next = p.run
	}
}

// locate does the work of refresh. If batches are evicted while it runs, refresh must call it
// again. It returns the sequence below which all batches were evicted when locate began, and leaves
// the start of the range in p.run.
func (p *Page) locate() (weir.Seq, error) {
	f := p.f
	if p.Gap != nil { // the new gap includes the sequences of this one
		p.next, p.Gap = p.Gap.From, nil
	}
	f.mu.Lock()
	if isGone(f) {
		f.mu.Unlock()
		return 0, notFound(f.s.ID)
	}
	f.evict(f.hub.now())
	p.cursor, p.stored, p.ended = f.state.Cursor().Cursor, f.state.Resolve(Head), stream.Ended(f.state)
	step := f.state.Next(p.next)
	if step.Kind == stream.Gap || step.Kind == stream.Loss {
		if step.Kind == stream.Loss || !p.asksForKept() {
			p.Gap = &Gap{step.First, step.Last, step.Kind == stream.Loss}
		}
		p.next = step.Last + 1
		step = f.state.Next(p.next)
	}
	low := f.state.Low()
	f.mu.Unlock()
	if p.end = p.next; step.Kind == stream.Read {
		p.next, p.end = step.First, step.Last+1
	}
	p.run = p.next
	first := p.end
	f.log.Headers(p.next, func(h engine.Header) bool {
		if h.Seq < p.end && p.has(&h) {
			first = h.Seq
		}
		return h.Seq < first
	})
	p.next = first
	return low, nil
}

// asksForKept reports whether the query asks only for batches that are still kept, whatever their
// sequences are. The page then reports no gap for evicted batches (D37).
func (p *Page) asksForKept() bool {
	return p.query.Last > 0 || p.query.Since > 0 || p.query.From == Oldest
}

// IsEmpty reports whether the page has nothing to report: neither a batch, nor a gap, nor that the
// stream is closed.
func (p *Page) IsEmpty() bool { return p.Gap == nil && p.count == 0 && p.next == p.end && !p.IsLast() }

// IsLast reports whether nothing can follow the batches that were read: the stream is closed, and
// they include its last batch.
func (p *Page) IsLast() bool { return p.ended && p.Next() == p.stored }

// IsDone reports whether Read has returned all batches of the page.
func (p *Page) IsDone() bool { return p.next == p.end }

// Count returns the number of batches that were read.
func (p *Page) Count() int { return p.count }

// Cursor returns the cursor of the stream at the time when the range of the page was found.
func (p *Page) Cursor() weir.Seq { return p.cursor }

// Next returns the sequence to continue from after the batches that were read: the one above the
// last of them. If there are none, it is the sequence above the cursor, or the start of the page if
// that is lower. So Next never skips an open gap, nor sequence 0 while nothing was ever stored.
func (p *Page) Next() weir.Seq {
	if p.count > 0 {
		return p.after
	}
	return min(p.next, p.stored)
}

// Plan chooses the next run of batches to read: at most maxBytes bytes of payload, but at least one
// batch. It returns the payload bytes of the run.
func (p *Page) Plan(maxBytes int) int {
	count, size, bytes := p.count, p.size, 0
	p.run = p.end
	p.f.log.Headers(p.next, func(h engine.Header) bool {
		encoded := EncodedSize(p.f.s.Mode, int(h.Size))
		switch {
		case h.Seq >= p.end:
			return false
		case !p.has(&h):
			return true
		case count == p.query.Limit || count > 0 && size+encoded > p.query.Bytes:
			p.run, p.end = h.Seq, h.Seq
			return false
		case bytes > 0 && bytes+int(h.Size) > maxBytes:
			p.run = h.Seq
			return false
		}
		count, size, bytes = count+1, size+encoded, bytes+int(h.Size)
		return true
	})
	p.bytes = bytes
	return bytes
}

// has reports whether an entry in the range of the page is one of its batches.
func (p *Page) has(h *engine.Header) bool { return h.Kind == engine.Batch && h.Time >= p.query.Since }

// Read calls encode for each batch of the planned run. The function encode appends the batch to b
// and must not keep its payload. Read returns the extended b. If batches of the run were evicted in
// the meantime, Read returns b itself, and the page ends before the run. But if no batch of the
// page was read before, the page now starts above the evicted batches, and the caller must call
// Plan again.
func (p *Page) Read(ctx context.Context, b []byte, encode func([]byte, *weir.Batch) []byte) ([]byte, error) {
	f, start := p.f, len(b)
	count, size, after := p.count, p.size, p.after
	err := f.log.Scan(ctx, p.next, p.bytes+run, func(e *engine.Entry) bool {
		if e.Seq >= p.run {
			return false
		}
		if p.has(&e.Header) {
			batch := batch(e)
			b = encode(b, &batch)
			count, size, after = count+1, size+EncodedSize(f.s.Mode, len(e.Payload)), e.Seq+1
		}
		return e.Seq+1 < p.run
	})
	if err != nil {
		if known := clientError(f.s.ID, err); known != err {
			return b[:start], known
		}
		return b[:start], fmt.Errorf("read stream %s from %d: %w", f.s.ID, p.next, err)
	}
	evicted, err := f.evictedFrom(p.next)
	switch {
	case err != nil:
		return b[:start], err
	case evicted && p.count > 0:
		p.end = p.next
		return b[:start], nil
	case evicted:
		return b[:start], p.refresh()
	}
	p.count, p.size, p.after, p.next = count, size, after, p.run
	return b, nil
}

// Wait waits until the page has something to report (see IsEmpty), but at most for maxWait. It
// fails with the errors of Stream.Page, with the error of the context, or with ErrDeleted,
// ErrExpired or ErrStopping.
func (p *Page) Wait(ctx context.Context, maxWait time.Duration) error {
	until := time.Now().Add(maxWait) // beginning the subscription may take time
	from := Oldest
	if p.next > 0 {
		from = After(p.next - 1)
	}
	sub, err := p.f.s.Subscribe(ctx, from)
	if err != nil {
		return err
	}
	defer sub.Close()
	if sub.f != p.f {
		return ErrStopping // the log was reopened: see feed.Behind
	}
	for p.IsEmpty() {
		sub.next, sub.since = p.next, time.Now()
		step, _, err := sub.await(ctx, time.Until(until))
		if err != nil {
			return err
		}
		if err := p.refresh(); err != nil || step.Kind == stream.Wait {
			return err
		}
	}
	return nil
}

// lastOf returns the sequence at which the newest n batches begin. It considers only batches from
// the sequence low upwards and below the sequence end.
func lastOf(log engine.Log, low, end weir.Seq, n int) weir.Seq {
	start := end
	for missing := weir.Seq(n); missing > 0; {
		if start-low <= missing {
			return low
		}
		above := start
		start -= missing // if there is no gap here, this range has exactly the batches that are still to be found
		log.Headers(start, func(h engine.Header) bool {
			if h.Seq < above && h.Kind == engine.Batch {
				missing--
			}
			return h.Seq+1 < above
		})
	}
	return start
}

// firstSince returns the sequence at which to start reading the recent batches: those from low
// upwards that were not stored before the time in the parameter since. The result is end if there is
// no such batch.
//
// Except for late batches, the times of batches never decrease with their sequence. So firstSince
// uses a binary search to find the first recent batch that is not late. A late batch may have been
// stored later than batches above it. When a batch is stored, its sequence is at most weir.MaxAhead
// above the cursor. So nearly all late batches that are recent lie at most that far below the batch
// that was found, and firstSince looks for them only there.
func firstSince(log engine.Log, low, end weir.Seq, since weir.Time) weir.Seq {
	from, to := low, end
	for from < to {
		middle := from + (to-from)/2
		older := weir.Seq(0) // the sequence above a batch that is not recent; 0 if there is none
		log.Headers(middle, func(h engine.Header) bool {
			if h.Kind != engine.Batch || h.Flags&engine.Late != 0 {
				return true
			}
			if h.Seq < to && h.Time < since {
				older = h.Seq + 1
			}
			return false
		})
		if older > 0 {
			from = older
		} else {
			to = middle
		}
	}
	first := from
	log.Headers(max(low, first-min(first, weir.MaxAhead)), func(h engine.Header) bool {
		if h.Seq < first && h.Kind == engine.Batch && h.Time >= since {
			first = h.Seq
		}
		return h.Seq < first
	})
	return first
}
