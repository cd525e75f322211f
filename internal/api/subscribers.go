package api

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
	"weir/internal/meter"
)

// listener describes a subscription or a long poll: its request, its stream and its caller.
type listener struct {
	id     [requestIDLength]byte
	stream *hub.Stream
	grant  *access.Grant // nil for a client that needs no key
	from   netip.Addr
	since  int64             // when the subscription began, by the clock of meter.Now
	sub    *hub.Subscription // nil for a long poll, and until the hub has begun the subscription
}

// listener returns the description of this call, which reads the stream s.
func (c *call) listener(s *hub.Stream) listener {
	return listener{id: c.id, stream: s, grant: c.grant, from: c.client(), since: meter.Now()}
}

// Subscriber is an open subscription, or a long poll that waits.
type Subscriber struct {
	ID     string // id of the request
	KeyID  string // empty if the request needed no key
	From   netip.Addr
	Since  time.Time
	Behind uint64 // number of sequences that the subscriber has yet to receive
	Polls  bool   // it is a long poll, which ends by itself
}

func (l *listener) subscriber() Subscriber {
	s := Subscriber{ID: string(l.id[:]), From: l.from, Since: time.Now().Add(time.Duration(l.since - meter.Now())), Polls: l.sub == nil}
	if l.grant != nil {
		s.KeyID = l.grant.KeyID()
	}
	if l.sub != nil {
		s.Behind = l.sub.Lag()
	}
	return s
}

// SubscribersOf returns the open subscriptions to a stream on this node. Those that are furthest
// behind come first. If several are equally far behind, the oldest comes first. The list has at
// most the given number of subscriptions. The result all is the number of all open subscriptions to
// the stream.
func (h *Handler) SubscribersOf(id weir.StreamID, most int) (list []Subscriber, all int) {
	cut := func() {
		slices.SortFunc(list, func(a, b Subscriber) int {
			return cmp.Or(cmp.Compare(b.Behind, a.Behind), a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
		})
		list = list[:min(len(list), most)]
	}
	var open []listener
	h.open.each(func(e *ender) {
		if e.of.stream.ID == id {
			open = append(open, e.of) // the rest is done without the lock, for which event loops may wait
		}
	})
	for i := range open {
		if list = append(list, open[i].subscriber()); len(list) >= 4*most { // shorten the list from time to time: a stream may have 100,000 subscribers
			cut()
		}
	}
	cut()
	return list, len(open)
}

// EndSubscriber ends one subscription to a stream and returns it. The client may subscribe again at
// once. The result is false if there is no such subscription.
func (h *Handler) EndSubscriber(stream weir.StreamID, id string) (ended Subscriber, ok bool) {
	h.open.each(func(e *ender) {
		if e.of.stream.ID == stream && string(e.of.id[:]) == id {
			ended, ok = e.of.subscriber(), true
			e.byOperator.Store(true)
			e.end()
		}
	})
	return ended, ok
}

// each calls the function visit for each open subscription, with s.mu held.
func (s *subscriptions) each(visit func(*ender)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.keys.All() {
		for e := range w.open.All() {
			visit(e)
		}
	}
}

// begun records the subscription that the hub has begun.
func (s *subscriptions) begun(e *ender, sub *hub.Subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.of.sub = sub
}
