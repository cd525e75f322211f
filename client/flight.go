package client

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"weir"
)

// group is the batch that is being filled.
type group struct {
	body   []byte // the body so far; for a json stream without its end
	events int
	due    bool // send it as soon as there is room
	timer  *time.Timer
	usual  int // size of the previous batch, used as the initial capacity
}

func (g *group) some() bool { return g.events > 0 }

// add appends an event. It returns false if the group is full.
func (g *group) add(event []byte, o *PublisherOptions) bool {
	if g.events > 0 && (g.due || g.events >= o.BatchEvents || len(g.body)+1+len(event)+len(bodyEnd) > o.BatchBytes) {
		return false
	}
	if g.events == 0 {
		g.body = append(make([]byte, 0, max(g.usual, len(bodyStart)+len(event)+len(bodyEnd))), bodyStart...)
	} else {
		g.body = append(g.body, ',')
	}
	g.body = append(g.body, event...)
	g.events++
	g.due = g.events >= o.BatchEvents || len(g.body)+len(bodyEnd) >= o.BatchBytes
	return true
}

// set makes a copy of b the batch. It returns false if the group already has one: raw batches are
// not combined, because their boundaries matter to subscribers.
func (g *group) set(b []byte) bool {
	if g.events > 0 {
		return false
	}
	g.body, g.events, g.due = bytes.Clone(b), 1, true
	return true
}

// flight returns the group as a batch with a sequence.
func (g *group) flight(seq weir.Seq, mode weir.Mode) *flight {
	f := &flight{seq: seq, events: g.events, payload: Payload{contentType: typeBytes, body: g.body}}
	if mode != weir.Raw {
		f.payload = Payload{contentType: typeJSON, body: append(g.body, bodyEnd...)}
	}
	return f
}

func (g *group) stop() {
	if g.timer != nil {
		g.timer.Stop()
	}
}

// flight is a batch with its sequence, until it is acknowledged.
type flight struct {
	seq     weir.Seq
	nth     int    // of the batches of this publisher, from 1
	claim   string // if not empty, an idempotency key to publish with, instead of seq
	payload Payload
	events  int
	state   state
	tries   int
	epoch   int      // of the publisher, at the last attempt
	ack     weir.Ack // fixed once the state is stored

	// The times of the last attempt and, if the service refused it as not next, of the refusal, by
	// the clock of the publisher. A refused batch is sent again behind its predecessor.
	sent, early int
	lowest      bool                    // all batches below it were settled when the last attempt began
	began       time.Time               // when that was
	stop        context.CancelCauseFunc // cancels the attempt
	slow        int                     // how often an attempt was cancelled because later ones were answered
}

type state uint8

const (
	queued  state = iota // waiting to be sent or resent
	flying               // in flight
	stored               // acknowledged
	evicted              // its sequence number was evicted before, and OnEvicted allows that
)

// array returns the array of events of a json batch.
func (f *flight) array() []byte {
	return f.payload.body[len(bodyStart)-1 : len(f.payload.body)-1]
}

func (f *flight) unacknowledged(mode weir.Mode) Unacknowledged {
	u := Unacknowledged{Seq: f.seq, Sent: f.tries > 0}
	if mode == weir.Raw {
		u.Data = f.payload.body
	} else {
		u.Events = elements(f.array())
	}
	return u
}

// holds reports whether a batch that was read back is this one. White space between tokens does not
// count.
func (f *flight) holds(b Batch) bool {
	if f.payload.contentType == typeBytes {
		return bytes.Equal(f.payload.body, b.Data)
	}
	mine := elements(f.array())
	if len(mine) != len(b.Events) {
		return false
	}
	for i := range mine {
		if !bytes.Equal(mine[i], compact(b.Events[i])) {
			return false
		}
	}
	return true
}

func compact(event json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, event) != nil {
		return event
	}
	return b.Bytes()
}

// room reports whether another batch of n bytes may enter the window. While the service has yet to
// choose the first sequence, only one batch may.
func (p *Publisher) room(n int) bool {
	return len(p.window) == 0 || p.claim == "" && len(p.window) < p.o.InFlight && p.bytes+n <= p.o.Buffer
}

// cutDue turns the group into a batch of the window, if it is due and there is room.
func (p *Publisher) cutDue() {
	if !p.group.some() || !p.group.due || !p.room(len(p.group.body)) {
		return
	}
	p.group.stop()
	f := p.group.flight(p.next, p.mode)
	f.claim = p.claim
	p.group = group{timer: p.group.timer, usual: len(f.payload.body)}
	p.window = append(p.window, f)
	if len(p.window) == 1 {
		p.since = time.Now()
		p.schedule()
	}
	p.bytes += len(f.payload.body)
	p.next++
	p.cut++
	f.nth = p.cut
	p.changed.Broadcast()
}

// linger starts the timer that makes the group due, when the group gets its first event.
func (p *Publisher) linger() {
	if p.o.Linger < 0 || p.group.due || p.group.events != 1 {
		return
	}
	if p.group.timer != nil {
		p.group.timer.Reset(p.o.Linger)
		return
	}
	p.group.timer = time.AfterFunc(p.o.Linger, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		// If the timer fires late, it may find the next group. That one is sent early, which is
		// harmless.
		p.group.due = p.group.some()
		p.cutDue()
	})
}
