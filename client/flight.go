package client

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"weir"
)

// group is the batch that a publisher is filling with events.
type group struct {
	body   []byte // the request body so far; for a json stream still without the closing brackets
	events int
	due    bool // send the group as soon as Publisher.window has room
	timer  *time.Timer
	usual  int // size of the previous batch, used as the initial capacity of body
}

func (g *group) some() bool { return g.events > 0 }

// add appends an event to the group. It returns false if the group is full.
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

// set fills the group with a copy of b. It returns false if the group already has
// content: raw batches are not combined, because their boundaries matter to subscribers.
func (g *group) set(b []byte) bool {
	if g.events > 0 {
		return false
	}
	g.body, g.events, g.due = bytes.Clone(b), 1, true
	return true
}

// flight turns the group into a batch with a sequence.
func (g *group) flight(seq weir.Seq, mode weir.Mode) *flight {
	f := &flight{seq: seq, payload: Payload{contentType: typeBytes, body: g.body}}
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

// flight is a batch that has a sequence and is not acknowledged yet. It may still be waiting to be
// sent.
type flight struct {
	seq     weir.Seq
	nth     int    // position among the batches of this publisher, from 1
	claim   string // if not empty, the batch is published with this idempotency key, and the service chooses its sequence
	payload Payload
	state   state
	tries   int
	epoch   int      // value of Publisher.epoch at the last attempt
	ack     weir.Ack // the acknowledgement; set when state becomes stored

	// The field sent is the value of Publisher.clock at the last attempt. The field early is its
	// value when the service last refused the batch because the predecessor was not stored, and 0
	// if it never did. A batch that was refused in this way is sent again after its predecessor.
	sent, early int
	unsure      bool                    // the batch may already be stored: an attempt ended, and no response says that it stored nothing
	lowest      bool                    // all batches below this one were acknowledged and reported when the last attempt began
	began       time.Time               // time at which the last attempt began
	stop        context.CancelCauseFunc // cancels the attempt
	progress    *progress               // progress of the attempt; nil if none is under way
	slow        int                     // how often an attempt was cancelled because later batches got a response first
}

type state uint8

const (
	queued  state = iota // waiting to be sent or resent
	flying               // in flight
	stored               // acknowledged
	evicted              // the stream evicted this sequence number earlier, and OnEvicted is set, so this is no error
)

// array returns the array of events of a json batch.
func (f *flight) array() []byte {
	return f.payload.body[len(bodyStart)-1 : len(f.payload.body)-1]
}

func (f *flight) unacknowledged(mode weir.Mode) Unacknowledged {
	u := Unacknowledged{Seq: f.seq, Key: f.claim, Sent: f.tries > 0}
	if mode == weir.Raw {
		u.Data = f.payload.body
	} else {
		u.Events = elements(f.array())
	}
	return u
}

// holds reports whether b, which was read back from the service, has the content of this batch.
// White space between tokens does not count.
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

// room reports whether another batch of n bytes may enter the window of unacknowledged batches. As
// long as the service has yet to choose the sequence of the first batch, no other batch may enter.
func (p *Publisher) room(n int) bool {
	return len(p.window) == 0 || p.claim == "" && len(p.window) < p.o.InFlight && p.bytes+n <= p.o.Buffer
}

// cutDue moves the group to the window as a batch, if the group is due and the window has room.
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
	p.notify()
}

// linger is called after an event was added to the group. After the first event, it starts the
// timer that makes the group due.
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
		// If the timer fires late, its group may already have been sent, and the next group may
		// have taken its place. That next group is then sent early, which is harmless.
		p.group.due = p.group.some()
		p.cutDue()
	})
}
