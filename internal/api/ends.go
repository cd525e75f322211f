package api

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// ends ends the subscriptions of a key when the key is revoked (D18), and all when the server stops. One goroutine waits for
// each key that has subscriptions, not one for each subscription.
type ends struct {
	mu   sync.Mutex
	keys map[<-chan struct{}]*watched
}

// watched is a key with open subscriptions.
type watched struct {
	open map[*ender]struct{}
	idle chan struct{} // closed when there are none any more
}

// ender ends one subscription.
type ender struct {
	cancel  context.CancelFunc
	control *http.ResponseController
}

// end stops the wait for what comes next, and a write that the client does not take. In this order: see writer.arm.
func (e *ender) end() {
	e.cancel()
	_ = e.control.SetWriteDeadline(time.Unix(1, 0))
}

// all ends every subscription.
func (s *ends) all() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.keys {
		for e := range w.open {
			e.end()
		}
	}
}

// count is how many subscriptions end with this channel.
func (s *ends) count(ended <-chan struct{}) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.keys[ended]; w != nil {
		return len(w.open)
	}
	return 0
}

func (s *ends) add(ended <-chan struct{}, e *ender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.keys[ended]
	if w == nil {
		if s.keys == nil {
			s.keys = map[<-chan struct{}]*watched{}
		}
		w = &watched{open: map[*ender]struct{}{}, idle: make(chan struct{})}
		s.keys[ended] = w
		go s.watch(ended, w)
	}
	w.open[e] = struct{}{}
}

// remove returns only when nobody ends e any more: its connection may then serve another request.
func (s *ends) remove(ended <-chan struct{}, e *ender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.keys[ended]
	if w == nil { // the key was revoked
		return
	}
	delete(w.open, e)
	if len(w.open) == 0 {
		delete(s.keys, ended)
		close(w.idle)
	}
}

func (s *ends) watch(ended <-chan struct{}, w *watched) {
	select {
	case <-w.idle:
		return
	case <-ended:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range w.open {
		e.end()
	}
	if s.keys[ended] == w {
		delete(s.keys, ended)
	}
}
