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

// This file closes gaps (missing sequences below the cursor) when their grace period has ended
// (D4). A gap is closed by storing a marker, a log entry which says that the missing sequences stay
// missing. The grace counts only time in which the publisher could have filled the gap, so the
// grace is paused in two cases:
//
//   - While a request for a missing sequence is being received. From Stream.Decide, which is called
//     before the body is read, to Publish.Release, the stream holds the sequence. No marker closes
//     a held sequence. While a sequence is held, the grace of that sequence and of all missing
//     sequences above it is paused.
//   - While the store accepts no writes. When the store accepts writes again, each gap gets its
//     whole grace again.
//
// On a shared store, nodes tell each other which sequences they hold; see elsewhere.go.

// holds lists the sequences for which requests are being received, in no particular order. A
// sequence is listed once per request. The list belongs to the stream and not to its feed, so that
// it survives when the log is reopened.
type holds struct {
	mu        sync.Mutex
	seqs      []weir.Seq
	elsewhere map[weir.Seq]time.Time // sequences that other nodes hold, and until when their reports count
}

// keptHolds is the largest capacity that an empty list keeps. Keeping it saves an allocation per
// publish.
const keptHolds = 16

func (h *holds) add(seq weir.Seq) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seqs = append(h.seqs, seq)
}

func (h *holds) remove(seq weir.Seq) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, end := slices.Index(h.seqs, seq), len(h.seqs)-1
	h.seqs[i] = h.seqs[end]
	if h.seqs = h.seqs[:end]; end == 0 && cap(h.seqs) > keptHolds {
		h.seqs = nil
	}
}

func (h *holds) none() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.seqs) == 0
}

// first returns the sequences that requests to this node hold and that can still be stored, in
// increasing order. If there are more than the parameter most, it leaves out the highest.
func (h *holds) first(s *stream.State, most int) []weir.Seq {
	h.mu.Lock()
	defer h.mu.Unlock()
	var seqs []weir.Seq
	for _, seq := range h.seqs {
		if seq > s.Cursor().Cursor || s.Awaits(seq) {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	seqs = slices.Compact(seqs)
	return seqs[:min(len(seqs), most)]
}

// hear adds sequences that other nodes hold.
func (h *holds) hear(seqs []weir.Seq, until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, seq := range seqs {
		if h.elsewhere == nil {
			h.elsewhere = map[weir.Seq]time.Time{}
		}
		h.elsewhere[seq] = until
	}
}

// lowest returns the lowest held sequence that is missing in s and can still be filled, or
// stream.NoneHeld.
func (h *holds) lowest(s *stream.State) weir.Seq {
	h.mu.Lock()
	defer h.mu.Unlock()
	lowest := stream.NoneHeld
	for _, seq := range h.seqs {
		if seq < lowest && s.Awaits(seq) {
			lowest = seq
		}
	}
	if h.elsewhere == nil {
		return lowest
	}
	now := time.Now()
	for seq, until := range h.elsewhere {
		if !now.Before(until) {
			delete(h.elsewhere, seq)
		} else if seq < lowest && s.Awaits(seq) {
			lowest = seq
		}
	}
	if len(h.elsewhere) == 0 {
		h.elsewhere = nil
	}
	return lowest
}

// Release ends the hold that Decide placed on the sequence of the publish. Call Release once the
// publish has ended, whether the batch was stored or not. Until then the sequence stays open.
// Calling Release again, or without Decide, does nothing.
func (p *Publish) Release() {
	p.leave()
	s := p.held
	if s == nil {
		return
	}
	p.held = nil
	p.way.holds.remove(p.Seq)
	if p.settled {
		return // the sequence is stored, and Admit has scheduled the closing of the gaps above it
	}
	f := s.openFeed()
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.Seq == f.held.seq {
		f.updateHeld(f.hub.now())
		f.schedule()
	}
}

// heldFrom is the lowest missing sequence for which a request is being received, and the time since
// which it has been the lowest. The grace of this sequence and of those above it is paused.
type heldFrom struct {
	seq   weir.Seq // stream.NoneHeld if there is none
	since weir.Time
}

// updateHeld finds the lowest held sequence again. If the result differs from f.held, the pause of
// the old sequence has ended, and updateHeld adds the length of the pause to each grace that was
// paused. It must be called when the sequence in f.held is stored, closed, evicted or released, and
// when a lower sequence may have become held. Called with f.mu held.
//
// updateHeld changes both states, because Rewind may replace f.ahead by a copy of f.state.
func (f *feed) updateHeld(now weir.Time) {
	lowest := f.way.holds.lowest(f.ahead)
	if lowest == f.held.seq {
		return
	}
	if f.held.seq != stream.NoneHeld {
		f.ahead.Pause(f.held.seq, f.held.since, now)
		f.state.Pause(f.held.seq, f.held.since, now)
	}
	f.held = heldFrom{lowest, now}
}

// restartGrace gives all gaps their whole grace again, from now. Called with f.mu held.
func restartGrace(f *feed) {
	now := f.hub.now()
	f.ahead.Pause(0, stream.Afresh, now)
	f.state.Pause(0, stream.Afresh, now)
}

// admitMarker turns an entry into the marker that closes the gaps whose grace has ended. If c is
// not nil, the marker closes what c says. It refuses the entry if there is nothing to close any
// more: since closeGaps proposed the entry, the gaps may have been filled, or a request for one of
// the missing sequences may have arrived.
func (f *feed) admitMarker(e *engine.Entry, now weir.Time, c *closing) bool {
	m, due := f.ahead.Due(now, f.held.seq)
	switch {
	case c != nil && c.gaps:
		m, due = stream.CloseGaps(f.ahead, now)
	case c != nil && c.life != nil && !c.life.isOver(now):
		return false // another node has used the stream
	case c != nil && c.life == nil && lifeEnded(f.s): // the stream no longer exists, so it cannot be closed
		c.verdict = stream.Verdict{Outcome: stream.Refused, Err: notFound(f.s.ID)}
		return false
	case c != nil:
		c.verdict = stream.Closing(f.ahead, c.writer, now)
		m, due = c.verdict.Header, c.verdict.Outcome == stream.Stored
	}
	if !due {
		return false
	}
	e.First, e.Seq, e.Time, e.Flags = m.First, m.Seq, m.Time, 0
	if m.Ends {
		e.Flags = engine.Ends
	}
	f.ahead.Apply(m)
	f.updateHeld(now)
	f.pending.add(admitted{header: m, lapses: c != nil && c.life != nil})
	return true
}

// foreignDelay is how much longer a node waits before it closes gaps below another node's entry.
// The node that stored the entry closes those gaps in time unless it is down. The delay keeps two
// nodes from proposing the same marker.
const foreignDelay = 200 * time.Millisecond

// schedule sets the timer that closes gaps when their grace has ended. The timer never runs for
// longer than one grace, even if the clock says that more time is left: the clock may have stepped
// back, and State.Due notices that only if it is called once per grace. No timer runs while a
// request that is being received keeps the lowest gap open. Called with f.mu held.
func (f *feed) schedule() {
	due, waiting := f.ahead.NextDue()
	if !waiting {
		return
	}
	left := max(due.Std().Sub(f.hub.opts.Now()), 0)
	if left == 0 && f.held.seq <= f.ahead.Final() {
		return // when the sequence is no longer held, schedule is called again
	}
	// The timers of different streams fire at different times. If they fired at the same time,
	// their order would be random, and a simulation could not be repeated.
	wait := min(left, f.hub.opts.GapGrace) + time.Millisecond + time.Duration(f.s.log%1000)*time.Microsecond
	if f.foreign {
		wait += foreignDelay
	}
	if f.timer == nil {
		f.timer = time.AfterFunc(wait, f.closeGaps)
	} else {
		f.timer.Reset(wait)
	}
}

// closeGaps proposes a marker for the gaps whose grace has ended. The timer calls it in a new
// goroutine.
func (f *feed) closeGaps() {
	select {
	case <-f.hub.closing:
		return
	default:
	}
	f.s.mu.Lock()
	if f.s.traffic.open() != f {
		f.s.mu.Unlock()
		return
	}
	f.users++
	f.s.mu.Unlock()
	defer f.release()
	err := f.hub.takesWrites()
	f.mu.Lock()
	now := f.hub.now()
	f.updateHeld(now) // a request may have ended while the feed was being opened
	_, due := f.ahead.Due(now, f.held.seq)
	f.mu.Unlock()
	if due && err == nil {
		err = f.log.Append(context.Background(), &engine.Entry{Header: engine.Header{Kind: engine.GapClosed}})
		if err != nil && !errors.Is(err, engine.ErrDropped) && !errors.Is(err, engine.ErrClosed) {
			f.hub.opts.Logger.Warn("failed to close gaps, will retry", "stream", f.s.ID, "error", err)
			f.writeFailed(changeError(f.s.ID, err))
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

// checkWritesEvery is how often a hub asks a store that accepts no writes whether it accepts them
// again.
const checkWritesEvery = 110 * time.Millisecond

// takesWrites returns the reason why the store accepts no writes, or nil if it accepts them. Once
// takesWrites has returned a reason, all gaps on this node stay open until checkWrites finds that
// the store accepts writes again.
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

// errStalled is the error of takesWrites if the store accepts writes again but checkWrites has not
// noticed it yet.
var errStalled = errors.New("the store took no writes a moment ago")

// checkWrites restarts the grace of all gaps once the store accepts writes again.
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
	defer h.stalled.Store(false) // after the loop: otherwise a gap whose grace is not restarted yet could be closed
	for _, s := range h.catalog.open() {
		f := s.openFeed()
		if f != nil {
			f.mu.Lock()
			restartGrace(f)
			f.schedule()
			f.mu.Unlock()
		}
	}
}

// writeFailed handles a failed write to this stream. If err says that the store did not accept the
// write, the publisher could not have filled a gap until now, so writeFailed restarts the grace of
// the stream's gaps. If the store accepts no writes at all, the gaps of all streams stay open until
// it does.
func (f *feed) writeFailed(err error) {
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
		restartGrace(f)
		f.schedule()
	}
}
