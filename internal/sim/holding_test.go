package sim

import (
	"fmt"
	"time"

	"weir"
)

// holding is a stream or a key that one client manages on all nodes of a cluster. If the outcome of
// a change is unknown, the change may still take effect much later, so the client goes on with a new
// id.
type holding struct {
	id      string
	secret  string // of a key
	exists  bool
	changed time.Time // when the last change was acknowledged
	on      *server   // the process that acknowledged the last change
	count   weir.Seq  // number of batches in a stream
}

// leaseFor is how long a node may go on without proof that it knows all keys and streams (D18).
const leaseFor = 15 * time.Second

// set records an acknowledged change.
func (h *holding) set(g *server, exists bool) {
	h.exists, h.changed, h.on, h.count = exists, time.Now(), g, 0
}

// mayBeOld reports whether the process may not know the last change yet, which another process
// acknowledged. The parameter at is when the request began.
func (h *holding) mayBeOld(g *server, at time.Time) bool {
	return h.on != g && at.Sub(h.changed) <= leaseFor
}

// manageNodes creates, uses and deletes streams, and makes, uses and revokes keys, each time on any
// node.
func (c *client) manageNodes(g *server) {
	if c.rng.IntN(3) == 0 && c.w.has("keys") {
		c.holdKey(g)
		return
	}
	if c.stock == nil {
		c.held++
		c.stock = &holding{id: fmt.Sprintf("own%04d%015d", c.n, c.held)}
	}
	h := c.stock
	path := "/v1/streams/" + h.id
	action := c.rng.IntN(8)
	var x *exchange
	switch {
	case action < 2:
		x = c.ask(g, "POST", "/v1/streams", fmt.Appendf(nil, `{"name":"own","id":%q}`, h.id))
	case action == 2:
		x = c.ask(g, "DELETE", path, nil)
	case action < 6:
		x = c.ask(g, "GET", path, nil)
	default:
		x = c.ask(g, "POST", path+"/publish", []byte(`{"events":[1]}`))
	}
	switch {
	case action >= 3 && action < 6:
		h.looked(c, g, x)
	case x == nil || x.status >= 500:
		c.stock = nil
	case action < 2:
		h.answered(c, g, x, 201, 409)
	case action == 2:
		h.answered(c, g, x, 204, 404)
	default:
		h.stored(c, g, x)
	}
}

// answered checks the response to a create or a delete. The status yes says that the stream was
// created or deleted, and the status no says that there was nothing to do.
func (h *holding) answered(c *client, g *server, x *exchange, yes, no int) {
	creates := yes == 201
	switch {
	case x.status == yes && h.exists == creates,
		x.status == no && creates != h.exists,
		x.status != yes && x.status != no:
		c.w.violation("stream %s exists: %v since %v, but a change on any node was answered with %s", h.id, h.exists, h.changed.Sub(c.w.scheduler.start), x)
	case x.status == yes:
		h.set(g, creates)
	}
}

// looked checks the stream object.
func (h *holding) looked(c *client, g *server, x *exchange) {
	var got weir.Stream
	switch {
	case x == nil || x.status == 503:
	case x.status == 404 && !h.exists, x.status == 200 && !h.exists && h.mayBeOld(g, x.at):
	case x.status != 200 || !h.exists:
		c.w.violation("stream %s exists: %v since %v, but GET was answered with %s", h.id, h.exists, h.changed.Sub(c.w.scheduler.start), x)
	case unmarshal(x.got.Bytes(), &got) != nil || got.Cursor != h.count || got.BytesStored != int64(3*h.count):
		c.w.violation("stream %s has %d batches, but its object is %s", h.id, h.count, x)
	}
}

// stored checks the response to a publish. No node may store a batch in a deleted stream.
func (h *holding) stored(c *client, g *server, x *exchange) {
	a := c.ackOf(x)
	switch {
	case x.status == 404 && !h.exists:
	case x.status != 202 || !h.exists || a.Seq != h.count+1 || a.Cursor != a.Seq:
		c.w.violation("stream %s exists: %v and has %d batches, but a publish was answered with %s", h.id, h.exists, h.count, x)
	default:
		h.count++
	}
}

// holdKey makes, uses or revokes a key.
func (c *client) holdKey(g *server) {
	h := c.key
	if h == nil || !h.exists && time.Since(h.changed) > 2*leaseFor {
		x := c.manages(g, "POST", "/manage/v1/keys", []byte(`{"project":"`+string(c.w.project)+`"}`))
		var made struct{ ID, Key string }
		if x != nil && unmarshal(x.got.Bytes(), &made) == nil {
			c.key = &holding{id: made.ID, secret: made.Key}
			c.key.set(g, true)
		}
		return
	}
	if h.exists && c.rng.IntN(4) == 0 {
		if c.manages(g, "POST", "/manage/v1/keys/"+h.id+"/revoke", nil) == nil {
			c.key = nil
			return
		}
		h.set(g, false)
		return
	}
	x := c.send(g, &exchange{judged: true}, "GET", "/v1/streams?limit=1", nil, "Authorization", "Bearer "+h.secret)
	switch {
	case x == nil || x.status == 503:
	case x.status == 401 && !h.exists, x.status == 200 && (h.exists || h.mayBeOld(g, x.at)):
	default:
		c.w.violation("key %s is valid: %v since %v, but was answered with %s", h.id, h.exists, h.changed.Sub(c.w.scheduler.start), x)
	}
}
