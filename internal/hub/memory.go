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

// unlent is a size in bytes. A subscription borrows memory from Options.Memory only if a frame (an
// encoded batch), or a run of batches read from the log, is larger than this.
const unlent = 32 << 10

var errNoMemory = errors.New("no memory available for a large frame yet")

// ChargeTo sets the holder that is charged for the memory of large frames. If the budget takes the
// memory back, it calls the function stop, which must end the subscription soon. ChargeTo returns
// the loan (the record of the borrowed memory) that Next uses, so that the caller can tell the loan
// how fast it sends the frames. ChargeTo must be called before Next. Without a call, the stream's
// project is charged.
func (s *Subscription) ChargeTo(of budget.Holder, stop func()) *budget.Loan {
	s.loan = s.f.hub.opts.Memory.Open(of, -1, stop)
	return s.loan
}

// lend makes sure that the subscription has a loan.
func (s *Subscription) lend() {
	if s.loan == nil {
		s.ChargeTo(budget.Holder{Project: string(s.f.s.Project)}, nil)
	}
}

// borrow makes the subscription's loan at least size bytes large. Without loans, many subscribers
// that read batches of 8 MiB could exhaust the memory of the process. If the budget does not grant
// the memory before maxWait has passed, borrow returns errNoMemory. A stalled subscriber keeps its
// memory until it is disconnected.
func (s *Subscription) borrow(ctx context.Context, size int, maxWait time.Duration) error {
	s.lend()
	patience, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	err := s.loan.Grow(patience, int64(size))
	if err != nil && ctx.Err() == nil && !errors.Is(err, budget.ErrCut) {
		return errNoMemory
	}
	return err
}

// reserveMemory borrows memory for the next run of batches if the run is larger than unlent, or than
// a long run. The loan covers the payloads that are read from the log and the frames that are encoded from them.
func (s *Subscription) reserveMemory(ctx context.Context, step stream.Step, maxWait time.Duration) error {
	s.freeMemory()
	s.lengthen()
	size, limit := 0, s.limit()
	s.f.log.Headers(s.next, func(h engine.Header) bool {
		if h.Seq <= step.Last {
			size += int(h.Size)
		}
		return h.Seq < step.Last && size < limit
	})
	if size <= unlent-run+limit {
		return nil
	}
	return s.borrow(ctx, size+EncodedSize(s.f.s.Mode, size), maxWait)
}

// EncodedSize returns roughly how many bytes a payload takes in a frame.
func EncodedSize(mode weir.Mode, payload int) int {
	if mode == weir.Raw {
		return base64.StdEncoding.EncodedLen(payload)
	}
	return payload
}

// freeMemory returns the memory of the last run of batches to the budget. It also drops the
// references to the frames of that run: otherwise a waiting subscription would keep frames in
// memory that neither the budget nor the tail (the recent batches in memory) counts any more.
func (s *Subscription) freeMemory() {
	if s.buffer != nil {
		clear(s.buffer.frames)
		runBuffersPool.Put(s.buffer)
		s.buffer = nil
	}
	if s.older != nil {
		giveBuffer(s.older)
		s.older = nil
	}
	s.shorten()
	s.unpin()
	s.loan.Shrink(0)
}

// pins are the subscriptions that are sending one large frame of the tail. While any of them sends
// the frame, it stays in memory, even if the tail has dropped it. So one of them, the payer,
// borrows the memory for the frame: the budget counts the frame once, however many subscriptions
// send it. The loans of the other subscriptions share this memory, so the budget can end any of
// these subscriptions that is slow.
type pins struct {
	// lock is held by the subscription that changes the fields below. It is a channel, because pin
	// gives up waiting for lock after a time. A subscription also holds lock while it waits for
	// memory. This does not delay unpin: a subscription waits for memory only if there is no payer,
	// and then no other subscription has pinned the frame.
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

// pin keeps a large frame in memory until unpin is called. The first subscription that pins the
// frame borrows the memory for it. Like borrow, pin returns errNoMemory if maxWait passes first.
func (s *Subscription) pin(ctx context.Context, r *frame, maxWait time.Duration) error {
	if err := ctx.Err(); err != nil { // as in enterAlone
		return err
	}
	s.lend()
	late := time.NewTimer(maxWait)
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
		if err := s.borrow(ctx, r.size, maxWait); err != nil {
			return err
		}
		r.pins.payer, r.pins.all = s, make(map[*Subscription]struct{})
	} else {
		budget.Share(r.pins.payer.loan, s.loan)
	}
	r.pins.all[s] = struct{}{}
	s.pinned = r
	return nil
}

// unpin undoes pin. If s paid for the frame and other subscriptions still send it, unpin makes one
// of them the payer and moves the borrowed memory to its loan.
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
		budget.Unshare(r.pins.payer.loan, s.loan)
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
