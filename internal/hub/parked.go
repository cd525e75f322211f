package hub

import (
	"context"
	"errors"
	"slices"
	"time"

	"weir/internal/stream"
)

// This file lets a subscription wait without a goroutine. A parked subscription belongs to a
// Sleeper. When there may be something to send, the hub's waker calls the method Wake of the
// Sleeper. After Wake has returned, the Sleeper calls Poll.

// Sleeper is the owner of a parked subscription.
type Sleeper interface {
	// Wake says that Poll may return something new. Wake may be called at any time until Unpark has
	// returned, from any goroutine, and also when there is nothing new. It must return at once, and
	// must not call the hub.
	Wake()
}

// ErrBusy is returned by Poll if the next frames must be read from the log, or need memory
// from the budget.
// The subscription must be unparked, and Next called instead.
var ErrBusy = errors.New("the next batches are not in memory")

// CanPark reports whether the subscription can be parked at all. In a store that nodes share, no
// subscription can be parked, because it has to read the batches of other nodes from the log.
func (s *Subscription) CanPark() bool { return !s.f.hub.shared }

// IsIdle reports whether there is nothing to send now.
func (s *Subscription) IsIdle() bool {
	step, _, err := s.look()
	return err == nil && step.Kind == stream.Wait
}

// Park parks the subscription. From then on, the waker calls the method Wake of the Sleeper. Park frees all buffers, so a parked
// subscription is little more than its position. From then on the caller may use only Poll, Unpark
// and Close. The caller must call Poll once after Park, because Wake is not called for batches that
// were stored before Park.
func (s *Subscription) Park(by Sleeper) {
	if s.timer != nil {
		s.timer.Stop()
		s.timer, s.armed = nil, false
	}
	s.freeMemory()
	s.loan.End()
	s.loan = nil
	s.sleeper = by
	s.row.mu.Lock()
	defer s.row.mu.Unlock()
	s.row.parked = append(s.row.parked, s)
}

// Unpark undoes Park. The caller should then call ChargeTo before it calls Next. Unpark does nothing
// if the subscription is not parked.
func (s *Subscription) Unpark() {
	if s.sleeper == nil {
		return
	}
	s.row.mu.Lock()
	defer s.row.mu.Unlock()
	s.row.parked = slices.DeleteFunc(s.row.parked, func(other *Subscription) bool { return other == s })
	s.sleeper = nil
}

// Poll does the same as Next for a parked subscription, but never waits for a batch, the disk or
// memory. If there is nothing to send, it returns an empty Event. If Next would wait for the disk
// or for memory, Poll returns ErrBusy.
func (s *Subscription) Poll() (Event, error) {
	s.since = time.Now()
	s.freeMemory()
	s.countSent()
	for {
		step, v, err := s.look()
		if err != nil || step.Kind == stream.Wait {
			return Event{}, err
		}
		if gap, err := s.pass(step); gap != nil || err != nil {
			return Event{Gap: gap}, err
		}
		if !s.isInTail(v) {
			return Event{}, ErrBusy
		}
		frames, err := s.read(context.Background(), v, step, 0)
		if err != nil || len(frames) > 0 {
			return Event{Frames: frames}, err
		}
	}
}

// isInTail reports whether the next frame can be sent from the tail without borrowed memory.
func (s *Subscription) isInTail(v *view) bool {
	i := seek(v.frames, s.next)
	return s.next >= v.low && (i == len(v.frames) || !v.frames[i].isLarge())
}
