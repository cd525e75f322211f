package sim

import (
	"encoding/json"
	"fmt"
	"time"

	"weir"
	"weir/internal/access"
)

// own is the stream and the key of one client, which no other client changes. Other clients may
// subscribe to the stream, or use the key.
type own struct {
	id     weir.StreamID
	exists bool
	sure   bool     // exists is certain
	count  weir.Seq // number of batches in the stream
	exact  bool     // count is certain
	view   *server  // the process that last told whether the stream exists
	seen   bool     // whether the stream exists according to view

	key, secret  string
	valid, known bool
	user         *exchange // the subscription that uses the key or the stream; one at a time
}

func (m *model) own(n int) *own {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owns[n] == nil {
		m.owns[n] = &own{id: weir.StreamID(fmt.Sprintf("own%019d", n)), sure: true}
	}
	return m.owns[n]
}

// manage creates, uses and deletes a stream of its own, and makes and revokes keys.
func (c *client) manage(g *server) {
	o := c.w.model.own(c.n)
	path := "/v1/streams/" + string(o.id)
	switch c.rng.IntN(8) {
	case 0:
		x := c.ask(g, "POST", "/v1/streams", []byte(fmt.Sprintf(`{"name":"own","id":%q}`, o.id)))
		o.changed(c.w, g, "create", x, 201, 409, true)
	case 1:
		g.deleting.Add(1)
		x := c.ask(g, "DELETE", path, nil)
		g.deleting.Add(-1)
		o.changed(c.w, g, "delete", x, 204, 404, false)
		if x != nil && x.status == 204 {
			c.w.mustEnd(o, g)
		}
	case 2, 3:
		o.look(c.w, g, c.ask(g, "GET", path, nil))
	case 4, 5:
		o.published(c, g, c.ask(g, "POST", path+"/publish", []byte(`{"events":[1]}`)))
	case 6:
		c.list(g, o)
	case 7:
		c.keys(g, o)
	}
}

// changed checks the response to a create or delete. The parameter yes is the status of a success,
// and no is the status if there was nothing to do.
func (o *own) changed(w *world, g *server, what string, x *exchange, yes, no int, exists bool) {
	switch {
	case x == nil || x.status == 503 || x.status == 500:
		o.sure, o.exact = false, false
		if x == nil {
			o.view = nil
		}
		return
	case x.status == yes:
		o.agrees(w, g, what, !exists)
		o.seen = exists
		if o.sure && o.exists == exists {
			w.violation("%s of %s: %d, but exists is %v", what, o.id, x.status, o.exists)
		}
		o.count, o.exact = 0, true
		var made weir.Stream
		if exists && (json.Unmarshal(x.got.Bytes(), &made) != nil || made.Cursor != 0 || made.BytesStored != 0) {
			w.violation("a new stream is not empty: %s", x.got.String())
		}
	case x.status == no:
		o.agrees(w, g, what, exists)
		if o.sure && o.exists != exists {
			w.violation("%s of %s: %d, but exists is %v", what, o.id, x.status, o.exists)
		}
	default:
		w.violation("%s of %s: %d %s", what, o.id, x.status, x.got.String())
	}
	o.settle(g, exists)
}

// agrees checks that a process does not contradict its earlier responses, even if the outcome of a
// change is unknown because its write failed.
func (o *own) agrees(w *world, g *server, what string, exists bool) {
	if o.view == g && o.seen != exists {
		w.violation("%s: the stream %s exists: %v, but the same server said %v", what, o.id, exists, o.seen)
	}
	o.view, o.seen = g, exists
}

// settle records whether the stream exists. If a write failed before, its outcome stays unknown
// until the next start.
func (o *own) settle(g *server, exists bool) {
	if o.sure || !g.hurt.Load() {
		o.exists, o.sure = exists, true
	}
}

// look checks the stream object.
func (o *own) look(w *world, g *server, x *exchange) {
	if x == nil || x.status == 503 {
		return
	}
	o.agrees(w, g, "GET", x.status == 200)
	if exists := x.status == 200; o.sure && exists != o.exists {
		w.violation("GET of %s: %d, but exists is %v", o.id, x.status, o.exists)
	} else {
		o.settle(g, exists)
	}
	if x.status != 200 {
		return
	}
	var got weir.Stream
	err := json.Unmarshal(x.got.Bytes(), &got)
	if err != nil || got.ID != o.id || o.exact && (got.Cursor != o.count || got.BytesStored != int64(3*o.count)) {
		w.violation("stream %s has %d batches, but its object is %s", o.id, o.count, x.got.String())
	}
	if o.exact || !g.hurt.Load() {
		o.count, o.exact = got.Cursor, true
	}
}

// published checks the response to a publish.
func (o *own) published(c *client, g *server, x *exchange) {
	switch {
	case x == nil || x.status == 503 || x.status == 500:
		o.exact = false
	case x.status == 404 || x.status == 202:
		o.agrees(c.w, g, "publish", x.status == 202)
		if exists := x.status == 202; o.sure && exists != o.exists {
			c.w.violation("publish to %s: %d, but exists is %v", o.id, x.status, o.exists)
		} else if o.settle(g, exists); !exists {
			return
		}
		a := c.ackOf(x)
		if o.exact && a.Seq != o.count+1 || a.Cursor != a.Seq {
			c.w.violation("publish to %s with %d batches: %+v", o.id, o.count, a)
		}
		o.count, o.exact = a.Seq, true
	default:
		c.w.violation("publish to %s: %d %s", o.id, x.status, x.got.String())
	}
}

// list reads all pages. A stream that exists during the whole listing is listed once, and newer
// streams come first (D27).
func (c *client) list(g *server, o *own) {
	found := map[weir.StreamID]int{}
	query := fmt.Sprintf("?limit=%d", 1+c.rng.IntN(4))
	for cursor := ""; ; {
		x := c.ask(g, "GET", "/v1/streams"+query+cursor, nil)
		if x == nil || x.status != 200 || g != c.w.current() {
			return
		}
		var page struct {
			Data []weir.Stream
			More bool   `json:"has_more"`
			Next string `json:"next_cursor"`
		}
		if err := json.Unmarshal(x.got.Bytes(), &page); err != nil {
			c.w.violation("list %s: %v", x.got.String(), err)
			return
		}
		for _, s := range page.Data {
			found[s.ID]++
		}
		if cursor = "&cursor=" + page.Next; !page.More {
			break
		}
	}
	for _, s := range c.w.model.streams {
		if found[s.id] != 1 {
			c.w.violation("the list has stream %s %d times", s.id, found[s.id])
		}
	}
	if n := found[o.id]; o.sure && (n == 1) != o.exists || n > 1 {
		c.w.violation("the list has stream %s %d times, but exists is %v", o.id, n, o.exists)
	}
}

// keys makes, uses or revokes a key.
func (c *client) keys(g *server, o *own) {
	ctx, x := g.opened(c)
	defer g.closed(x)
	if c.step("asks for keys") != nil {
		x.leave()
	}
	switch p, ok := g.access.ProjectNamed("sim"); {
	case !ok:
	case o.key == "":
		if k, made, err := g.access.CreateKey(ctx, access.KeySpec{Project: p.ID, Kind: access.Live}); err == nil && !g.dead.Load() {
			o.key, o.secret, o.valid, o.known = k.ID, made.Reveal(), true, true
		}
	case o.valid && c.rng.IntN(2) == 0:
		_, err := g.access.Revoke(ctx, o.key)
		if o.known = err == nil && !g.dead.Load(); o.known {
			c.w.note("client %d has revoked its key", c.n)
			c.w.mustEnd(o, g)
		}
		o.valid = false
	default:
		_, err := g.access.Authenticate([]string{"Bearer " + o.secret})
		if o.known && (err == nil) != o.valid && !g.dead.Load() {
			c.w.violation("key %s: valid %v, but the server says %v", o.key, o.valid, err)
		}
		if !o.valid && c.rng.IntN(4) == 0 {
			o.key, o.secret = "", ""
		}
	}
}

// mustEnd records that the subscription which uses the stream or the key of o must end within two
// seconds (D18, D31).
func (w *world) mustEnd(o *own, g *server) {
	w.model.mu.Lock()
	defer w.model.mu.Unlock()
	if o.user != nil && o.user.server == g && o.user.until.IsZero() {
		o.user.until = time.Now().Add(2 * time.Second)
	}
}

// overdue checks the subscriptions that must have ended by now. Subscriptions are not checked while
// a disk call waits, because they may wait for it, nor while their client takes no data.
func (w *world) overdue(list []*waiter) {
	w.model.mu.Lock()
	defer w.model.mu.Unlock()
	for n := range w.config.clients {
		o := w.model.owns[n]
		if o == nil || o.user == nil || o.user.until.IsZero() || !time.Now().After(o.user.until) || o.user.server != w.owner {
			continue
		}
		blocked := false
		for _, waiting := range list {
			blocked = blocked || waiting.disk || waiting.client == o.user.client
		}
		if !blocked {
			w.violation("client %d still has its subscription, %v after the key was revoked or the stream deleted",
				o.user.client.n, time.Since(o.user.until)+2*time.Second)
		}
	}
}

// follow subscribes to the stream of another client, with that client's key.
func (c *client) follow(g *server, o *own) {
	m := c.w.model
	m.mu.Lock()
	if o.user != nil || o.secret == "" {
		m.mu.Unlock()
		return
	}
	x := &exchange{}
	o.user = x
	secret := o.secret
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		o.user = nil
	}()
	var seen weir.Seq
	c.subscribeTo(g, x, o.id, secret, "0", "", func(frame string) {
		var d struct{ Seq weir.Seq }
		if data, ok := field(frame, "data"); ok && json.Unmarshal([]byte(data), &d) == nil && d.Seq > 0 {
			if d.Seq != seen+1 && seen > 0 {
				c.w.violation("stream %s: %d follows %d", o.id, d.Seq, seen)
			}
			seen = d.Seq
		}
	})
}
