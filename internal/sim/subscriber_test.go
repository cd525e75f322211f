package sim

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir"
)

// delivery is a batch as clients receive it.
type delivery struct {
	Seq         weir.Seq  `json:"seq"`
	TS          time.Time `json:"ts"`
	Events      []string  `json:"events"`
	ContentType string    `json:"content_type"`
	Data        string    `json:"data"`

	payload string
}

// decode reads the JSON form of a batch. Clients receive the same text many times.
func (s *stream) decode(text []byte) (delivery, bool) {
	s.reading.Lock()
	defer s.reading.Unlock()
	d, ok := s.decoded[string(text)]
	if ok {
		return d, true
	}
	if d, ok = s.parse(text); ok {
		s.decoded[string(text)] = d
	}
	return d, ok
}

func (s *stream) parse(text []byte) (d delivery, ok bool) {
	err := unmarshal(text, &d)
	if s.mode == weir.Raw {
		data, broken := base64.StdEncoding.DecodeString(d.Data)
		d.payload = string(data)
		return d, err == nil && broken == nil && d.ContentType == rawType
	}
	if err != nil || len(d.Events) != 1 {
		return d, false
	}
	d.payload = d.Events[0]
	return d, true
}

// subscriber is what a client has received, over all connections that resumed from the last id.
type subscriber struct {
	s       *stream
	from    string   // value of the query parameter cursor
	resume  string   // value of Last-Event-ID
	id      string   // the last id that was received
	started bool     // the fields start and pos are known
	start   weir.Seq // the first sequence that the subscriber wants
	pos     weir.Seq // the next sequence that the subscriber wants
	got     map[weir.Seq]bool
	ended   bool
	low     weir.Seq  // the field low of the stream at the beginning of the request
	heard   time.Time // when the request began, or the last frame arrived
}

// subscriber returns a new subscriber, or one that resumes.
func (s *stream) subscriber(c *client) *subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub := c.subs[s.n]; sub != nil && sub.id != "" && c.rng.IntN(3) > 0 {
		sub.resume, sub.low, sub.heard = sub.id, s.low, time.Now()
		return sub
	}
	s.subs = slices.DeleteFunc(s.subs, func(o *subscriber) bool { return o == c.subs[s.n] })
	sub := &subscriber{s: s, from: "0", got: map[weir.Seq]bool{}, low: s.low, heard: time.Now()}
	switch c.rng.IntN(4) {
	case 0:
		sub.from = "head"
	case 1:
		n := weir.Seq(1 + c.rng.IntN(int(s.cursor)+2))
		sub.start, sub.pos, sub.started = n+1, n+1, true
		sub.from = strconv.FormatUint(uint64(n), 10)
	}
	s.subs = append(s.subs, sub)
	c.subs[s.n] = sub
	return sub
}

// receive checks a frame.
func (sub *subscriber) receive(frame string) {
	s := sub.s
	s.mu.Lock()
	defer s.mu.Unlock()
	sub.heard = time.Now()
	var event, data, id string
	for line := range strings.Lines(frame) {
		switch name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); name {
		case "event":
			event = value
		case "data":
			data = value
		case "id":
			id = value
		}
	}
	if id != "" {
		sub.id = id
	}
	switch event {
	case "":
		sub.hello(id)
	case "batch":
		sub.batch(data, id)
	case "gap":
		sub.gap(data, id)
	case "end":
		sub.end(data)
	default:
		s.w.violation("stream %s: unexpected frame %q", s.id, frame)
	}
}

// starves reports whether a subscription has waited for more than two seconds, or longer in a cluster,
// since its next batch was acknowledged.
func (sub *subscriber) starves(x *exchange) bool {
	s := sub.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !sub.started || sub.ended || x.gone {
		return false
	}
	at, acked := s.when[sub.pos]
	if at.Before(sub.heard) {
		at = sub.heard
	}
	return acked && time.Since(at) > 2*time.Second+s.w.slack()
}

// hello reads the position from the first frame.
func (sub *subscriber) hello(id string) {
	s := sub.s
	if id == "" {
		sub.started = true // the stream is empty, or the frame is a comment or a retry field
		return
	}
	at, err := weir.ParseSeq(id)
	if err != nil {
		s.w.violation("stream %s: id %q: %v", s.id, id, err)
	}
	if sub.started {
		if at+1 != sub.pos {
			s.w.violation("stream %s: a subscriber that wants %d starts after %d", s.id, sub.pos, at)
		}
		return
	}
	sub.started, sub.start, sub.pos = true, at+1, at+1
	if sub.from == "0" {
		sub.skipped(0, sub.pos, "cursor=0")
	}
}

// skipped checks that the acknowledged batches of a range were evicted.
func (sub *subscriber) skipped(from, to weir.Seq, why string) {
	for _, seq := range sub.s.acked.between(from, to) {
		sub.s.evicted(seq+1, why)
	}
}

// pass moves the subscriber to a sequence. All acknowledged batches below it must have arrived.
func (sub *subscriber) pass(to weir.Seq, what string) {
	s := sub.s
	if to < sub.pos {
		s.w.violation("stream %s: a subscriber that wants %d received %s %d", s.id, sub.pos, what, to)
	}
	for _, seq := range s.acked.between(sub.pos, to) {
		s.w.violation("stream %s: a subscriber that wants %d received %s %d, without %d", s.id, sub.pos, what, to, seq)
		break
	}
	sub.pos = max(sub.pos, to)
}

func (sub *subscriber) batch(data, id string) {
	s := sub.s
	d, ok := s.decode([]byte(data))
	if !ok || id != d.Seq.String() || !sub.started {
		s.w.violation("stream %s: got the batch %.200q with the id %s", s.id, data, id)
		return
	}
	sub.pass(d.Seq, "batch")
	sub.got[d.Seq] = true
	sub.pos = d.Seq + 1
	s.learn(d.Seq, d.payload)
}

func (sub *subscriber) gap(data, id string) {
	s := sub.s
	var g struct {
		From, To weir.Seq
		Reason   string
	}
	if err := unmarshal([]byte(data), &g); err != nil || g.Reason != "evicted" || id != g.To.String() || g.To < g.From {
		s.w.violation("stream %s: gap %s with id %s: %v", s.id, data, id, err)
		return
	}
	if sub.from == "0" && sub.resume == "" && len(sub.got) == 0 && g.To < sub.low && !s.w.back && !s.w.isCluster() {
		s.w.violation("stream %s: a subscriber with cursor=0 received the gap %s, but batch %d was already the oldest when the request began", s.id, data, sub.low)
	}
	sub.pass(g.From, "gap")
	s.evicted(g.To+1, "gap event")
	for seq := g.From; seq <= g.To; seq++ {
		sub.got[seq] = true
	}
	sub.pos = g.To + 1
}
