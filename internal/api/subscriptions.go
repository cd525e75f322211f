package api

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"weir/internal/shrink"
)

// subscriptions is the set of open subscriptions. It ends the subscriptions of a key when the key
// is revoked (D18), and all subscriptions when the server stops. It needs one goroutine per key,
// not one per subscription.
type subscriptions struct {
	mu   sync.Mutex
	keys shrink.Map[<-chan struct{}, *watched] // by the channel that is closed when the API key is revoked
}

// watched is a key with open subscriptions.
type watched struct {
	open shrink.Map[*ender, struct{}]
	idle chan struct{} // closed when the last subscription has ended
}

// ender ends one subscription, or the wait of a long poll.
type ender struct {
	mu      sync.Mutex
	over    bool                     // end() was called
	cancel  context.CancelFunc       // nil while the subscription is parked (held by an event loop, without a goroutine)
	control *http.ResponseController // nil while the subscription is parked, and for a long poll, which writes its response after the wait
	parked  interface{ Cut() }       // nil unless the subscription is parked
	of      listener

	byOperator atomic.Bool // the operator has ended the subscription
}

// end interrupts the subscription, whether it waits for the next event or is blocked in a write to
// a client that does not read. It must cancel the context before it sets the deadline: see
// writer.arm.
func (e *ender) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	e.interrupt()
}

func (e *ender) interrupt() {
	if e.parked != nil {
		e.parked.Cut()
	}
	if e.cancel != nil {
		e.cancel()
	}
	if e.control != nil {
		_ = e.control.SetWriteDeadline(longAgo)
	}
}

// use replaces the parts that a call of end interrupts. If end was called before, the new parts are
// interrupted at once. The old context is cancelled, to free its memory.
func (e *ender) use(cancel context.CancelFunc, control *http.ResponseController, parked interface{ Cut() }) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cancel != nil {
		e.cancel()
	}
	if e.cancel, e.control, e.parked = cancel, control, parked; e.over {
		e.interrupt()
	}
}

// endAll ends every subscription.
func (s *subscriptions) endAll() { s.each((*ender).end) }

// count returns the number of open subscriptions of the key whose revocation closes this channel.
func (s *subscriptions) count(ended <-chan struct{}) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.keys.Get(ended); w != nil {
		return w.open.Len()
	}
	return 0
}

func (s *subscriptions) add(ended <-chan struct{}, e *ender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.keys.Get(ended)
	if w == nil {
		w = &watched{idle: make(chan struct{})}
		s.keys.Set(ended, w)
		go s.watch(ended, w)
	}
	w.open.Set(e, struct{}{})
}

// remove removes a subscription that has ended. After remove has returned, e.end is not called any
// more. The connection may then serve another request, which a late call of e.end would break.
func (s *subscriptions) remove(ended <-chan struct{}, e *ender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.keys.Get(ended)
	if w == nil { // the key was revoked, and watch() has ended its subscriptions
		return
	}
	w.open.Delete(e)
	if w.open.Len() == 0 {
		s.keys.Delete(ended)
		close(w.idle)
	}
}

func (s *subscriptions) watch(ended <-chan struct{}, w *watched) {
	select {
	case <-w.idle:
		return
	case <-ended:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range w.open.All() {
		e.end()
	}
	if s.keys.Get(ended) == w {
		s.keys.Delete(ended)
	}
}
