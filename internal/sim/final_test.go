package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"weir"
)

// watcher is the number of the client that makes the final checks. This client goes on when the
// other clients stop.
const watcher = 10_000

// finish checks the server, restarts it, and checks it again: what the server had in memory must
// agree with what it reads from the store.
func (w *world) finish(done *atomic.Bool) {
	c := clientOf(w, watcher)
	w.until("the server is up, and has answered all requests", func() bool {
		return w.current() != nil && !slices.ContainsFunc(w.processes(), func(g *server) bool { return !g.loop.isAtRest() })
	})
	go func() {
		defer done.Store(true)
		before := c.inspect()
		for i, s := range w.model.streams {
			if w.faulty == "" {
				c.drain(w.current(), s, &before[i], false)
			}
		}
		w.again.Store(true)
		_ = c.step("asks for a restart")
		for g := w.current(); g == nil || w.again.Load(); g = w.current() {
			_ = c.step("waits")
		}
		after := c.inspect()
		for i, s := range w.model.streams {
			less := before[i].BytesStored < after[i].BytesStored && !w.back
			if before[i].BytesStored = after[i].BytesStored; before[i] != after[i] || less {
				w.violation("stream %s before and after the restart: %+v, %+v", s.id, before[i], after[i])
			}
			if w.faulty == "" {
				c.drain(w.current(), s, &after[i], true)
			}
		}
		if g := w.current(); g.handler.Subscribers() != 0 || g.bodies.Stats().Held != 0 {
			w.violation("%d subscriptions and %d bytes of bodies are left", g.handler.Subscribers(), g.bodies.Stats().Held)
		}
	}()
}

// inspect reads all streams, and uses all keys.
func (c *client) inspect() (objects []weir.Stream) {
	g := c.w.current()
	for _, s := range c.w.model.streams {
		objects = append(objects, s.inspect(c, g))
	}
	for n := range c.w.config.clients {
		if o := c.w.model.owns[n]; o != nil {
			if !c.w.isCluster() {
				o.look(c.w, g, c.ask(g, "GET", "/v1/streams/"+string(o.id), nil))
			}
			if o.key != nil && o.key.id != "" {
				c.useKey(g, o.key)
			}
		}
	}
	c.w.model.checkProducers(c, g)
	c.w.model.checkLibraries(c)
	if v := c.w.model.venture; v != nil {
		for _, k := range v.keys {
			v.use(c, g, k)
		}
	}
	return objects
}

// inspect reads every batch of a stream. The stream object must agree with the batches, and no
// batch may be evicted without need.
func (s *stream) inspect(c *client, g *server) (object weir.Stream) {
	for range 20 { // repeats if a batch expires while the loop reads the stream
		object = c.object(g, s)
		sizes := c.batches(g, s, object.Cursor)
		if s.w.faulty != "" {
			return object
		}
		fault := disagreement(s, &object, sizes)
		if fault == "" {
			return object
		}
		if c.object(g, s) == object {
			s.w.violation("stream %s: %s", s.id, fault)
		}
	}
	return object
}

// disagreement says how a stream object and the sizes of all batches disagree, or returns an empty
// string.
func disagreement(s *stream, object *weir.Stream, sizes map[weir.Seq]int64) string {
	var bytes, charge int64
	lowest, cursor := object.Cursor+1, object.Cursor
	for seq, size := range sizes {
		bytes += size
		charge += s.charge(s.known[seq])
		lowest = min(lowest, seq)
	}
	if bytes != object.BytesStored {
		return fmt.Sprintf("bytes_stored is %d, but the batches have %d bytes", object.BytesStored, bytes)
	}
	if charge > object.MaxBytes && lowest != cursor {
		return fmt.Sprintf("the batches count as %d bytes, but max_bytes is %d", charge, object.MaxBytes)
	}
	if b := s.known[lowest-min(lowest, 1)]; len(s.limits) == 1 && lowest > 0 && b != nil && charge+s.charge(b) <= object.MaxBytes && !s.aged(b) {
		return fmt.Sprintf("batch %d is evicted, although it would fit", lowest-1)
	}
	for _, seq := range s.acked.from(lowest + 1) {
		if s.known[seq] == nil {
			return fmt.Sprintf("batch %d is lost", seq)
		}
	}
	return ""
}

// batches reads all batches of a stream, in pages or one by one, and returns their sizes.
func (c *client) batches(g *server, s *stream, cursor weir.Seq) map[weir.Seq]int64 {
	sizes := map[weir.Seq]int64{}
	for q := (query{start: "oldest", limit: weir.DefaultBatches}); c.paged; q.start = "from" {
		r := c.readPage(g, s, q, s.seen())
		if r == nil || s.w.faulty != "" {
			return sizes
		}
		for seq := range r.got {
			sizes[seq] = s.size(s.known[seq])
		}
		if r.Next > cursor || r.Next == 0 {
			return sizes
		}
		if q.from = r.Next; len(r.got) == 0 {
			<-time.After(50 * time.Millisecond) // a gap is open
		}
	}
	for seq := cursor; s.w.faulty == ""; seq-- {
		if size := c.readBatch(g, s, seq); size >= 0 {
			sizes[seq] = size
		}
		if seq == 0 {
			break
		}
	}
	return sizes
}

func (c *client) object(g *server, s *stream) (object weir.Stream) {
	before := s.seen()
	x := c.ask(g, "GET", "/v1/streams/"+string(s.id), nil)
	if x == nil || x.status != 200 || unmarshal(x.got.Bytes(), &object) != nil {
		c.w.violation("stream %s: the final check got %s instead of the stream object", s.id, x)
		return object
	}
	s.cursorIs(object.Cursor, before)
	s.limitedTo(&object)
	if object.Closed && !s.closing || !object.Closed && s.closed {
		c.w.violation("stream %s: closed is %v; a client has tried to close it: %v; a client knows that it is closed: %v", s.id, object.Closed, s.closing, s.closed)
	}
	return object
}

// remove deletes a stream.
func (c *client) remove(g *server, s *stream) {
	if x := c.ask(g, "DELETE", "/v1/streams/"+string(s.id), nil); x == nil || x.status != 204 {
		c.w.violation("stream %s cannot be deleted: %s", s.id, x)
	}
}

// drain subscribes to a stream and must receive everything, because no gap stays open for long. If
// the parameter remove is true, drain also deletes the stream. The subscription to a stream that is
// closed or deleted must end with an end event, and a deleted stream must not be found again. The
// parameter object is the stream object that the server returned last.
func (c *client) drain(g *server, s *stream, object *weir.Stream, remove bool) {
	s.deleting = remove
	sub := &subscriber{s: s, from: "0", got: map[weir.Seq]bool{}}
	deleter := &client{w: c.w, n: watcher + 1 + s.n, rng: c.rng}
	var deleted bool
	reached := func() {
		done := (sub.pos > object.Cursor || object.BytesStored == 0) && !object.Closed
		if c.stop = done && !remove; done && remove && !deleted {
			deleted = true
			go func() {
				_ = deleter.step("deletes")
				deleter.remove(g, s)
			}()
		}
	}
	c.subscribeTo(g, &exchange{}, s.id, secret, "0", "", func(frame string) {
		if !strings.HasPrefix(frame, ":") {
			sub.receive(frame)
		}
		reached()
	})
	c.stop = false
	if !sub.ended && (remove || object.Closed) {
		c.w.violation("stream %s: the subscription ended without an end event", s.id)
	}
	if !remove {
		return
	}
	if object.Closed {
		deleter.remove(g, s)
	}
	if x := c.ask(g, "GET", fmt.Sprintf("/v1/streams/%s", s.id), nil); x == nil || x.status != 404 {
		c.w.violation("stream %s was deleted, but exists: %s", s.id, x)
	}
}
