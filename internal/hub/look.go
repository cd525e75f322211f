package hub

import (
	"context"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// Streams returns all streams, grouped by project. Within a project, the oldest stream comes first.
func (h *Hub) Streams() []*Stream {
	h.catalog.mu.RLock()
	defer h.catalog.mu.RUnlock()
	all := make([]*Stream, 0, h.catalog.byID.Len())
	for _, ps := range h.catalog.projects {
		all = append(all, ps.streams...)
	}
	return all
}

// Glance returns the current stream object without opening the log, so a caller can afford to call
// it for thousands of streams in order to sort them. The last result, known, is false if a batch
// may have expired since the last use. It may also be false shortly after the hub was opened. If it
// is false, the object has a cursor and a size of 0.
func (s *Stream) Glance() (object weir.Stream, updated weir.Time, known bool) {
	now := s.hub.now()
	s.mu.Lock()
	f, r := s.traffic.open(), s.summary
	s.mu.Unlock()
	switch {
	case f != nil:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.evict(now)
		sum := f.summarize()
		return s.object(sum), sum.cursor.UpdatedAt, true
	case now < r.until:
		return s.object(r), r.cursor.UpdatedAt, true
	}
	return s.object(summary{}), s.CreatedAt, false
}

// Range is a range of sequences. Both ends are inclusive.
type Range = stream.Range

// Mark describes a batch without its payload.
type Mark struct {
	Seq  weir.Seq
	Time weir.Time
	Size uint32
}

// Standing describes the current state of a stream in more detail than the stream object.
type Standing struct {
	Object      weir.Stream
	Updated     weir.Time // when the batch at the cursor was stored
	Batches     uint64    // number of kept batches
	Subscribers int
	Oldest      *Mark // oldest kept batch; nil if there is none
	Newest      *Mark // newest batch that Look visited; nil if there is none
	// Cut is true if Look did not visit the first batch ever stored, because that batch was evicted
	// or lies below the sequences that Look visits.
	Cut bool

	Open    []Range // the highest gaps that can still be filled, at most shownGaps
	Closed  []Range // the highest gaps that are closed, at most shownGaps
	Missing uint64  // number of missing and lost sequences between the oldest batch and the cursor
}

// shownGaps is the maximum number of open gaps, and of closed gaps, in a Standing.
const shownGaps = 20

// lookRun is how many headers Look examines at a time. The log is locked while Look examines them,
// so a larger number would delay publishes to the stream.
const lookRun = 2048

// Look returns the state of the stream and calls visit for the batches among its last n sequences,
// in increasing order. Look holds no lock for longer than it takes to examine lookRun headers, so
// batches may be stored or evicted during the call. On a shared store Look includes the batches of
// other nodes if the store can be reached.
func (s *Stream) Look(ctx context.Context, n int, visit func(Mark)) (Standing, error) {
	f, err := s.acquire(ctx)
	if err != nil {
		return Standing{}, err
	}
	defer f.release()
	f.refresh(ctx)
	f.mu.Lock()
	if isGone(f) {
		f.mu.Unlock()
		return Standing{}, notFound(s.ID)
	}
	f.evict(s.hub.now())
	sum := f.summarize()
	st := Standing{Object: s.object(sum), Updated: sum.cursor.UpdatedAt, Subscribers: f.tail.watchers()}
	st.Open, st.Closed, st.Missing = f.state.Missing(shownGaps)
	low, end := f.state.Low(), sum.cursor.Cursor
	f.mu.Unlock()
	st.Cut = low > 1 // if nothing was evicted, low is 0 or 1: sequence 0 is optional
	f.marks(low, 1, func(m Mark) { st.Oldest = &m })
	if st.Oldest == nil {
		return st, ctx.Err()
	}
	if low == 0 && st.Oldest.Seq > 0 {
		low = 1 // sequence 0 is optional, so it is not missing if it was never stored
	}
	if all := uint64(end) + 1 - uint64(low); all > st.Missing {
		st.Batches = all - st.Missing
	}
	from := low
	if end >= weir.Seq(n) {
		from = max(low, end-weir.Seq(n)+1)
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

// marks calls visit for up to n batches, from the sequence start upwards. If the result more is
// true, further batches may follow, from the sequence next upwards.
func (f *feed) marks(start weir.Seq, n int, visit func(Mark)) (next weir.Seq, more bool) {
	seen, batches := 0, 0
	f.log.Headers(start, func(h engine.Header) bool {
		seen++
		next = h.Seq + 1
		if isStored(&h) {
			batches++
			visit(Mark{h.Seq, h.Time, h.Size})
		}
		more = batches >= n || seen >= lookRun
		return !more
	})
	return next, more
}
