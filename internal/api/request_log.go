package api

import (
	"slices"
	"sync"
	"time"

	"weir"
	"weir/internal/meter"
)

// requestLog remembers the last requests, so that somebody who has a request id can be told what became of it. It is a ring
// of small structs in every shard: a request takes a lock that hardly anybody else wants, and writes one of them. Those that
// were refused have a ring of their own, which the many others do not wash away, and so have those that failed.
type requestLog [meter.Shards]requestShard

type requestShard struct {
	mu      sync.Mutex
	served  requestRing
	refused requestRing
	failed  requestRing // on the server's side
	_       meter.Pad
}

// How many requests a shard remembers. Memory is taken as they come.
const (
	servedRing  = 8 << 10
	refusedRing = 4 << 10
	failedRing  = 1 << 10
	firstRing   = 64
)

// requestLife is how long a request is remembered, if that many do not come after it.
const requestLife = 24 * time.Hour

type requestRing struct {
	notes []requestNote
	next  int // where the next one goes, once the ring is full
}

// requestNote is one request. It holds no path and no header field: people put keys into all sorts of places.
type requestNote struct {
	at       int64 // when it came, by the meter
	took     int64 // nanoseconds
	received uint32
	sent     uint32
	key      string // id of the key; it is shared with the grant
	fault    *fault
	id       [requestIDLength - len("req_")]byte
	stream   [22]byte // the id in the path, if it may be one
	status   uint16
	method   uint8
	route    routeKind
}

// note remembers a call.
func (l *requestLog) note(c *call, took int64) {
	s := &l[c.id[len(c.id)-1]%meter.Shards]
	key := ""
	if c.grant != nil {
		key = c.grant.KeyID()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ring, most := &s.served, servedRing
	switch {
	case c.status >= 500:
		ring, most = &s.failed, failedRing
	case c.status >= 400:
		ring, most = &s.refused, refusedRing
	}
	n := ring.slot(most)
	n.at, n.took, n.received, n.sent = c.window.At, took, uint32(c.received), uint32(min(c.written, 1<<32-1))
	n.key, n.fault, n.status, n.method, n.route = key, c.fault, uint16(c.status), uint8(methodPlace(c.r.Method)), c.route.kind
	copy(n.id[:], c.id[len("req_"):])
	if n.stream[0] = 0; len(c.route.id) == len(n.stream) {
		copy(n.stream[:], c.route.id)
	}
}

// slot is where the next note goes. The ring grows by doubling until it is full, and goes round from then on.
func (r *requestRing) slot(most int) *requestNote {
	if len(r.notes) < most {
		if len(r.notes) == cap(r.notes) {
			grown := make([]requestNote, len(r.notes), min(most, max(firstRing, 2*cap(r.notes))))
			copy(grown, r.notes)
			r.notes = grown
		}
		r.notes = r.notes[:len(r.notes)+1]
		return &r.notes[len(r.notes)-1]
	}
	n := &r.notes[r.next]
	r.next = (r.next + 1) % most
	return n
}

// Request is what became of a request.
type Request struct {
	ID       string
	At       time.Time
	Took     time.Duration
	Method   string // "other" for what is not ours
	Route    string
	Stream   weir.StreamID // of the path; empty: none, or nothing that could be one
	KeyID    string        // empty: without a valid key
	Status   int           // 0: the client went away before the answer
	Code     weir.Code     // of a refusal
	Received int64         // bytes of the body
	Sent     int64         // bytes of the answer's body, but of a subscription
}

func (n *requestNote) request(now time.Time, meterNow int64) Request {
	r := Request{
		ID: "req_" + string(n.id[:]), At: now.Add(time.Duration(n.at - meterNow)), Took: time.Duration(n.took),
		Method: methodNames[n.method], Route: n.route.String(), KeyID: n.key, Status: int(n.status),
		Received: int64(n.received), Sent: int64(n.sent),
	}
	if n.route == noRoute {
		r.Route = other
	}
	if id := string(n.stream[:]); n.stream[0] != 0 && weir.IsID(id) {
		r.Stream = weir.StreamID(id)
	}
	if n.fault != nil {
		r.Code = n.fault.code
	}
	return r
}

// Request finds a request of the last day by its id, unless too many came after it. A subscription is found when it is over.
func (h *Handler) Request(id string) (Request, bool) {
	if len(id) != requestIDLength {
		return Request{}, false
	}
	s := &h.requests[id[len(id)-1]%meter.Shards]
	now, meterNow := time.Now(), meter.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ring := range [...]*requestRing{&s.failed, &s.refused, &s.served} {
		for i := range ring.notes {
			if n := &ring.notes[i]; string(n.id[:]) == id[len("req_"):] && meterNow-n.at < int64(requestLife) {
				return n.request(now, meterNow), true
			}
		}
	}
	return Request{}, false
}

// Refused lists the last requests of the last day that were answered with a 4xx, newest first, at most that many.
func (h *Handler) Refused(most int) []Request {
	return h.last(most, func(s *requestShard) *requestRing { return &s.refused })
}

// Failed lists those that were answered with a 5xx.
func (h *Handler) Failed(most int) []Request {
	return h.last(most, func(s *requestShard) *requestRing { return &s.failed })
}

func (h *Handler) last(most int, ring func(*requestShard) *requestRing) []Request {
	var list []Request
	now, meterNow := time.Now(), meter.Now()
	for i := range h.requests {
		s := &h.requests[i]
		s.mu.Lock()
		r := ring(s)
		n := len(r.notes)
		for j := range min(n, most) { // from the newest on
			if note := &r.notes[(r.next+n-1-j)%n]; meterNow-note.at < int64(requestLife) {
				list = append(list, note.request(now, meterNow))
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b Request) int { return b.At.Compare(a.At) })
	return list[:min(len(list), most)]
}
