package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"weir"
)

// own is the stream and the key of one client, which no other client changes. Other clients may
// subscribe to the stream, or use the key.
type own struct {
	id     weir.StreamID
	exists bool
	sure   bool     // it is certain whether the stream exists
	count  weir.Seq // number of batches in the stream
	exact  bool     // it is certain that the stream has this many batches
	closed bool     // the stream is closed
	told   bool     // it is certain whether the stream is closed
	life   life
	wiped  wiped
	view   *server // the process that last said whether the stream exists
	seen   bool    // whether the stream exists, according to that process

	key  *key      // guarded by model.mu
	user *exchange // the subscription that uses the key or the stream; one at a time
	ids  int       // number of ids that the client has used on several nodes
	held *holding  // what the client manages on several nodes, in place of the fields above; guarded by model.mu
}

func (m *model) own(n int) *own {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owns[n] == nil {
		m.owns[n] = &own{id: weir.StreamID(fmt.Sprintf("own%019d", n)), sure: true}
	}
	return m.owns[n]
}

// manage creates, uses and deletes the client's own stream, and makes and revokes keys.
func (c *client) manage(g *server) {
	o := c.w.model.own(c.n)
	path := "/v1/streams/" + string(o.id)
	if c.rng.IntN(4) == 0 && c.w.model.venture.pursue(c, g) {
		return
	}
	switch c.rng.IntN(16) {
	case 0, 12:
		body, ttl := fmt.Sprintf(`{"name":"own","id":%q}`, o.id), time.Duration(0)
		if c.w.has("ttl") && c.rng.IntN(2) == 0 {
			ttl = time.Duration(1+c.rng.IntN(12)) * time.Second
			body = fmt.Sprintf(`{"name":"own","id":%q,"ttl_seconds":%d}`, o.id, ttl/time.Second)
		}
		x := c.ask(g, "POST", "/v1/streams", []byte(body))
		o.changed(c.w, g, "create", x, 201, 409, true)
		o.lives(c.w, g, x, ttl)
	case 13:
		if o.isSpared(c) {
			return
		}
		x := c.ask(g, "GET", path+"/batches?limit=2", nil)
		o.paged(c, g, x)
	case 1:
		g.deleting.Add(1)
		c.w.model.wipe(&o.wiped, true, nil)
		x := c.ask(g, "DELETE", path, nil)
		c.w.model.wipe(&o.wiped, false, x)
		g.deleting.Add(-1)
		o.changed(c.w, g, "delete", x, 204, 404, false)
		if x != nil && x.status == 204 {
			c.w.mustEnd(o, g, func(x *exchange) bool { return x.held == nil })
		}
	case 2, 3:
		o.look(c.w, g, c.ask(g, "GET", path, nil))
	case 4, 5:
		if o.isSpared(c) {
			return
		}
		o.published(c, g, c.ask(g, "POST", path+"/publish", []byte(`{"events":[1]}`)))
	case 6:
		c.list(g, o)
	case 7, 14, 15:
		if c.w.has("keys") {
			c.manageKeys(g, o)
		}
	case 8:
		if c.w.has("close") {
			c.closeStream(g)
		}
	case 9, 10:
		if c.w.has("change") {
			c.change(g)
		}
	case 11:
		if c.w.has("close") && c.rng.IntN(2) == 0 {
			o.ended(c.w, g, c.ask(g, "POST", path+"/close", nil))
		}
	}
}

// isSpared reports whether the client leaves its stream unused, because another client follows it and it
// is to expire.
func (o *own) isSpared(c *client) bool {
	return o.life.ttl > 0 && c.w.model.isUsed(o) && c.rng.IntN(4) > 0
}

// changed checks the response to a create or delete. The parameter yes is the status for a success,
// and the parameter no is the status if there was nothing to do. The parameter exists says whether
// the stream exists afterwards.
func (o *own) changed(w *world, g *server, what string, x *exchange, yes, no int, exists bool) {
	switch {
	case x == nil || x.status == 503 || x.status == 500:
		o.sure, o.exact, o.told = false, false, false
		if x == nil {
			o.view = nil
		}
		return
	case x.status == yes:
		o.lapse(w, g, x, !exists)
		o.agrees(w, g, what, !exists)
		o.seen = exists
		if o.sure && o.exists == exists {
			w.violation("%s of %s: %d, but the model says that it exists: %v", what, o.id, x.status, o.exists)
		}
		o.count, o.exact, o.closed, o.told = 0, true, false, true
		var made weir.Stream
		if exists && (unmarshal(x.got.Bytes(), &made) != nil || made.Cursor != 0 || made.BytesStored != 0) {
			w.violation("a new stream is not empty: %s", x.got.String())
		}
	case x.status == no:
		o.lapse(w, g, x, exists)
		o.agrees(w, g, what, exists)
		if o.sure && o.exists != exists {
			w.violation("%s of %s: %d, but the model says that it exists: %v", what, o.id, x.status, o.exists)
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

// settle records whether the stream exists. But if that was unknown and a write has failed
// (g.hurt), it stays unknown, because the write may still take effect at the next start.
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
	o.lapse(w, g, x, x.status == 200)
	o.agrees(w, g, "GET", x.status == 200)
	if exists := x.status == 200; o.sure && exists != o.exists {
		w.violation("GET of %s: %d, but the model says that it exists: %v", o.id, x.status, o.exists)
	} else {
		o.settle(g, exists)
	}
	if x.status != 200 {
		return
	}
	var got weir.Stream
	err := unmarshal(x.got.Bytes(), &got)
	if err != nil || got.ID != o.id || o.exact && (got.Cursor != o.count || got.BytesStored != int64(3*o.count)) {
		w.violation("stream %s has %d batches, but its object is %s", o.id, o.count, x.got.String())
	}
	if o.exact || !g.hurt.Load() {
		o.count, o.exact = got.Cursor, true
	}
	o.isClosed(w, g, "GET", got.Closed)
	o.liveFor(w, got.TTLSeconds)
}

// isClosed checks whether the stream is closed. Like settle, it learns nothing while the outcome of
// a failed write is unknown.
func (o *own) isClosed(w *world, g *server, what string, closed bool) {
	if o.told && closed != o.closed {
		w.violation("%s: stream %s is closed: %v, but the model says: %v", what, o.id, closed, o.closed)
	}
	if o.told || !g.hurt.Load() {
		o.closed, o.told = closed, true
	}
}

// ended checks the response to a request that closes the stream.
func (o *own) ended(w *world, g *server, x *exchange) {
	switch {
	case x == nil || x.status == 503 || x.status == 500:
		o.told = o.told && o.closed
		o.uses(w, g, x, false)
	case x.status == 200 || x.status == 404:
		o.uses(w, g, x, false)
		if x.status == 200 {
			o.closed, o.told = true, true
		} else if o.life.ttl > 0 || o.life.vague {
			o.told = o.told && o.closed // the stream may have expired after it was closed, and return after a restart
		}
		o.look(w, g, x)
	default:
		w.violation("close of %s: %d %s", o.id, x.status, x.got.String())
	}
}

// published checks the response to a publish.
func (o *own) published(c *client, g *server, x *exchange) {
	switch {
	case x == nil || x.status == 503 || x.status == 500:
		o.exact = false
		o.uses(c.w, g, x, false)
	case x.status == 404 || x.status == 202 || x.status == 409 && x.code() == weir.StreamClosed:
		o.lapse(c.w, g, x, x.status != 404)
		o.uses(c.w, g, x, x.status == 202)
		o.agrees(c.w, g, "publish", x.status != 404)
		if exists := x.status != 404; o.sure && exists != o.exists {
			c.w.violation("publish to %s: %d, but the model says that it exists: %v", o.id, x.status, o.exists)
		} else if o.settle(g, exists); !exists {
			return
		}
		if o.isClosed(c.w, g, "publish", x.status == 409); x.status == 409 {
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

// paged checks a page of the stream.
func (o *own) paged(c *client, g *server, x *exchange) {
	if x == nil || x.status == 503 {
		o.uses(c.w, g, x, false)
		return
	}
	o.lapse(c.w, g, x, x.status == 200)
	o.uses(c.w, g, x, x.status == 200)
	o.agrees(c.w, g, "page", x.status == 200)
	if o.sure && (x.status == 200) != o.exists || x.status != 200 && x.status != 404 {
		c.w.violation("page of %s: %d %s, but the model says that it exists: %v", o.id, x.status, x.got.String(), o.exists)
	}
	var p page
	if x.status == 200 && (unmarshal(x.got.Bytes(), &p) != nil || o.exact && (p.Cursor != o.count || len(p.Batches) != int(min(o.count, 2)))) {
		c.w.violation("stream %s has %d batches, but its first page is %s", o.id, o.count, x.got.String())
	}
}

// list reads all pages of the list of streams. A stream that exists during the whole listing is
// listed once, and newer streams come first (D27).
func (c *client) list(g *server, o *own) {
	found := map[weir.StreamID]int{}
	query := fmt.Sprintf("?limit=%d", 1+c.rng.IntN(4))
	begun := &exchange{at: time.Now()}
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
		if err := unmarshal(x.got.Bytes(), &page); err != nil {
			c.w.violation("the list of streams is %s: %v", x.got.String(), err)
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
			c.w.violation("the list has stream %s %d times, want once", s.id, found[s.id])
		}
	}
	o.lapse(c.w, g, begun, found[o.id] > 0)
	if n := found[o.id]; o.sure && (n == 1) != o.exists || n > 1 {
		c.w.violation("the list has stream %s %d times, but the model says that it exists: %v", o.id, n, o.exists)
	}
}

// mustEnd records that the subscription which uses the stream or the key of o must end within two
// seconds (D18, D31). The function does tells whether it uses what has ended: it may use an earlier
// stream or key of the same client.
func (w *world) mustEnd(o *own, g *server, does func(*exchange) bool) {
	w.model.mu.Lock()
	defer w.model.mu.Unlock()
	if o.user != nil && does(o.user) && o.user.server == g && o.user.until.IsZero() && (o.user.started || !w.isCluster()) {
		o.user.until = time.Now().Add(2 * time.Second)
	}
}

// patience is how many steps late a request may end while disk calls wait for the scheduler,
// because the request may be waiting for one of these calls. With 20 clients, each call waits for
// some 20 steps, and the page of a long poll takes dozens of calls.
const patience = 1000

// overdue checks the requests that must have ended by now: subscriptions, and long polls. A request
// is not checked while its client waits for the scheduler, because the server may be waiting for
// the client. To save time, overdue looks at the requests only after some steps or some time.
func (w *world) overdue(list []*waiter) {
	w.turns++
	if w.turns%16 > 0 && time.Since(w.checked) < 100*time.Millisecond {
		return
	}
	w.checked = time.Now()
	disk := slices.ContainsFunc(list, func(o *waiter) bool { return o.disk })
	if disk {
		w.written = time.Now()
	}
	var open []*exchange
	for _, g := range w.processes() {
		open = append(open, g.requests()...)
	}
	for _, x := range open {
		why, slow := "", disk
		switch {
		case slices.ContainsFunc(list, func(o *waiter) bool { return o.client == x.client }):
		case w.model.isLate(x):
			why = fmt.Sprintf("a request that had to end at %v goes on", x.until.Sub(w.scheduler.start))
		case w.model.outlived(x):
			slow = slow || time.Since(w.written) < 2*time.Second // the sweeper may have waited for the disk, and takes a second to come again
			why = "a subscription goes on, although its stream has expired or its key is revoked"
		case slices.ContainsFunc(w.model.streams, func(s *stream) bool { return s.sleeps(x) }):
			why = "a long poll still waits, two seconds after its batch was acknowledged"
		case x.sub != nil && x.sub.starves(x):
			why = "a subscription still waits, two seconds after its next batch was acknowledged"
		}
		if why == "" {
			x.overdue = 0
			continue
		}
		if x.overdue = cmp.Or(x.overdue, w.turns); !slow || w.turns-x.overdue >= patience {
			w.violation("client %d: %s", x.client.n, why)
		}
	}
}

func (m *model) isLate(x *exchange) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !x.until.IsZero() && time.Now().After(x.until)
}

// outlived reports whether a request is a subscription that must have ended, because its stream has
// expired or its key is revoked.
func (m *model) outlived(x *exchange) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.owns {
		if o.user == x && m.w.isCluster() && !x.started {
			return false // the node may be waiting for the servers before it begins the response
		}
		if o.user == x {
			return o.outlived(m.w, x) || x.key.mustBeRefused(m.w, x.server, time.Now().Add(-3*time.Second))
		}
	}
	return false
}
