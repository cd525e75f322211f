package sim

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"weir/internal/durable"
)

// producer is a producer of Durable Streams, and its stream. It numbers its appends and repeats those
// without a response, so each is stored once and in order, whatever fails. Only one client uses it at
// a time.
type producer struct {
	path       string
	name       string
	tried      bool   // the outcome of an attempt to create the stream is unknown
	made       bool   // the stream exists
	epoch, seq uint64 // of the next append
	started    bool   // an append is known to be stored
	repeats    bool   // the outcome of the last append is unknown, and it will be sent again
	count      int
	sent       []message
	fork       *fork // nil before the first attempt to create it
}

// message is an append that was stored, or whose outcome is unknown.
type message struct {
	text    string
	certain bool // it is stored
}

// isDurable reports whether a request goes to the handler of Durable Streams.
func isDurable(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, durable.Prefix) }

// handles returns the handler of a request.
func (g *server) handles(r *http.Request) http.Handler {
	if isDurable(r) {
		return g.durable
	}
	return g.handler
}

// serveDurable makes the process speak Durable Streams.
func (g *server) serveDurable() {
	g.durable = durable.New(durable.Options{Hub: g.hub, Access: g.access, API: g.handler})
}

// producer returns the producer of a client.
func (m *model) producer(n int) *producer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.producers[n] == nil {
		m.producers[n] = &producer{path: durable.Prefix + "p" + strconv.Itoa(n), name: "producer" + strconv.Itoa(n)}
	}
	return m.producers[n]
}

// produce creates the stream of the client's producer, appends to it, or reads it.
func produce(c *client, g *server) {
	p := c.w.model.producer(c.n)
	r := c.rng.IntN(16)
	switch {
	case !p.made:
		p.create(c, g)
	case r < 2:
		p.read(c, g)
	case r == 2 && p.started, r == 7 && p.seq > 2:
		p.forks(c, g)
	case r == 3 && p.seq > 0: // a number that leaves a gap
		p.append(c, g, p.epoch, p.seq+2+c.rng.Uint64N(3), "gap", 409)
	case r == 3 && p.epoch > 0 && !p.repeats && p.started: // an epoch that does not begin with 0
		p.append(c, g, p.epoch, 1+c.rng.Uint64N(3), "gap", 400)
	case r == 4 && p.seq > 0: // an append that was stored before
		p.append(c, g, p.epoch, c.rng.Uint64N(p.seq), "again", 204)
	case r == 5 && p.seq > 0 && p.epoch > 0: // an outdated epoch
		p.append(c, g, p.epoch-1, c.rng.Uint64N(9), "old", 403)
	case r == 6 && p.seq+p.epoch > 0: // the producer has restarted and does not repeat its last append
		p.epoch, p.seq, p.repeats = p.epoch+1, 0, false
	default:
		p.next(c, g)
	}
}

func (p *producer) create(c *client, g *server) {
	x := c.send(g, &exchange{judged: true}, "PUT", p.path, nil, "Content-Type", "application/json")
	switch {
	case x == nil || x.status == 503:
		p.tried = true
	case x.status == 409 && p.tried: // another node may still be creating it
	case x.status != 201 && x.status != 200:
		c.w.violation("%s: create: %s", p.name, x)
	default:
		p.made = true
	}
}

// next appends a message, or repeats the last one.
func (p *producer) next(c *client, g *server) {
	if !p.repeats {
		p.count++
		p.sent = append(p.sent, message{text: fmt.Sprintf("%s-%d-%s", p.name, p.count, strings.Repeat("x", c.rng.IntN(1<<c.rng.IntN(11))))})
	}
	last := &p.sent[len(p.sent)-1]
	x := p.post(c, g, p.epoch, p.seq, last.text)
	switch {
	case x == nil || x.status == 503:
		p.repeats = true
		return
	case x.status == 200, x.status == 204 && p.repeats:
	default:
		c.w.violation("%s: epoch %d, number %d, sent before: %v: %s", p.name, p.epoch, p.seq, p.repeats, x)
	}
	p.knows(c, x, p.seq)
	last.certain, p.repeats, p.started = true, false, true
	p.seq++
}

// append sends an append that must not be stored.
func (p *producer) append(c *client, g *server, epoch, seq uint64, text string, status int) {
	x := p.post(c, g, epoch, seq, text)
	if x == nil || x.status == 503 {
		return
	}
	if x.status != status && !(c.w.isCluster() && status == 403 && x.status == 204) { // another node may not know the newest epoch
		c.w.violation("%s: the next append has epoch %d and number %d, but epoch %d, number %d was answered with %s", p.name, p.epoch, p.seq, epoch, seq, x)
		return
	}
	switch expected := x.header.Get("Producer-Expected-Seq"); {
	case status == 204 && !p.repeats && !c.w.isCluster(): // another node may not know the newest append
		p.knows(c, x, p.seq-1)
	case status == 409 && expected != strconv.FormatUint(p.seq, 10) && !(p.repeats && expected == strconv.FormatUint(p.seq+1, 10)):
		c.w.violation("%s: the next append has number %d, but the service expects %s", p.name, p.seq, expected)
	}
}

// knows checks what a response says about the producer.
func (p *producer) knows(c *client, x *exchange, seq uint64) {
	if e, s := x.header.Get("Producer-Epoch"), x.header.Get("Producer-Seq"); e != strconv.FormatUint(p.epoch, 10) || s != strconv.FormatUint(seq, 10) {
		c.w.violation("%s: the newest append has epoch %d and number %d, but the response says %s and %s", p.name, p.epoch, seq, e, s)
	}
}

func (p *producer) post(c *client, g *server, epoch, seq uint64, text string) *exchange {
	return c.send(g, &exchange{judged: true}, "POST", p.path, []byte(strconv.Quote(text)),
		"Producer-Id", p.name, "Producer-Epoch", strconv.FormatUint(epoch, 10), "Producer-Seq", strconv.FormatUint(seq, 10))
}

// read reads the whole stream, and compares it with what was sent. It returns false if there is no
// response that counts.
func (p *producer) read(c *client, g *server) bool {
	x := c.send(g, &exchange{judged: true}, "GET", p.path+"?offset=-1", nil)
	if x == nil || x.status == 503 {
		return false
	}
	var got []string
	if err := unmarshal(x.got.Bytes(), &got); x.status != 200 || err != nil {
		c.w.violation("%s: read: %s", p.name, x)
		return true
	}
	n := 0
	var missing []string // that may be stored later
	for i := range p.sent {
		switch m := &p.sent[i]; {
		case n < len(got) && got[n] == m.text:
			n++
			m.certain, missing = true, nil
		case m.certain:
			c.w.violation("%s: message %.40q is lost, the stream has %d messages", p.name, m.text, len(got))
		default:
			missing = append(missing, m.text)
		}
	}
	if n < len(got) {
		c.w.violation("%s: the stream has %.40q as its message %d, which was not sent, or not then", p.name, got[n], n)
	}
	p.sent = slices.DeleteFunc(p.sent, func(m message) bool { return !m.certain && !slices.Contains(missing, m.text) })
	return true
}

// checkProducers reads the streams of all producers.
func (m *model) checkProducers(c *client, g *server) {
	for n := range c.w.config.clients {
		if p := m.producers[n]; p != nil && p.made {
			for c.w.faulty == "" && !p.read(c, g) {
				_ = c.step("reads again")
			}
			for c.w.faulty == "" && p.fork != nil && p.fork.made && !p.fork.read(c, g) {
				_ = c.step("reads again")
			}
		}
	}
}
