package hub

import (
	"context"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// This file serves packages that show streams in another form than the API under /v1 does, such as
// package durable. They keep attributes with a stream, and read ranges of batches.

// Attributes returns the attributes of the stream. The hub does not know what they mean. They are
// empty for a stream that was created without them.
func (s *Stream) Attributes() string {
	if a, ok := s.hub.attributes.Load(s); ok {
		return a.(string)
	}
	return ""
}

// SetAttributes replaces the attributes of the stream, durably. The function edit gets the present
// attributes and returns the new ones, or an error, which SetAttributes returns. If the attributes
// change meanwhile, edit is called again.
func (s *Stream) SetAttributes(ctx context.Context, edit func(string) (string, error)) error {
	return s.change(ctx, func(spec *Spec) (err error) {
		spec.Attributes, err = edit(spec.Attributes)
		return err
	})
}

// EachWithAttributes calls visit for those streams of a project that have attributes, in no
// particular order, until visit returns false.
func (h *Hub) EachWithAttributes(p weir.ProjectID, visit func(s *Stream, attributes string) bool) {
	h.attributes.Range(func(k, v any) bool {
		s := k.(*Stream)
		return s.Project != p || s.expired() || visit(s, v.(string))
	})
}

// setAttributes keeps the attributes of a stream in memory. Only documentChanged calls it.
func (h *Hub) setAttributes(s *Stream, attributes string) {
	if attributes == "" {
		h.attributes.Delete(s)
	} else {
		h.attributes.Store(s, attributes)
	}
}

// Extent is what Read found.
type Extent struct {
	Next  weir.Seq // the position after the batches that were read
	Tail  weir.Seq // the position after the last batch that can be read now
	Ended bool     // the stream is closed (D37)
	Gone  bool     // batches at the position were evicted or lost; the caller must discard what Read has visited
}

// Bounds returns the position of the oldest batch that is kept. The fields Next and Tail of e are
// the position after the newest batch that can be read.
func (s *Stream) Bounds(ctx context.Context) (oldest weir.Seq, e Extent, err error) {
	f, err := s.acquire(ctx)
	if err != nil {
		return 0, Extent{}, err
	}
	defer f.release()
	if err := f.catchUp(ctx); err != nil {
		return 0, Extent{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if isGone(f) {
		return 0, Extent{}, notFound(s.ID)
	}
	f.evict(s.hub.now())
	end := f.state.Final()
	return f.state.Low(), Extent{Next: end, Tail: end, Ended: stream.Ended(f.state)}, nil
}

// Begin makes seq the first sequence of a stream in which nothing was ever stored. It is for copies
// of streams whose first batches were evicted. In a stream with batches it does nothing.
func Begin(ctx context.Context, s *Stream, seq weir.Seq) error {
	f, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer f.release()
	f.mu.Lock()
	begun := stream.Begin(f.ahead, seq) && stream.Begin(f.state, seq) // if ahead has no batch, state has none either
	if begun {
		f.way.order.begin(seq - 1)
		f.wake()
	}
	f.mu.Unlock()
	if !begun {
		return nil
	}
	return changeError(s.ID, f.trim())
}

// Read calls visit for the batches from the position pos upwards, in order, until about limit bytes
// were read or there are no more batches. It reads at least one batch if there is one. A batch is
// valid only during its visit. Before the first visit, Read calls reserve with the number of bytes
// that it will read. If reserve fails, Read returns its error. If batches are evicted while Read
// reads them, some visits may be missing, and the Extent has Gone set. Read counts as a use of the
// stream.
func (s *Stream) Read(ctx context.Context, pos weir.Seq, limit int, reserve func(bytes int) error, visit func(*weir.Batch)) (Extent, error) {
	f, err := s.acquire(ctx)
	if err != nil {
		return Extent{}, err
	}
	defer f.release()
	s.use(ctx)
	if err := f.catchUp(ctx); err != nil {
		return Extent{}, err
	}
	f.mu.Lock()
	if isGone(f) {
		f.mu.Unlock()
		return Extent{}, notFound(s.ID)
	}
	f.evict(s.hub.now())
	step := f.state.Next(pos)
	e := Extent{Next: pos, Tail: f.state.Final(), Ended: stream.Ended(f.state)}
	f.mu.Unlock()
	switch step.Kind {
	case stream.Gap, stream.Loss:
		e.Gone = true
		return e, nil
	case stream.Read:
	default:
		return e, nil
	}
	bytes, missing, last, newest := 0, 0, step.Last, step.First
	f.log.Headers(step.First, func(h engine.Header) bool {
		if h.Seq > last {
			return false
		}
		if bytes >= limit {
			last = newest
			return false
		}
		if h.Kind == engine.Batch {
			bytes += int(h.Size)
			missing++
			newest = h.Seq
		}
		return true
	})
	if e.Gone, err = f.evictedFrom(step.First); e.Gone || err != nil {
		return e, err // Headers leaves out batches that were trimmed before it reached them
	}
	if err := reserve(bytes); err != nil {
		return e, err
	}
	e.Next = last + 1
	err = f.log.Scan(ctx, step.First, min(limit, 1<<20), func(entry *engine.Entry) bool {
		if entry.Seq > last { // Headers did not count this batch, so it must not be subtracted from missing
			return false
		}
		if entry.Kind == engine.Batch {
			b := batch(entry)
			missing--
			visit(&b)
		}
		return true
	})
	if err != nil {
		return e, clientError(s.ID, err)
	}
	gone, err := f.evictedFrom(step.First)
	if gone && missing > 0 { // otherwise the batches were evicted only after they had been read
		e.Gone, e.Next = true, pos
	}
	return e, err
}

// Reached records, for Lag and Stats, that the caller has sent everything before the position next. It
// is for callers that do not use Next.
func (s *Subscription) Reached(next weir.Seq) {
	s.next = next
	s.position.Store(uint64(next))
}

// Await waits until there is something at the position next: batches, a loss, or the end of the
// stream. It returns false if there is still nothing when maxWait has passed. It fails with the
// same errors as Next, except ErrEnded.
func (s *Subscription) Await(ctx context.Context, next weir.Seq, maxWait time.Duration) (bool, error) {
	s.since = time.Now()
	s.Reached(next)
	step, _, err := s.await(ctx, maxWait)
	return err == nil && step.Kind != stream.Wait, err
}
