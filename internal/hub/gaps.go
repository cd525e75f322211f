package hub

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// This file closes gaps when their grace has ended (D4). The grace is time in which the publisher
// could have filled the gap, so it stands still in two cases:
//
//   - While a request for a missing sequence is being received. The stream holds the sequence from
//     Stream.Decide, before the body is read, to Publish.Release. A marker never closes a held
//     sequence. If a request that took longer than a tenth of the grace ends without storing it, the
//     grace starts afresh.
//   - While the store takes no writes. It starts afresh when the store takes them again.
//
// A node knows only the requests that it receives itself. On a shared store another node that has the
// stream in use may therefore close a gap under a body that is on its way to this one.

// holds are the sequences for which requests are being received, in no order. A sequence is in it
// once per request. They belong to the stream and not to its feed, so that they outlive a log that
// must be reopened.
type holds struct {
	mu   sync.Mutex
	seqs []weir.Seq
}

// keptHolds is how many sequences an empty list keeps room for, so that a publish allocates nothing.
const keptHolds = 16

func (h *holds) add(seq weir.Seq) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seqs = append(h.seqs, seq)
}

// remove returns true if no other request holds the sequence.
func (h *holds) remove(seq weir.Seq) (last bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, end := slices.Index(h.seqs, seq), len(h.seqs)-1
	h.seqs[i] = h.seqs[end]
	if h.seqs = h.seqs[:end]; end == 0 && cap(h.seqs) > keptHolds {
		h.seqs = nil
	}
	return !slices.Contains(h.seqs, seq)
}

// lowest returns the lowest held sequence that a state still awaits, or stream.NoneHeld.
func (h *holds) lowest(s *stream.State) weir.Seq {
	h.mu.Lock()
	defer h.mu.Unlock()
	lowest := stream.NoneHeld
	for _, seq := range h.seqs {
		if seq < lowest && s.Awaits(seq) {
			lowest = seq
		}
	}
	return lowest
}

// Release ends what Decide began. Call it once the publish has ended, whether it was stored or not:
// until then its sequence stays open. Calling it again, or without Decide, does nothing.
func (p *Publish) Release() {
	p.leave()
	s := p.held
	if s == nil {
		return
	}
	p.held = nil
	if last := s.holds.remove(p.Seq); !last || p.settled {
		return // if it was stored, Admit has scheduled what is due above it
	}
	s.mu.Lock()
	f := s.feed
	s.mu.Unlock()
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// A short request cost the publisher no time. If each one restarted the grace, requests that fail
	// at once could keep a gap open for ever.
	if lost := f.hub.now().Std().Sub(p.since.Std()); lost > f.hub.opts.GapGrace/10 && f.ahead.Awaits(p.Seq) {
		f.restartGrace(p.Seq)
	}
	f.schedule()
}

// restartGrace starts the grace of the missing sequences from seq upwards afresh, in both states:
// the state ahead may have to return to the other one (Rewind). Called with f.mu held.
func (f *feed) restartGrace(seq weir.Seq) {
	now := f.hub.now()
	f.ahead.Restart(seq, now)
	f.state.Restart(seq, now)
}

// admitMarker turns an entry into the marker that closes the gaps whose grace has ended. It refuses
// the entry if there are none: they may have been filled since closeGaps proposed it, or a request
// for one of them may have arrived.
func (f *feed) admitMarker(e *engine.Entry, now weir.Time) bool {
	m, due := f.ahead.Due(now, f.s.holds.lowest(f.ahead))
	if !due {
		return false
	}
	e.First, e.Seq, e.Time = m.First, m.Seq, m.Time
	f.ahead.Apply(m)
	f.pending = append(f.pending, admitted{header: m})
	return true
}

// foreignDelay is how much longer a node waits before it closes gaps below another node's entry.
// The node that stored the entry closes them in time unless it is down. The delay keeps two nodes
// from proposing the same marker.
const foreignDelay = 200 * time.Millisecond

// schedule sets the timer that closes gaps when their grace has ended. The timer never runs for
// longer than one grace, even if the clock says that more time is left: the clock may have stepped
// back, and State.Due must be called that often to notice. There is no timer while a request that is
// being received keeps the lowest gap open. Called with f.mu held.
func (f *feed) schedule() {
	due, waiting := f.ahead.NextDue()
	if !waiting {
		return
	}
	left := max(due.Std().Sub(f.hub.opts.Now()), 0)
	if left == 0 && f.s.holds.lowest(f.ahead) <= f.ahead.Final() {
		return // Release, or the admission of that sequence, schedules again
	}
	wait := min(left, f.hub.opts.GapGrace) + time.Millisecond
	if f.foreign {
		wait += foreignDelay
	}
	if f.timer == nil {
		f.timer = time.AfterFunc(wait, f.closeGaps)
	} else {
		f.timer.Reset(wait)
	}
}

// closeGaps proposes a marker for the gaps whose grace has ended. The timer calls it in its own
// goroutine.
func (f *feed) closeGaps() {
	select {
	case <-f.hub.closing:
		return
	default:
	}
	f.s.mu.Lock()
	if f.s.feed != f {
		f.s.mu.Unlock()
		return
	}
	f.users++
	f.s.mu.Unlock()
	defer f.release()
	err := f.hub.takesWrites()
	f.mu.Lock()
	_, due := f.ahead.Due(f.hub.now(), f.s.holds.lowest(f.ahead))
	f.mu.Unlock()
	if due && err == nil {
		err = f.log.Append(context.Background(), &engine.Entry{Header: engine.Header{Kind: engine.GapClosed}})
		if err != nil && !errors.Is(err, engine.ErrDropped) && !errors.Is(err, engine.ErrClosed) {
			f.hub.opts.Logger.Warn("failed to close gaps, will retry", "stream", f.s.ID, "error", err)
			f.refused(clientError(f.s.ID, err))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.dropped || f.behind:
	case err != nil: // the store is full or does not answer; keeping a gap open for longer does no harm
		f.timer.Reset(retryGapsAfter)
	default:
		f.schedule()
	}
}

// retryGapsAfter is the time between attempts to close gaps after a failure.
const retryGapsAfter = time.Second

// checkWritesEvery is how often a hub asks a store that takes no writes whether it takes them again.
const checkWritesEvery = 100 * time.Millisecond

// takesWrites returns why the store takes no writes, or nil if it does. From the moment that it takes
// none, until it takes them again, all gaps of this node stay open.
func (h *Hub) takesWrites() error {
	status := h.engine.Status()
	if status.State == engine.Ready && !h.stalled.Load() {
		return nil
	}
	if h.stalled.CompareAndSwap(false, true) {
		time.AfterFunc(checkWritesEvery, h.checkWrites)
	}
	return cmp.Or(status.Reason, errStalled)
}

// errStalled is returned between the moment at which the store takes writes again and the next check.
var errStalled = errors.New("the store took no writes a moment ago")

// checkWrites restarts the grace of all gaps once the store takes writes again.
func (h *Hub) checkWrites() {
	select {
	case <-h.closing:
		return
	default:
	}
	if h.engine.Status().State != engine.Ready {
		time.AfterFunc(checkWritesEvery, h.checkWrites)
		return
	}
	defer h.stalled.Store(false) // after the restarts, or an old grace could end in between
	for _, s := range h.catalog.open() {
		s.mu.Lock()
		f := s.feed
		s.mu.Unlock()
		if f != nil {
			f.mu.Lock()
			f.restartGrace(0)
			f.schedule()
			f.mu.Unlock()
		}
	}
}

// refused notes that the store did not take a write to this stream, if that is what the error says:
// the publisher could not fill a gap until now. If the store takes no writes at all, the gaps of
// all streams stay open until it does.
func (f *feed) refused(err error) {
	var known *weir.Error
	if !errors.As(err, &known) || known.Code != weir.StorageUnavailable || f.hub.stalled.Load() {
		return
	}
	if f.hub.takesWrites() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.dropped {
		f.restartGrace(0)
		f.schedule()
	}
}
