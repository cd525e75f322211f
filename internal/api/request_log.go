package api

import (
	"net/netip"
	"sync"
	"time"

	"weir"
	"weir/internal/meter"
)

// requestLog holds the most recent requests, so that an operator can look up a request by its id.
// It consists of shards, each with its own lock, so that concurrent requests rarely wait for each
// other. A shard holds requests in rings, which overwrite the oldest request when they are full.
// Refused, failed and slow requests, and those with hints, are in rings of their own, because the
// many other requests would overwrite them. Every request is recorded, even under load; the ring of
// successful requests then covers less time.
type requestLog [meter.Shards]requestShard

type requestShard struct {
	mu      sync.Mutex
	served  requestRing
	marked  requestRing // requests that were neither refused nor failed, but took long or have hints
	refused requestRing // requests answered with a 4xx
	failed  requestRing // requests answered with a 5xx
	_       meter.Pad
}

// The maximum number of requests in each ring of a shard. A ring starts with room for firstRing
// requests and grows as requests arrive.
const (
	servedRing  = 8 << 10
	markedRing  = 1 << 10
	refusedRing = 4 << 10
	failedRing  = 1 << 10
	firstRing   = 64
)

// requestLife is the time after which a request is no longer shown. A full ring may overwrite the
// request earlier.
const requestLife = 24 * time.Hour

type requestRing struct {
	notes []requestNote
	next  int // index of the oldest note, which is overwritten next; 0 until the ring is full
}

// requestNote is one request. It contains neither the path nor header fields, because clients
// sometimes put API keys there.
type requestNote struct {
	at       int64 // when the request arrived, by the clock of meter.Now
	took     int64 // duration in nanoseconds
	received uint32
	sent     uint32
	key      string // id of the API key; shares its memory with the grant
	from     string // address of the client, as call.source returns it
	message  string // message of the error that the request was refused with; empty for a success
	hints    string // probable mistakes in the body; empty if there are none
	fault    *fault
	id       [requestIDLength - len("req_")]byte
	stream   [22]byte // the stream id in the path; the first byte is 0 if that id is not 22 bytes long
	status   uint16
	method   uint8
	route    routeKind
}

// note adds a call to the log. The parameter took is its duration in nanoseconds.
func (l *requestLog) note(c *call, took int64) {
	s := &l[c.id[len(c.id)-1]%meter.Shards]
	key := ""
	if c.grant != nil {
		key = c.grant.KeyID()
	}
	from := c.source()
	s.mu.Lock()
	defer s.mu.Unlock()
	ring, most := &s.served, servedRing
	switch {
	case c.status >= 500:
		ring, most = &s.failed, failedRing
	case c.status >= 400:
		ring, most = &s.refused, refusedRing
	case c.isSlow(took) || c.hints != "":
		ring, most = &s.marked, markedRing
	}
	n := ring.slot(most)
	n.at, n.took, n.received, n.sent = c.window.At, took, uint32(c.received), uint32(min(c.written, 1<<32-1))
	n.from, n.message, n.hints = from, c.message, c.hints
	n.key, n.fault, n.status, n.method, n.route = key, c.fault, uint16(c.status), uint8(methodPlace(c.r.Method)), c.route.kind
	copy(n.id[:], c.id[len("req_"):])
	if n.stream[0] = 0; len(c.route.id) == len(n.stream) {
		copy(n.stream[:], c.route.id)
	}
}

// slot returns the note to write next. The ring doubles in size until its length is maxNotes. From
// then on slot returns the oldest note, which the caller overwrites.
func (r *requestRing) slot(maxNotes int) *requestNote {
	if len(r.notes) < maxNotes {
		if len(r.notes) == cap(r.notes) {
			grown := make([]requestNote, len(r.notes), min(maxNotes, max(firstRing, 2*cap(r.notes))))
			copy(grown, r.notes)
			r.notes = grown
		}
		r.notes = r.notes[:len(r.notes)+1]
		return &r.notes[len(r.notes)-1]
	}
	n := &r.notes[r.next]
	r.next = (r.next + 1) % maxNotes
	return n
}

// Request is the outcome of a request.
type Request struct {
	ID       string
	At       time.Time // when the request arrived
	Took     time.Duration
	Method   string        // "other" if the API does not use this method
	Route    string        // "other" if the API does not have this route
	Stream   weir.StreamID // the stream id in the path; empty if there is none or it is malformed
	KeyID    string        // empty if the request had no valid key
	Status   int           // 0 if the client disconnected before the response
	Code     weir.Code     // the error code; empty for a success
	Message  string        // what went wrong; empty for a success. For an internal error, this is more than the client was told
	Hints    string        // sentences about members of the body that were ignored and are probably mistakes
	From     netip.Addr    // address of the client
	Received int64         // bytes of the request body
	Sent     int64         // bytes of the response body; 0 for a subscription
}

func (n *requestNote) request(now time.Time, meterNow int64) Request {
	r := Request{
		ID: "req_" + string(n.id[:]), At: now.Add(time.Duration(n.at - meterNow)), Took: time.Duration(n.took),
		Method: methodNames[n.method], Route: n.route.String(), KeyID: n.key, Status: int(n.status),
		Received: int64(n.received), Sent: int64(n.sent), Message: n.message, Hints: n.hints, From: addressOf(n.from),
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

// Request looks up a request of the last 24 hours by its id. It does not find a request that newer
// requests have overwritten, nor a subscription that is still open.
func (h *Handler) Request(id string) (Request, bool) {
	if len(id) != requestIDLength {
		return Request{}, false
	}
	s := &h.requests[id[len(id)-1]%meter.Shards]
	now, meterNow := time.Now(), meter.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ring := range [...]*requestRing{&s.failed, &s.refused, &s.marked, &s.served} {
		for i := range ring.notes {
			if n := &ring.notes[i]; string(n.id[:]) == id[len("req_"):] && meterNow-n.at < int64(requestLife) {
				return n.request(now, meterNow), true
			}
		}
	}
	return Request{}, false
}
