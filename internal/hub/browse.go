package hub

import (
	"context"
	"fmt"
	"slices"

	"weir"
	"weir/internal/engine"
)

// Window is a range of sequences. One call of Browse reads a part of it.
type Window struct {
	From  weir.Seq // the lowest sequence
	Below weir.Seq // the window ends before this sequence
	Down  bool     // Browse reads the highest batches of the window, and not the lowest
	Limit int      // maximum number of batches to read at once
	Bytes int      // maximum number of payload bytes to read at once, unless the first batch is larger
}

// IsEmpty reports whether the window has no sequence.
func (w *Window) IsEmpty() bool { return w.From >= w.Below }

// Browsed is the result of Browse.
type Browsed struct {
	Rest    Window   // what remains of the window
	Low     weir.Seq // batches below this sequence are evicted by now, even if Browse has visited them
	Batches int      // batches that were read
	Bytes   int      // payload bytes that were read
}

// Browse reads a part of the stored batches in a window, so that a caller can look at a stream of
// any size in both directions, in bounded steps. Unlike a subscription or a Page, it includes
// batches above an open gap, and it does not count as use of the stream (lifetime.go). It calls
// reserve with the number of payload bytes before it reads them, and fails if reserve fails. Then it
// calls visit for each batch, in increasing order of sequence. The function visit must not keep the
// payload.
func Browse(ctx context.Context, s *Stream, w Window, reserve func(bytes int) error, visit func(*weir.Batch)) (Browsed, error) {
	f, err := s.acquire(ctx)
	if err != nil {
		return Browsed{}, err
	}
	defer f.release()
	low, end, gone := extent(f)
	if gone {
		return Browsed{}, notFound(s.ID)
	}
	w.From, w.Below = max(w.From, low), min(w.Below, end)
	marks := choose(f, &w)
	done := Browsed{Rest: w, Low: low, Batches: len(marks)}
	if len(marks) == 0 {
		done.Rest.From = done.Rest.Below
		return done, nil
	}
	for _, m := range marks {
		done.Bytes += int(m.Size)
	}
	first, last := marks[0].Seq, marks[len(marks)-1].Seq
	if w.Down {
		done.Rest.Below = first
	} else {
		done.Rest.From = last + 1
	}
	if err := reserve(done.Bytes); err != nil {
		return Browsed{}, err
	}
	err = f.log.Scan(ctx, first, done.Bytes+run, func(e *engine.Entry) bool {
		if e.Seq <= last && isStored(&e.Header) {
			b := batch(e)
			visit(&b)
		}
		return e.Seq < last
	})
	if err != nil {
		if known := clientError(s.ID, err); known != err {
			return Browsed{}, known
		}
		return Browsed{}, fmt.Errorf("read stream %s from %d: %w", s.ID, first, err)
	}
	if done.Low, _, gone = extent(f); gone {
		return Browsed{}, notFound(s.ID)
	}
	return done, nil
}

// FirstSince returns the sequence at which to start reading the batches that were stored at the
// time t or later. Some batches above this sequence may have been stored earlier (see firstSince).
func FirstSince(ctx context.Context, s *Stream, t weir.Time) (weir.Seq, error) {
	f, err := s.acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer f.release()
	low, end, gone := extent(f)
	if gone {
		return 0, notFound(s.ID)
	}
	return firstSince(f.log, low, end, t), nil
}

// extent returns the range of sequences that may have stored batches: low is the first of them, and
// end is the one after the last.
func extent(f *feed) (low, end weir.Seq, gone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.evict(f.hub.now())
	return f.state.Low(), f.state.Resolve(Head), isGone(f)
}

// isStored reports whether an entry is a batch that can be read.
func isStored(h *engine.Header) bool { return h.Kind == engine.Batch && h.Flags&engine.Lost == 0 }

// choose returns the batches that Browse reads, in increasing order of sequence.
func choose(f *feed, w *Window) []Mark {
	if w.Down {
		return chooseDown(f.log, w)
	}
	var found []Mark
	size := 0
	for from, more := w.From, true; more && from < w.Below; {
		from, more = f.marks(from, w.Limit, func(m Mark) {
			fits := len(found) < w.Limit && (len(found) == 0 || size+int(m.Size) <= w.Bytes)
			if size += int(m.Size); fits && m.Seq < w.Below {
				found = append(found, m)
			}
		})
		more = more && len(found) < w.Limit && size <= w.Bytes
	}
	return found
}

// chooseDown does the work of choose for a window that is read from its upper end. The log can only
// be read upwards, so chooseDown looks at one piece of the window after the other, the highest
// first. The log is locked while chooseDown looks at a piece, so pieces are small.
func chooseDown(log engine.Log, w *Window) []Mark {
	var found []Mark // in decreasing order of sequence
	size := 0
	for above := w.Below; above > w.From && len(found) < w.Limit && size <= w.Bytes; {
		start := max(w.From, above-min(above, lookRun))
		var piece []Mark
		log.Headers(start, func(h engine.Header) bool {
			if h.Seq < above && isStored(&h) {
				piece = append(piece, Mark{h.Seq, h.Time, h.Size})
			}
			return h.Seq+1 < above
		})
		for _, m := range slices.Backward(piece) {
			if size += int(m.Size); len(found) == w.Limit || len(found) > 0 && size > w.Bytes {
				break
			}
			found = append(found, m)
		}
		above = start
	}
	slices.Reverse(found)
	return found
}
