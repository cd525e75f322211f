package hub

import (
	"context"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// Streams is every stream, those of a project beside each other and in the order of their creation.
func (h *Hub) Streams() []*Stream {
	h.catalog.mu.RLock()
	defer h.catalog.mu.RUnlock()
	all := make([]*Stream, 0, len(h.catalog.byID))
	for _, sh := range h.catalog.projects {
		all = append(all, sh.streams...)
	}
	return all
}

// Glance is the stream object of now if that can be said without opening the log: for sorting thousands of streams. One that
// nobody used since the start has a cursor and a size of 0 in it, and known is false.
func (s *Stream) Glance() (object weir.Stream, updated weir.Time, known bool) {
	now := s.hub.now()
	s.mu.Lock()
	f, r := s.feed, s.resting
	s.mu.Unlock()
	switch {
	case f != nil:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.evict(now)
		rest := resting{cursor: f.state.Cursor(), bytes: f.state.Bytes()}
		return s.object(rest), rest.cursor.UpdatedAt, true
	case r != nil && now < r.until:
		return s.object(*r), r.cursor.UpdatedAt, true
	}
	return s.object(resting{}), s.CreatedAt, false
}

// Range is a range of sequences, inclusive.
type Range = stream.Range

// Mark is a batch without its contents.
type Mark struct {
	Seq  weir.Seq
	Time weir.Time
	Size uint32
}

// Standing is how a stream stands, in more detail than its object says.
type Standing struct {
	Object      weir.Stream
	Updated     weir.Time // when the batch at the cursor was stored
	Batches     uint64    // that are kept
	Subscribers int
	Oldest      *Mark // of the batches that are kept; nil: there are none
	Newest      *Mark
	Cut         bool // the first batch that was visited is not the first that was ever stored: there were more, or they are evicted

	Open    []Range // gaps that can still be filled: the highest ones
	Closed  []Range // gaps that stay: the highest ones
	Missing uint64  // sequences between oldest and newest that are not there
}

// shownGaps is how many gaps of each sort a Standing has.
const shownGaps = 20

// lookRun is how many headers are looked at in one go: nobody can publish to the stream meanwhile.
const lookRun = 2048

// Look tells how the stream stands, and visits its last batches, about most of them, from the lowest sequence up. It holds no
// lock for longer than it takes to look at a few thousand numbers.
func (s *Stream) Look(ctx context.Context, most int, visit func(Mark)) (Standing, error) {
	f, err := s.acquire(ctx)
	if err != nil {
		return Standing{}, err
	}
	defer f.release()
	f.refresh(ctx)
	f.mu.Lock()
	if f.dropped {
		f.mu.Unlock()
		return Standing{}, notFound(s.ID)
	}
	f.evict(s.hub.now())
	rest := resting{cursor: f.state.Cursor(), bytes: f.state.Bytes()}
	st := Standing{Object: s.object(rest), Updated: rest.cursor.UpdatedAt, Subscribers: f.tail.subscribers}
	st.Open, st.Closed, st.Missing = f.state.Missing(shownGaps)
	low, end := f.state.Low(), rest.cursor.Cursor
	f.mu.Unlock()
	st.Cut = low > 1 // 1 is where a stream begins that has no batch 0
	f.marks(low, 1, func(m Mark) { st.Oldest = &m })
	if st.Oldest == nil {
		return st, ctx.Err()
	}
	if low == 0 && st.Oldest.Seq > 0 {
		low = 1 // nobody misses a 0 that was never stored
	}
	if all := uint64(end) + 1 - uint64(low); all > st.Missing {
		st.Batches = all - st.Missing
	}
	from := low
	if end >= weir.Seq(most) {
		from = max(low, end-weir.Seq(most)+1)
		st.Cut = st.Cut || from > low
	}
	for ctx.Err() == nil && from <= end {
		next, more := f.marks(from, lookRun, func(m Mark) {
			if m.Seq <= end {
				st.Newest = &m
				visit(m)
			}
		})
		if !more {
			break
		}
		from = next
	}
	return st, ctx.Err()
}

// marks visits up to n batches from a sequence on, and returns where to go on, if it did not see all that there is.
func (f *feed) marks(from weir.Seq, n int, visit func(Mark)) (next weir.Seq, more bool) {
	seen, batches := 0, 0
	f.log.Headers(from, func(h engine.Header) bool {
		seen++
		next = h.Seq + 1
		if h.Kind == engine.Batch && h.Flags&engine.Lost == 0 {
			batches++
			visit(Mark{h.Seq, h.Time, h.Size})
		}
		more = batches >= n || seen >= lookRun
		return !more
	})
	return next, more
}
