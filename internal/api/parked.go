package api

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"weir/internal/access"
	"weir/internal/budget"
	"weir/internal/deflate"
	"weir/internal/hub"
)

// This file lets an event loop hold the connections of subscribers. Such a subscriber is parked:
// while it waits, it has no goroutine and no buffers, only a value of type subscriber and a
// hub.Subscription. The loop sends the subscriber batches of the tail (the recent batches that the
// hub keeps in memory), heartbeats, and the end of the subscription. For anything that may have to
// wait, such as reading the log or borrowing memory, a goroutine serves the subscriber until it can
// be parked again.

// parkingWriter is a response writer whose response an event loop can continue.
type parkingWriter interface {
	// Park parks the response. If it returns true, the handler must return and must not use the
	// response any more. If it returns false, nothing has changed.
	Park(p parked) bool
}

// parked has the methods that an event loop calls; see Parked in package loop.
type parked = interface {
	Enter(by interface {
		Wake()
		Cut()
	})
	Times() (idle, accept time.Duration)
	Continue(b []byte, idle bool) (_ []byte, leaves, ends bool)
	Resume(w http.ResponseWriter)
	Left(err error)
}

// errParked is the result of follow if an event loop continues the subscription.
var errParked = errors.New("the subscription was parked")

// subscriber is an open subscription, whether a goroutine or an event loop sends its events. A server
// can have a hundred thousand of them, so the type is small.
type subscriber struct {
	h     *Handler
	sub   *hub.Subscription // nil if the subscription failed to start
	ender ender
	zip   *deflate.Member // the state of a compressed response; nil if it is not compressed
	parks bool            // the subscription may be parked
	why   end             // why the hub ended a parked subscription

	// A parked subscription has no request any more. The fields ended and ender.of keep what is
	// still needed from the request.
	ended <-chan struct{} // closed when the caller loses the right to read
}

// holder returns the key and project of the subscriber.
func (s *subscriber) holder() budget.Holder { return holderOf(s.ender.of.grant, s.ender.of.from) }

// count adds one to the number of subscriptions that ended for this reason.
func (s *subscriber) count(why end) {
	if s.ender.byOperator.Load() {
		why = endOperator
	}
	s.h.counts.ended[why].Add(1)
}

// close frees everything that the subscription holds.
func (s *subscriber) close() {
	if s.sub != nil {
		s.sub.Close()
	}
	s.ender.use(nil, nil, nil)
	s.h.open.remove(s.ended, &s.ender)
	s.h.places.Give(s.holder(), access.Network(s.ender.of.from))
}

// park parks the subscription if its client has received everything so far. If it returns true,
// another goroutine may already use the subscription.
func (s *subscriber) park(w *writer) bool {
	_, ok := w.w.(parkingWriter) // checked first: over HTTP/2, where nothing is parked, IsIdle would look for the next batch in vain
	return ok && s.parks && s.sub.IsIdle() && s.leave(w)
}

// leave parks the subscription, even if its client has not received everything. If the next batches
// are not in memory, the event loop starts a goroutine for them (see Resume). That goroutine sends
// each run of batches with one system call. net/http would use three, because its buffer is smaller
// than a run, and would hold two goroutines and two buffers besides.
func (s *subscriber) leave(w *writer) bool {
	to, ok := w.w.(parkingWriter)
	return ok && s.parks && to.Park(s)
}

// Enter implements parked.
func (s *subscriber) Enter(by interface {
	Wake()
	Cut()
}) {
	s.sub.Park(by)
	s.ender.use(nil, nil, by)
}

// Times implements parked.
func (s *subscriber) Times() (idle, accept time.Duration) {
	return s.h.Heartbeat, s.h.WriteTimeout
}

// Continue implements parked.
func (s *subscriber) Continue(b []byte, idle bool) (_ []byte, leaves, ends bool) {
	w := writer{zip: s.zip} // used only for its methods that encode frames
	event, err := s.sub.Poll()
	switch {
	case err == nil && event.Gap != nil:
		return append(b, w.packed(gapFrame(event.Gap))...), false, false
	case err == nil && len(event.Frames) == 0 && idle:
		return append(b, w.packed(heartbeatFrame)...), false, false
	case err == nil:
		for _, f := range event.Frames {
			b = append(b, f...)
		}
		return b, false, false
	}
	if frame := endFrame(err); frame != nil {
		s.why = endOf(s.ended, err)
		return append(b, w.last(frame)...), false, true
	}
	return b, true, false // a goroutine calls follow, which reports the error or does what Poll could not do without waiting
}

// Left implements parked.
func (s *subscriber) Left(err error) {
	if err != nil {
		s.why = endOf(s.ended, err)
	}
	s.finish(s.why)
}

// Resume implements parked.
func (s *subscriber) Resume(rw http.ResponseWriter) {
	parked := false
	w := writer{w: rw, control: http.NewResponseController(rw), timeout: s.h.WriteTimeout, lasting: true, zip: s.zip}
	why := endFailed // the reason if follow panics
	defer func() {
		if !parked {
			s.finish(why)
		}
	}()
	s.sub.Unpark()
	ctx, cancel := context.WithCancel(context.Background())
	w.ended = ctx
	s.ender.use(cancel, w.control, nil)
	s.charge(&w)
	err := s.follow(&w)
	if parked = errors.Is(err, errParked); !parked {
		why = s.whyEnded(err, &w)
	}
}

// finish ends a subscription whose handler has returned. It counts the request.
func (s *subscriber) finish(why end) {
	s.count(why)
	s.close()
	of := &s.ender.of
	c := calls.Get().(*call)
	c.h, c.id, c.grant, c.ended, c.status, c.window.At = s.h, of.id, of.grant, s.ended, http.StatusOK, of.since
	c.route = route{kind: streamRoute, id: string(of.stream.ID)}
	c.r = &http.Request{Method: http.MethodGet, Proto: "HTTP/1.1", RemoteAddr: netip.AddrPortFrom(of.from, 0).String()}
	c.finish()
}
