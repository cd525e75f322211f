package sim

import (
	"slices"
	"strings"
	"time"

	"weir"
)

// follow subscribes to the stream of another client, with that client's key, unless another client
// does so already. It returns false if it did nothing.
func (c *client) follow(g *server, o *own) bool {
	m := c.w.model
	x := &exchange{}
	secret, id, ok := m.beginFollow(c, o, x)
	if !ok {
		return false
	}
	defer m.endFollow(o, x)
	c.subscribeTo(g, x, id, secret, "0", "", func(frame string) {
		if o.started(c.w, g, x); strings.Contains(frame, "event: end") {
			m.mayEnd(o, x, frame)
		}
		var d struct{ Seq weir.Seq }
		if data, ok := field(frame, "data"); ok && unmarshal([]byte(data), &d) == nil && d.Seq > 0 {
			m.delivered(x, id, d.Seq)
		}
	})
	return true
}

// beginFollow returns the key and the id of the stream to follow.
func (m *model) beginFollow(c *client, o *own, x *exchange) (secret string, id weir.StreamID, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.user != nil || o.key == nil || o.key.secret == "" || m.w.isCluster() && (o.held == nil || !o.held.exists) {
		return "", "", false
	}
	if o.key.mayBeRefused(m.w) && c.rng.IntN(8) > 0 { // most subscriptions shall begin
		return "", "", false
	}
	if o.user, x.key, x.held = x, o.key, o.held; x.held != nil {
		x.held.starting++
	} else {
		o.life.starting = true
	}
	return o.key.secret, o.id, true
}

// endFollow checks the status of the response, and records the last time at which the subscription
// may have used the stream.
func (m *model) endFollow(o *own, x *exchange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o.user, o.life.starting = nil, false
	o.life.to = time.Now()
	if h := x.held; h != nil && !x.started {
		h.starting--
		h.to = time.Now()
	}
	if x.gone || x.late || x.server.dead.Load() || x.status == 503 {
		return
	}
	switch {
	case x.status == 401 && !x.key.mayBeRefused(m.w):
		m.w.violation("key %s is refused %v after its creation: %s", x.key.id, time.Since(x.key.from), x.key.settings)
	case x.status != 401 && x.key.mustBeRefused(m.w, x.server, x.at):
		m.w.violation("key %s is accepted for a subscription %v after its creation: %s", x.key.id, x.at.Sub(x.key.from), x.key.settings)
	case x.held != nil:
		x.held.answers(m.w, x)
	}
}

// started records that a subscription has started, which is a use of the stream.
func (o *own) started(w *world, g *server, x *exchange) {
	w.model.mu.Lock()
	defer w.model.mu.Unlock()
	if x.started {
		return
	}
	x.started = true
	if h := x.held; h != nil {
		h.starting--
		h.to = time.Now()
	} else if o.life.starting {
		o.life.starting = false
		o.life.used(w, g, x.at, !o.life.vague)
	}
}

// answers checks the status of the response to a subscription whose key is accepted.
func (h *holding) answers(w *world, x *exchange) {
	elsewhere := x.key.stream != "" && x.key.stream != h.id
	switch {
	case h.vague || x.at.Before(h.again.Add(time.Minute)):
	case x.status == 401:
	case x.status == 403 && (x.key.onlyPublishes() || elsewhere):
	case x.status == 404 && (!h.exists || h.wiped.mayBeWiped(w, x) || h.mayHaveExpired(w)):
	case x.status == 200 && !elsewhere && !x.key.onlyPublishes() && (h.exists || !h.changed.Before(x.at) || h.mayBeOld(x.server, x.at)):
	default:
		w.violation("stream %s exists: %v since %v, but a subscription that began at %v was answered with %s", h.id, h.exists, h.changed.Sub(w.scheduler.start), x.at.Sub(w.scheduler.start), x)
	}
}

// ends are the frames with which a subscription to a client's own stream may end.
var ends = []string{
	"event: end\ndata: {\"reason\":\"stream_deleted\"}", "event: end\ndata: {\"reason\":\"stream_closed\"}", "event: end\ndata: {\"reason\":\"expired\"}",
}

// mayEnd checks the last event of a subscription (D16). The subscription may have ended some time
// ago, and the stream may have been created again since.
func (m *model) mayEnd(o *own, x *exchange, frame string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ok := slices.Contains(ends, frame)
	switch h := x.held; {
	case h != nil && (h.vague || x.at.Before(h.again.Add(time.Minute))):
	case h != nil && frame == ends[0]:
		ok = h.wiped.mayBeWiped(m.w, x) || m.w.skewed // nodes whose clocks differ may disagree on whether the stream has expired
	case h != nil && frame == ends[2]:
		ok = h.mayHaveExpired(m.w)
	case h != nil:
		ok = false
	case frame == ends[0]:
		ok = o.wiped.mayBeWiped(m.w, x)
	case frame == ends[2]:
		ok = x.at.Before(o.life.made) || o.life.mayHaveEnded(m.w, x.server)
	}
	if !ok {
		m.w.violation("stream %s: a subscription that began at %v ends with %q", o.id, x.at.Sub(m.w.scheduler.start), frame)
	}
}

// delivered checks a batch that a subscription has received. It must receive all batches.
func (m *model) delivered(x *exchange, id weir.StreamID, seq weir.Seq) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if seq != x.reached+1 {
		m.w.violation("stream %s: batch %d follows batch %d", id, seq, x.reached)
	}
	x.reached = seq
}

// outlived reports whether a subscription to the stream must have ended, because the stream was
// deleted or has expired. Another node may learn of the deletion late (D18).
func (h *holding) outlived(w *world, g *server) bool {
	late := 3 * time.Second
	if h.on != g {
		late += leaseFor
	}
	return !h.vague && (!h.exists && time.Since(h.changed) > late || h.mustHaveExpired(w, time.Now().Add(-3*time.Second-leaseFor)))
}
