package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	"weir"
	"weir/internal/access"
)

// client is one client of the service. It makes one request after another.
type client struct {
	w     *world
	n     int
	rng   *rand.Rand
	sent  int    // number of payloads that the client has made
	count int    // number of gates
	idle  bool   // the client waits between two requests
	last  string // the last request and its response, for the trace
}

const secret = "svc_live_00000000000000000000000000000001"

// newClient starts a client.
func (w *world) newClient(n int) {
	c := &client{w: w, n: n, rng: rand.New(rand.NewPCG(w.seed, uint64(n)+2))}
	acts := []func(*server){c.publishAt, c.publishAt, c.publishKeyed, c.read, c.subscribe, c.manage}
	act := acts[n%len(acts)]
	w.clients.Go(func() {
		for !w.stops() {
			c.idle = true
			_ = c.step("is idle" + c.last)
			c.idle = false
			if g := w.current(); g != nil && !w.stops() {
				act(g)
			}
		}
	})
}

func (w *world) stops() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ending || w.faulty != ""
}

// step waits at a gate of the client. An error means that the client hangs up here.
func (c *client) step(what string) error {
	c.count++
	return c.w.gate(fmt.Sprintf("client %d %s #%d", c.n, what, c.count), c)
}

// ask sends a request with the key that all clients share. It returns nil if the response does not
// count, because the client hung up or the server crashed.
func (c *client) ask(g *server, method, path string, body []byte, fields ...string) *exchange {
	h := http.Header{"Authorization": {"Bearer " + secret}}
	if body != nil {
		h.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(fields); i += 2 {
		h.Set(fields[i], fields[i+1])
	}
	x := c.do(g, method, path, h, body, nil)
	if x.gone || g.dead.Load() {
		return nil
	}
	if x.status == 500 && g.hurt.Load() {
		return nil // a disk call failed
	}
	if x.status == 401 || x.status == 403 || x.status == 400 {
		c.w.violation("client %d: %s %s: %d %s", c.n, method, path, x.status, x.got.String())
	}
	return x
}

func (c *client) stream() *stream {
	m := c.w.model
	return m.streams[m.ids[c.rng.IntN(len(m.ids))]]
}

func (c *client) payload() string {
	c.sent++
	return fmt.Sprintf("p%d-%d-%s", c.n, c.sent, strings.Repeat("x", c.rng.IntN(1<<c.rng.IntN(13))))
}

func bodyOf(payload string) []byte { return []byte(`{"events":["` + payload + `"]}`) }

// ack is a publish acknowledgement.
type ack struct {
	Seq       weir.Seq `json:"seq"`
	Duplicate bool     `json:"duplicate"`
	Cursor    weir.Seq `json:"cursor"`
}

func (c *client) ackOf(x *exchange) (a ack) {
	if err := json.Unmarshal(x.got.Bytes(), &a); err != nil {
		c.w.violation("client %d: acknowledgement %s: %v", c.n, x.got.String(), err)
	}
	return a
}

// publishAt publishes a batch under a sequence that it chooses: a new one, perhaps out of order, or
// one that was sent before.
func (c *client) publishAt(g *server) {
	s := c.stream()
	seq, payload := s.choose(c)
	var fields []string
	if c.rng.IntN(3) == 0 {
		fields = []string{"x-svc-contiguous", "true", "x-svc-publisher", "c" + strconv.Itoa(c.n)}
	}
	x := c.ask(g, "POST", fmt.Sprintf("/v1/streams/%s/%d", s.id, seq), bodyOf(payload), fields...)
	if x == nil {
		return
	}
	switch x.status {
	case 202:
		s.stored(c.ackOf(x), seq, payload)
	case 200:
		s.repeated(c.ackOf(x), seq)
	case 409:
		s.refused(seq, payload)
	case 412:
		if fields == nil {
			c.w.violation("412 without x-svc-contiguous")
		}
	case 422, 429, 503:
	default:
		c.w.violation("publish %d: %d %s", seq, x.status, x.got.String())
	}
}

// publishKeyed publishes a batch under the next sequence, with an idempotency key or without one.
func (c *client) publishKeyed(g *server) {
	s := c.stream()
	key, payload := s.chooseKey(c)
	var fields []string
	if key != "" {
		fields = []string{"Idempotency-Key", key}
	}
	x := c.ask(g, "POST", fmt.Sprintf("/v1/streams/%s/publish", s.id), bodyOf(payload), fields...)
	if x == nil {
		return
	}
	switch x.status {
	case 200, 202:
		s.storedKeyed(c.ackOf(x), x.status, key, payload)
	case 429, 503:
	default:
		c.w.violation("publish: %d %s", x.status, x.got.String())
	}
}

// read reads a batch or the cursor of a stream.
func (c *client) read(g *server) {
	s := c.stream()
	before := s.seen()
	if c.rng.IntN(2) == 0 {
		x := c.ask(g, "GET", "/v1/streams/"+string(s.id)+"/cursor", nil)
		if x != nil && x.status == 200 {
			var cursor struct{ Cursor weir.Seq }
			if err := json.Unmarshal(x.got.Bytes(), &cursor); err != nil {
				c.w.violation("cursor %s: %v", x.got.String(), err)
			}
			s.cursorIs(cursor.Cursor, before)
		} else if x != nil && x.status != 503 {
			c.w.violation("cursor: %d %s", x.status, x.got.String())
		}
		return
	}
	seq := weir.Seq(c.rng.IntN(int(before.cursor) + 3))
	x := c.ask(g, "GET", fmt.Sprintf("/v1/streams/%s/batches/%d", s.id, seq), nil)
	switch {
	case x == nil || x.status == 503:
	case x.status == 200:
		var b delivery
		if err := json.Unmarshal(x.got.Bytes(), &b); err != nil || len(b.Events) != 1 || b.Seq != seq {
			c.w.violation("batch %d: %v %s", seq, err, x.got.String())
			return
		}
		s.learn(seq, b.Events[0])
	case x.status == 404:
		if _, ok := before.acked[seq]; ok {
			c.w.violation("acknowledged batch %d of %s: %s", seq, s.id, x.got.String())
		}
	default:
		c.w.violation("batch %d: %d %s", seq, x.status, x.got.String())
	}
}

// manage creates and deletes a stream of its own, and makes and revokes keys.
func (c *client) manage(g *server) {
	o := c.w.model.own(c.n)
	path := "/v1/streams/" + string(o.id)
	switch c.rng.IntN(4) {
	case 0:
		x := c.ask(g, "POST", "/v1/streams", []byte(fmt.Sprintf(`{"name":"own","id":%q}`, o.id)))
		o.changed(c.w, "create", x, 201, 409, true)
	case 1:
		o.changed(c.w, "delete", c.ask(g, "DELETE", path, nil), 204, 404, false)
	case 2:
		o.look(c.w, c.ask(g, "GET", path, nil))
	case 3:
		c.keys(g, o)
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
	case o.valid && c.rng.IntN(3) == 0:
		_, err := g.access.Revoke(ctx, o.key)
		o.known = err == nil && !g.dead.Load()
		o.valid = false
	default:
		_, err := g.access.Authenticate([]string{"Bearer " + o.secret})
		if o.known && (err == nil) != o.valid && !g.dead.Load() {
			c.w.violation("key %s: valid %v, but the server says %v", o.key, o.valid, err)
		}
		if !o.valid && c.rng.IntN(4) == 0 {
			o.key = ""
		}
	}
}

// delivery is a batch as clients receive it.
type delivery struct {
	Seq    weir.Seq `json:"seq"`
	Events []string `json:"events"`
}

// subscribe follows a stream for a while.
func (c *client) subscribe(g *server) {
	s := c.stream()
	sub := s.subscriber(c)
	left := 1 + c.rng.IntN(40)
	var rest strings.Builder
	h := http.Header{"Authorization": {"Bearer " + secret}, "Accept": {"text/event-stream"}}
	path := "/v1/streams/" + string(s.id) + "?cursor=" + sub.from
	if sub.resumed {
		h.Set("Last-Event-ID", sub.from)
	}
	c.do(g, "GET", path, h, nil, func(b []byte) bool {
		rest.Write(b)
		for left > 0 && !g.dead.Load() {
			frame, more, ok := strings.Cut(rest.String(), "\n\n")
			if !ok {
				return true
			}
			rest.Reset()
			rest.WriteString(more)
			sub.receive(frame)
			left--
		}
		return false
	})
	s.unsubscribe(sub)
}
