package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	"weir"
)

// client is one client of the service. It makes one request after another.
type client struct {
	w     *world
	n     int
	rng   *rand.Rand
	sent  int    // number of payloads that the client has made
	count int    // number of steps that the client has taken
	idle  bool   // the client waits between two requests
	last  string // the last request and its response, for the trace
	x     *exchange
	subs  map[int]*subscriber // by number of the stream
	stop  bool                // the client ends its subscription
	paged bool                // the final check reads batches in pages, and not one by one
}

const (
	secret  = "svc_live_00000000000000000000000000000001"
	rawType = "application/octet-stream; of=sim"
)

// roleCount is the number of roles of clients.
const roleCount = 9

// newClient starts a client. Its number and the seed decide what it does. Any four clients with
// consecutive numbers include a publisher.
func (w *world) newClient(n int) {
	c := clientOf(w, n)
	roles := [roleCount]struct {
		name string
		act  func(*server)
	}{
		{"publishAt", c.publishAt}, {"subscribe", c.subscribe}, {"manage", c.manage}, {"publishAt", c.publishAt}, {"read", c.read},
		{"library", func(*server) { useLibrary(c) }}, {"publishKeyed", c.publishKeyed}, {"subscribe", c.subscribe}, {"backup", c.backup},
	}
	role := roles[(n+w.turn)%len(roles)]
	if !w.has(role.name) {
		return
	}
	switch {
	case w.isCluster() && role.name == "manage":
		role.act = c.manageNodes
	case w.isCluster() && role.name == "backup": // only a journal can make a snapshot
		return
	}
	w.clients.Go(func() {
		for !w.stops() {
			c.idle = true
			_ = c.step("is idle" + c.last)
			c.idle = false
			if g := c.server(); g != nil && !w.stops() {
				role.act(g)
			}
		}
	})
}

// manager returns the number of a client that manages streams. If there are few clients, the number
// may be too high.
func (w *world) manager(rng *rand.Rand) int {
	return w.firstManager() + roleCount*rng.IntN(1+w.config.clients/roleCount)
}

// firstManager returns the lowest of these numbers.
func (w *world) firstManager() int { return (roleCount + 2 - w.turn) % roleCount }

// server returns the process to which the client sends its next request, or nil if that process is
// down.
func (c *client) server() *server {
	if c.w.isCluster() && c.n < watcher {
		nodes := c.w.cluster.nodes
		return nodes[c.rng.IntN(len(nodes))].process()
	}
	return c.w.current()
}

func (w *world) stops() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ending || w.faulty != ""
}

// step waits until the scheduler lets the client go on. An error means that the client hangs up
// here.
func (c *client) step(what string) error {
	c.count++
	return c.w.gate("client "+strconv.Itoa(c.n)+" "+what+" #"+strconv.Itoa(c.count), c)
}

// ask sends a request with the key that all clients share. It returns nil if the response does not
// count, because the client hung up or was too slow, or the server crashed.
func (c *client) ask(g *server, method, path string, body []byte, fields ...string) *exchange {
	return c.send(g, &exchange{}, method, path, body, fields...)
}

// send does the same as ask, with an exchange that the caller has prepared.
func (c *client) send(g *server, x *exchange, method, path string, body []byte, fields ...string) *exchange {
	if c.n == watcher && c.w.isCluster() {
		g.holdsLease()
	}
	h := http.Header{"Authorization": {"Bearer " + secret}}
	if body != nil {
		h.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(fields); i += 2 {
		h.Set(fields[i], fields[i+1])
	}
	asked := method == "GET" && c.mayZip(h)
	c.do(g, x, method, path, h, body, nil)
	if x.gone || x.late || g.dead.Load() {
		return nil
	}
	if err := x.unzip(asked); err != nil && method == "GET" {
		c.w.violation("client %d: %s %s: %v", c.n, method, path, err)
	}
	if !judge(c, g, x, method, path, body) {
		return nil
	}
	return x
}

// judge checks the status of a response, as far as it does not depend on what the request is for. It
// returns false if the response does not count, because a disk call failed.
func judge(c *client, g *server, x *exchange, method, path string, body []byte) bool {
	if x.status != 503 && c.w.isCutOff(g, x.at) {
		c.w.violation("client %d: %s %s: a node that is cut off answers with %s", c.n, method, path, x)
	}
	switch code := x.code(); {
	case x.status == 500 && g.hurt.Load():
		return false
	case x.status == 503 && code == weir.StorageUnavailable && (g.hurt.Load() || g.limited.Load() || g.stopping.Load()):
	case x.status == 503 && code == weir.Overloaded && (len(body) > 4<<10 || g.stopping.Load() || x.busy):
	case x.status == 503 && method == "HEAD" && g.limited.Load(): // the response has no body that says why
	case x.judged && x.status < 500:
	case x.status >= 500 || x.status == 401 || x.status == 403 || x.status == 400 || x.status == 413 || x.status == 415 || x.status == 429:
		c.w.violation("client %d: %s %s: %d %s", c.n, method, path, x.status, x.got.String())
	}
	return true
}

func (c *client) stream() *stream {
	m := c.w.model
	return m.streams[c.rng.IntN(len(m.streams))]
}

func (c *client) payload(s *stream) string {
	c.sent++
	n := c.rng.IntN(1 << c.rng.IntN(13))
	if s.mode == weir.Raw && c.rng.IntN(10) == 0 {
		n = c.rng.IntN(90 << 10)
	}
	if n = min(n, int(s.floor)-40); s.mode == weir.Raw && n%7 == 0 {
		return fmt.Sprintf("p%d-%d-%s", c.n, c.sent, strings.Repeat("\x00\xff", n/2))
	}
	return fmt.Sprintf("p%d-%d-%s", c.n, c.sent, strings.Repeat("x", n))
}

// request returns the body and the header fields for a batch.
func (s *stream) request(b *batch) (body []byte, fields []string) {
	if s.mode == weir.Raw {
		return []byte(b.payload), []string{"Content-Type", rawType}
	}
	return []byte(`{"events":["` + b.payload + `"]}`), nil
}

// ack is a publish acknowledgement.
type ack struct {
	Seq       weir.Seq `json:"seq"`
	Accepted  int      `json:"accepted"`
	Duplicate bool     `json:"duplicate"`
	Cursor    weir.Seq `json:"cursor"`
}

func (c *client) ackOf(x *exchange) (a ack) {
	if err := unmarshal(x.got.Bytes(), &a); err != nil && x.status < 300 {
		c.w.violation("client %d: acknowledgement %s: %v", c.n, x.got.String(), err)
	}
	return a
}

// publishAt publishes a batch under a sequence that the client chooses: a new sequence, perhaps out
// of order, or one that was used before.
func (c *client) publishAt(g *server) {
	s := c.stream()
	seq, b := s.choose(c)
	before := s.seen()
	body, fields := s.request(b)
	contiguous := c.rng.IntN(3) == 0
	if contiguous {
		fields = append(fields, "x-svc-contiguous", "true")
	}
	if b.publisher != "" {
		fields = append(fields, "x-svc-publisher", b.publisher)
	}
	x := c.ask(g, "POST", fmt.Sprintf("/v1/streams/%s/%d", s.id, seq), body, fields...)
	if x == nil || x.status == 503 {
		return
	}
	s.published(x, c.ackOf(x), seq, b, contiguous, before)
	s.describes(x)
}

// publishKeyed publishes a batch under the next sequence, with an idempotency key or without one.
func (c *client) publishKeyed(g *server) {
	if c.w.has("produce") && c.rng.IntN(2) == 0 {
		produce(c, g)
		return
	}
	s := c.stream()
	if c.rng.IntN(12) == 0 {
		publishPart(c, g, s)
		return
	}
	if !s.loose {
		return
	}
	b := s.chooseKey(c)
	before := s.seen()
	before.repeated = s.wasAcked(b)
	body, fields := s.request(b)
	if b.key != "" {
		fields = append(fields, "Idempotency-Key", b.key)
	}
	x := c.ask(g, "POST", fmt.Sprintf("/v1/streams/%s/publish", s.id), body, fields...)
	if x == nil || x.status == 503 {
		return
	}
	s.publishedNext(x, c.ackOf(x), b, before)
	s.describes(x)
}

// publishPart sends a body that is shorter than its Content-Length. The service must refuse the body,
// even if the part is a valid body. If it stored the batch, readers would get bytes that the model
// does not know.
func publishPart(c *client, g *server, s *stream) {
	body, fields := s.request(&batch{payload: c.payload(s)})
	x := c.send(g, &exchange{judged: true, lacks: 1 + c.rng.IntN(1<<c.rng.IntN(17))}, "POST", fmt.Sprintf("/v1/streams/%s/publish", s.id), body, fields...)
	if x == nil || x.status == 503 {
		return
	}
	switch x.code() {
	case weir.InvalidRequest, weir.PayloadTooLarge, weir.StreamClosed: // the last two are found out before the body is read
	default:
		c.w.violation("stream %s: a body that is shorter than its Content-Length was answered with %s", s.id, x)
	}
}

// read reads a batch, a page of batches or the cursor of a stream.
func (c *client) read(g *server) {
	s := c.stream()
	before := s.seen()
	if c.w.has("pages") && c.rng.IntN(2) > 0 {
		c.page(g, s)
		return
	}
	if c.rng.IntN(3) > 0 {
		c.readBatch(g, s, weir.Seq(max(0, int(before.cursor)+2-c.rng.IntN(int(before.cursor)+3))))
		return
	}
	x := c.ask(g, "GET", "/v1/streams/"+string(s.id)+"/cursor", nil)
	switch {
	case x == nil || x.status == 503:
	case x.status == 200:
		var cursor struct{ Cursor weir.Seq }
		if err := unmarshal(x.got.Bytes(), &cursor); err != nil {
			c.w.violation("the response with the cursor is %s: %v", x.got.String(), err)
		}
		s.cursorIs(cursor.Cursor, before)
		s.describes(x)
	default:
		c.w.violation("cursor: %d %s", x.status, x.got.String())
	}
}

// readBatch reads a batch, and returns its size, or -1 if it cannot be read.
func (c *client) readBatch(g *server, s *stream, seq weir.Seq) int64 {
	before, at := s.seen(), c.w.clock()
	x := c.ask(g, "GET", fmt.Sprintf("/v1/streams/%s/batches/%d", s.id, seq), nil)
	switch {
	case x == nil || x.status == 503:
	case x.status == 200:
		d, ok := delivery{Seq: seq, payload: x.got.String()}, x.header.Get("Content-Type") == rawType
		if s.mode == weir.JSON {
			d, ok = s.decode(x.got.Bytes())
		}
		if !ok || d.Seq != seq {
			c.w.violation("stream %s: batch %d: %.300s", s.id, seq, x.got.String())
			return -1
		}
		s.read(d, at, before)
		s.describes(x)
		return s.size(&batch{payload: d.payload})
	case x.status == 404:
		s.gone(seq, x.got.String(), strings.Contains(x.got.String(), "evicted"), before)
	default:
		c.w.violation("stream %s: batch %d: %d %s", s.id, seq, x.status, x.got.String())
	}
	return -1
}

// subscribe follows a stream for a while: a shared stream, or a stream that another client owns,
// with the key of that client.
func (c *client) subscribe(g *server) {
	if c.rng.IntN(3) == 0 && c.follow(g, c.w.model.own(c.w.manager(c.rng))) {
		return
	}
	s := c.stream()
	x := &exchange{of: s}
	if s.seen().closed {
		c.w.model.endsSoon(x)
	}
	sub := s.subscriber(c)
	x.sub = sub
	c.subscribeTo(g, x, s.id, secret, sub.from, sub.resume, sub.receive)
}

// subscribeTo subscribes and passes up to 40 frames to the function receive. For the watcher, the
// client that makes the final checks, it passes all frames.
func (c *client) subscribeTo(g *server, x *exchange, id weir.StreamID, secret, from, resume string, receive func(frame string)) {
	left := 1 + c.rng.IntN(40)
	if c.n == watcher {
		left = 1 << 30
	}
	var rest []byte
	h := http.Header{"Authorization": {"Bearer " + secret}, "Accept": {"text/event-stream"}}
	if resume != "" {
		h.Set("Last-Event-ID", resume)
	}
	take := func(b []byte) bool {
		if x.status >= 300 {
			return true
		}
		rest = append(rest, b...)
		for left > 0 && !c.stop && !g.dead.Load() {
			frame, more, ok := bytes.Cut(rest, []byte("\n\n"))
			if !ok {
				return true
			}
			rest = more
			receive(string(frame))
			left--
		}
		return false
	}
	u := unzipper{}
	if c.n != watcher && c.mayZip(h) {
		frames := u.unzipFrames(c, take)
		take = func(b []byte) bool { return x.status >= 300 || frames(b) }
	}
	c.do(g, x, "GET", "/v1/streams/"+string(id)+"?cursor="+from, h, nil, take)
	if u.ended && !u.whole && !x.gone && !g.dead.Load() {
		c.w.violation("client %d: a compressed subscription has an end event, but is not complete", c.n)
	}
}

// field returns the value of a field of a frame.
func field(frame, name string) (string, bool) {
	for line := range strings.Lines(frame) {
		if value, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), name+": "); ok {
			return value, true
		}
	}
	return "", false
}
