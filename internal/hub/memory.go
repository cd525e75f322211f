package hub

import (
	"context"
	"encoding/base64"
	"errors"
	"time"

	"weir"
	"weir/internal/budget"
	"weir/internal/engine"
	"weir/internal/stream"
)

// unlent is the largest frame, and the largest run read from the log, for which a subscription
// borrows no memory from Options.Memory.
const unlent = 32 << 10

var errNoMemory = errors.New("no memory available for a large frame yet")

// ChargeTo sets the holder that borrows the memory for large frames. stop is called if the memory
// is taken back, and must end the subscription soon. The result is the loan that Next uses: the
// caller says there how fast the frames are sent. ChargeTo must be called before Next. Until then
// the stream's project is charged.
func (s *Subscription) ChargeTo(of budget.Holder, stop func()) *budget.Loan {
	s.loan = s.f.hub.opts.Memory.Open(of, -1, stop)
	return s.loan
}

// borrow makes the subscription's loan at least so large: otherwise many subscribers that read
// batches of 8 MiB could exhaust the memory of the process. It waits for at most wait, and then
// returns errNoMemory. A stalled subscriber keeps its memory until it is disconnected.
func (s *Subscription) borrow(ctx context.Context, size int, wait time.Duration) error {
	patience, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := s.loan.Grow(patience, int64(size))
	if err != nil && ctx.Err() == nil && !errors.Is(err, budget.ErrCut) {
		return errNoMemory
	}
	return err
}

// reserveMemory reserves memory for the next run if it is large: for the payloads that are read and
// for the frames that are made of them.
func (s *Subscription) reserveMemory(ctx context.Context, step stream.Step, wait time.Duration) error {
	s.freeMemory()
	size := 0
	s.f.log.Headers(s.next, func(h engine.Header) bool {
		if h.Seq <= step.Last {
			size += int(h.Size)
		}
		return h.Seq < step.Last && size < run
	})
	if size <= unlent {
		return nil
	}
	return s.borrow(ctx, size+encodedSize(s.f.s.Mode, size), wait)
}

// encodedSize returns about how much a payload takes in a frame.
func encodedSize(mode weir.Mode, payload int) int {
	if mode == weir.Raw {
		return base64.StdEncoding.EncodedLen(payload)
	}
	return payload
}

// freeMemory releases the memory of the last run.
func (s *Subscription) freeMemory() {
	if s.older != nil {
		runs.Put(s.older)
		s.older = nil
	}
	s.unpin()
	s.loan.Shrink(0)
}

// pins are the subscriptions that send a large frame of the tail. They keep it in memory even after
// it has left the tail, so one of them pays for it: the frame counts once, however many send it.
type pins struct {
	// lock is held by the subscription that changes the fields below. It is a channel because a
	// subscription holds it while it waits for memory. At that time there is no payer, so no
	// subscription has pinned the frame, and none is kept from unpinning it.
	lock  chan struct{}
	payer *Subscription
	all   map[*Subscription]struct{}
}

func newPins(size int) pins {
	if size <= unlent {
		return pins{}
	}
	return pins{lock: make(chan struct{}, 1)}
}

func (r *frame) isLarge() bool { return r.pins.lock != nil }

// pin keeps a large frame in memory until unpin is called. The first subscription borrows memory
// for it, and waits for that like borrow.
func (s *Subscription) pin(ctx context.Context, r *frame, wait time.Duration) error {
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case r.pins.lock <- struct{}{}:
	case <-late.C:
		return errNoMemory
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.pins.lock }()
	if r.pins.payer == nil {
		if err := s.borrow(ctx, r.size, wait); err != nil {
			return err
		}
		r.pins.payer, r.pins.all = s, make(map[*Subscription]struct{})
	}
	r.pins.all[s] = struct{}{}
	s.pinned = r
	return nil
}

// unpin undoes pin. If others still send the frame, one of them pays for it from now on.
func (s *Subscription) unpin() {
	r := s.pinned
	if r == nil {
		return
	}
	s.pinned = nil
	r.pins.lock <- struct{}{}
	defer func() { <-r.pins.lock }()
	delete(r.pins.all, s)
	if r.pins.payer != s {
		return
	}
	r.pins.payer = nil
	for next := range r.pins.all {
		r.pins.payer = next
		budget.Move(s.loan, next.loan, int64(r.size))
		return
	}
	s.loan.Shrink(0)
}
