package sim

import (
	"fmt"
	"time"

	"weir"
)

// holding is a stream that one client manages on all nodes of a cluster. Other clients may follow
// it. If the outcome of a change is unknown, the change may still take effect much later, so the
// client goes on with a new id. Guarded by model.mu, unless the client that manages it reads it.
type holding struct {
	id      weir.StreamID
	exists  bool
	changed time.Time // when the last change was acknowledged
	on      *server   // the process that acknowledged the last change
	count   weir.Seq  // number of batches in the stream
	vague   bool      // the outcome of a change is unknown
	wiped   wiped
	again   time.Time // when the stream was created again; zero: it was created once

	ttl      time.Duration // time to live after the last use (D37); 0: the stream does not expire
	from     time.Time     // the last use was at this time or later
	to       time.Time     // the last use was at this time or earlier
	starting int           // number of requests that use the stream now
}

// leaseFor is how long a node may go on without proof that it knows all keys and streams (D18).
const leaseFor = 15 * time.Second

// stock returns the stream that the client manages.
func (o *own) stock(c *client) *holding {
	c.w.model.mu.Lock()
	defer c.w.model.mu.Unlock()
	if o.held == nil || o.held.vague {
		o.nextHolding(c.n)
	}
	return o.held
}

// nextHolding makes the client manage a stream with an id that was not used before.
func (o *own) nextHolding(n int) {
	o.ids++
	o.id = weir.StreamID(fmt.Sprintf("own%04d%015d", n, o.ids))
	o.held = &holding{id: o.id}
}

// set records an acknowledged change.
func (h *holding) set(w *world, g *server, exists bool) {
	w.model.mu.Lock()
	defer w.model.mu.Unlock()
	if exists && h.on != nil {
		h.again = time.Now()
	}
	h.exists, h.changed, h.on, h.count = exists, time.Now(), g, 0
}

// mayBeOld reports whether the process may not know the last change yet, which another process
// acknowledged. The parameter at is when the request began.
func (h *holding) mayBeOld(g *server, at time.Time) bool {
	return h.on != g && at.Sub(h.changed) <= leaseFor
}

// mayHaveExpired reports whether the lifetime of the stream may have ended. Only batches count as
// uses: a read leaves no trace if the store is slow.
func (h *holding) mayHaveExpired(w *world) bool {
	return h.ttl > 0 && time.Since(h.from)+w.swing(h.from)+millis >= h.ttl
}

// mustHaveExpired reports whether the lifetime of the stream must have ended at the given time. In a
// cluster, a stream expires late, because other nodes may have used it.
func (h *holding) mustHaveExpired(w *world, at time.Time) bool {
	late := min(max(h.ttl/8, 5*time.Second), h.ttl/2) + 2*time.Second
	return !w.isUnsure() && h.exists && h.ttl > 0 && h.starting == 0 && at.Sub(h.to)-w.swing(h.from)-millis >= h.ttl+late
}

// millis allows for the precision of the times that the service stores.
const millis = 5 * time.Millisecond

// manageNodes creates, uses and deletes streams, and makes, uses and revokes keys, each time on any
// node.
func (c *client) manageNodes(g *server) {
	o := c.w.model.own(c.n)
	h := o.stock(c)
	if c.rng.IntN(4) == 0 && c.w.model.venture.pursue(c, g) {
		return
	}
	if c.rng.IntN(3) == 0 && c.w.has("keys") {
		c.manageKeys(g, o)
		return
	}
	path := "/v1/streams/" + string(h.id)
	switch action := c.rng.IntN(8); {
	case action < 2 || !h.exists && action < 4:
		h.create(c, g)
	case action == 2:
		c.w.model.wipe(&h.wiped, true, nil)
		x := c.ask(g, "DELETE", path, nil)
		c.w.model.wipe(&h.wiped, false, x)
		if h.answered(c, g, x, 204, 404); x != nil && x.status == 204 {
			c.w.mustEnd(o, g, func(x *exchange) bool { return x.held == h })
		}
	case action < 6:
		h.looked(c, g, c.ask(g, "GET", path, nil))
	case h.ttl > 0 && c.w.model.isUsed(o) && c.rng.IntN(4) > 0: // most streams that are followed are left to expire
	default:
		h.uses(c.w, 1)
		x := c.ask(g, "POST", path+"/publish", []byte(`{"events":[1]}`))
		h.uses(c.w, -1)
		h.stored(c, g, x)
	}
}

// uses records that a request which uses the stream begins or ends.
func (h *holding) uses(w *world, n int) {
	w.model.mu.Lock()
	defer w.model.mu.Unlock()
	h.starting += n
	h.to = time.Now()
}

// create creates the stream, in most cases with a short time to live.
func (h *holding) create(c *client, g *server) {
	body, ttl := fmt.Sprintf(`{"name":"own","id":%q}`, h.id), time.Duration(0)
	if c.w.has("ttl") && c.rng.IntN(3) > 0 {
		ttl = time.Duration(1+c.rng.IntN(1<<c.rng.IntN(4))) * time.Second
		body = fmt.Sprintf(`{"name":"own","id":%q,"ttl_seconds":%d}`, h.id, ttl/time.Second)
	}
	x := c.ask(g, "POST", "/v1/streams", []byte(body))
	if h.answered(c, g, x, 201, 409); x == nil || x.status != 201 {
		return
	}
	c.w.model.mu.Lock()
	defer c.w.model.mu.Unlock()
	h.ttl, h.from, h.to, h.wiped = ttl, x.at, time.Now(), wiped{}
}

// isLost records that the outcome of a change is unknown, if there is no response that tells it.
func (h *holding) isLost(w *world, x *exchange) bool {
	w.model.mu.Lock()
	defer w.model.mu.Unlock()
	h.vague = h.vague || x == nil || x.status >= 500
	return h.vague
}

// answered checks the response to a create or a delete. The status yes says that the stream was
// created or deleted, and the status no says that there was nothing to do.
func (h *holding) answered(c *client, g *server, x *exchange, yes, no int) {
	if h.isLost(c.w, x) {
		return
	}
	h.lapses(c.w, g, x, x.status == 201 || x.status == 404)
	creates := yes == 201
	switch {
	case x.status == yes && h.exists == creates,
		x.status == no && creates != h.exists,
		x.status != yes && x.status != no:
		c.w.violation("stream %s exists: %v since %v, but a change on any node was answered with %s", h.id, h.exists, h.changed.Sub(c.w.scheduler.start), x)
	case x.status == yes:
		h.set(c.w, g, creates)
	}
}

// lapses updates the model if a response shows that the stream has expired. The parameter gone says
// whether the stream did not exist according to the response. Once a client was told so, the stream
// is deleted, and stays so.
func (h *holding) lapses(w *world, g *server, x *exchange, gone bool) {
	switch {
	case !h.exists || h.ttl == 0:
	case gone && h.mayHaveExpired(w):
		h.set(w, g, false)
	case !gone && h.mustHaveExpired(w, x.at):
		w.violation("stream %s exists, but was last used %v before, with a time to live of %v", h.id, x.at.Sub(h.to), h.ttl)
	}
}

// looked checks the stream object.
func (h *holding) looked(c *client, g *server, x *exchange) {
	if x == nil || x.status == 503 {
		return
	}
	h.lapses(c.w, g, x, x.status == 404)
	var got weir.Stream
	switch {
	case x.status == 404 && !h.exists, x.status == 200 && !h.exists && h.mayBeOld(g, x.at):
	case x.status != 200 || !h.exists:
		c.w.violation("stream %s exists: %v since %v, but GET was answered with %s", h.id, h.exists, h.changed.Sub(c.w.scheduler.start), x)
	case unmarshal(x.got.Bytes(), &got) != nil || got.Cursor != h.count || got.BytesStored != int64(3*h.count) || got.TTLSeconds != int64(h.ttl/time.Second):
		c.w.violation("stream %s has %d batches and a time to live of %v, but its object is %s", h.id, h.count, h.ttl, x)
	}
}

// stored checks the response to a publish. No node may store a batch in a deleted stream.
func (h *holding) stored(c *client, g *server, x *exchange) {
	if h.isLost(c.w, x) {
		return
	}
	h.lapses(c.w, g, x, x.status == 404)
	a := c.ackOf(x)
	switch {
	case x.status == 404 && !h.exists:
	case x.status != 202 || !h.exists || a.Seq != h.count+1 || a.Cursor != a.Seq:
		c.w.violation("stream %s exists: %v and has %d batches, but a publish was answered with %s", h.id, h.exists, h.count, x)
	default:
		c.w.model.mu.Lock()
		defer c.w.model.mu.Unlock()
		h.count++
		h.from = x.at
	}
}
