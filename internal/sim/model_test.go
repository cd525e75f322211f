package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"weir"
)

// model is what clients may expect of the service. It is written from the decisions, not from the
// code.
type model struct {
	w       *world
	ids     []weir.StreamID
	streams map[weir.StreamID]*stream
	mu      sync.Mutex
	owns    map[int]*own
}

func newModel(w *world) *model {
	m := &model{w: w, streams: map[weir.StreamID]*stream{}, owns: map[int]*own{}}
	for i := range 3 {
		id := weir.StreamID(fmt.Sprintf("stream%016d", i))
		m.ids = append(m.ids, id)
		m.streams[id] = &stream{
			w: w, id: id, sent: map[weir.Seq][]string{}, keyed: map[string]string{}, keySeq: map[string]weir.Seq{}, plain: map[string]bool{},
			known: map[weir.Seq]string{}, at: map[string]weir.Seq{}, acked: map[weir.Seq]bool{}, occupied: map[weir.Seq]bool{},
		}
	}
	return m
}

// stream is what the clients know about a stream.
type stream struct {
	w  *world
	id weir.StreamID

	mu       sync.Mutex
	next     weir.Seq              // the lowest sequence that no client has chosen
	sent     map[weir.Seq][]string // payloads that were sent under a sequence
	keyed    map[string]string     // payload of each idempotency key
	keySeq   map[string]weir.Seq   // sequence of each acknowledged key
	plain    map[string]bool       // payloads that were sent without sequence and key
	known    map[weir.Seq]string   // payloads that are stored
	at       map[string]weir.Seq   // the reverse of known
	acked    map[weir.Seq]bool     // sequences whose batch was acknowledged
	occupied map[weir.Seq]bool     // sequences that were said to be stored
	cursor   weir.Seq              // the highest cursor that a client has seen
	subs     []*subscriber
}

// seen is the knowledge at the beginning of a request.
type seen struct {
	cursor weir.Seq
	acked  map[weir.Seq]bool
}

func (s *stream) seen() seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return seen{s.cursor, maps.Clone(s.acked)}
}

// choose returns a sequence to publish under, and the payload.
func (s *stream) choose(c *client) (weir.Seq, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq := max(s.next, s.cursor+1)
	switch c.rng.IntN(10) {
	case 0, 1, 2: // again
		if all := slices.Sorted(maps.Keys(s.sent)); len(all) > 0 {
			seq = all[max(0, len(all)-1-c.rng.IntN(6))]
			return seq, s.sent[seq][c.rng.IntN(len(s.sent[seq]))]
		}
	case 3: // skip some
		seq += weir.Seq(c.rng.IntN(4))
	case 4: // below
		seq -= min(seq, weir.Seq(c.rng.IntN(5)))
	}
	s.next = max(s.next, seq+1)
	payload := c.payload()
	s.sent[seq] = append(s.sent[seq], payload)
	return seq, payload
}

// chooseKey returns an idempotency key, perhaps one that was used before, and its payload.
func (s *stream) chooseKey(c *client) (key, payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.rng.IntN(4) == 0 {
		payload = c.payload()
		s.plain[payload] = true
		return "", payload
	}
	key = fmt.Sprintf("key-%d-%d", c.n, c.rng.IntN(2+len(s.keyed)))
	payload, used := s.keyed[key]
	if !used {
		payload = c.payload()
		s.keyed[key] = payload
	}
	return key, payload
}

// learn checks that a payload may be stored under a sequence.
func (s *stream) learn(seq weir.Seq, payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.learned(seq, payload)
}

func (s *stream) learned(seq weir.Seq, payload string) {
	if old, ok := s.known[seq]; ok && old != payload {
		s.w.violation("stream %s: sequence %d holds %.20s and %.20s", s.id, seq, old, payload)
	}
	if old, ok := s.at[payload]; ok && old != seq && !slices.Contains(s.sent[seq], payload) {
		s.w.violation("stream %s: payload %.20s is stored under %d and %d", s.id, payload, old, seq)
	}
	if !slices.Contains(s.sent[seq], payload) && !s.plain[payload] && !slices.Contains(slices.Collect(maps.Values(s.keyed)), payload) {
		s.w.violation("stream %s: sequence %d holds %.20s, which no client sent", s.id, seq, payload)
	}
	s.known[seq], s.at[payload] = payload, seq
	s.cursor = max(s.cursor, seq)
}

// acknowledged checks that no subscriber has passed a sequence without its batch.
func (s *stream) acknowledged(seq weir.Seq) {
	s.acked[seq] = true
	for _, sub := range s.subs {
		if sub.started && sub.start < seq && seq <= sub.at && !sub.got[seq] {
			s.w.violation("stream %s: batch %d was acknowledged, but a subscriber at %d did not receive it", s.id, seq, sub.at)
		}
	}
}

func (s *stream) stored(a ack, seq weir.Seq, payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Seq != seq || a.Duplicate || a.Cursor < seq {
		s.w.violation("stream %s: publish %d was acknowledged by %+v", s.id, seq, a)
	}
	if s.acked[seq] || s.occupied[seq] {
		s.w.violation("stream %s: sequence %d was stored twice", s.id, seq)
	}
	s.learned(seq, payload)
	s.acknowledged(seq)
	s.cursor = max(s.cursor, a.Cursor)
}

func (s *stream) repeated(a ack, seq weir.Seq) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Seq != seq || !a.Duplicate || len(s.sent[seq]) == 0 {
		s.w.violation("stream %s: publish %d is a duplicate by %+v", s.id, seq, a)
	}
	s.occupied[seq] = true
	s.acknowledged(seq)
	s.cursor = max(s.cursor, seq)
}

// refused checks a 409: the sequence can never be stored.
func (s *stream) refused(seq weir.Seq, _ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.acked[seq] || s.occupied[seq] || s.known[seq] != "" {
		s.w.violation("stream %s: sequence %d is stored, but a publish was refused with 409", s.id, seq)
	}
}

func (s *stream) storedKeyed(a ack, status int, key, payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Duplicate != (status == 200) {
		s.w.violation("stream %s: status %d with %+v", s.id, status, a)
	}
	if key == "" && a.Duplicate {
		s.w.violation("stream %s: a publish without key is a duplicate: %+v", s.id, a)
	}
	if before, ok := s.keySeq[key]; key != "" && ok && (before != a.Seq || !a.Duplicate) {
		s.w.violation("stream %s: key %s was stored under %d, and now %+v", s.id, key, before, a)
	}
	if key != "" {
		s.keySeq[key] = a.Seq
	}
	s.learned(a.Seq, payload)
	s.acknowledged(a.Seq)
}

func (s *stream) cursorIs(cursor weir.Seq, before seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cursor < before.cursor {
		s.w.violation("stream %s: the cursor went from %d down to %d", s.id, before.cursor, cursor)
	}
	s.cursor = max(s.cursor, cursor)
}

// subscriber is what a subscription has received.
type subscriber struct {
	s       *stream
	from    string // value of cursor
	resumed bool
	started bool
	start   weir.Seq // batches above start must arrive
	at      weir.Seq
	got     map[weir.Seq]bool
	resume  *subscriber // subscriber of the same client before this one
}

func (s *stream) subscriber(c *client) *subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := &subscriber{s: s, from: "0", got: map[weir.Seq]bool{}}
	switch c.rng.IntN(4) {
	case 0:
		sub.from = "head"
	case 1:
		sub.at = weir.Seq(1 + c.rng.IntN(int(s.cursor)+2))
		sub.from, sub.resumed = strconv.FormatUint(uint64(sub.at), 10), c.rng.IntN(2) == 0
	}
	sub.start = sub.at
	s.subs = append(s.subs, sub)
	return sub
}

func (s *stream) unsubscribe(sub *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subs = slices.DeleteFunc(s.subs, func(o *subscriber) bool { return o == sub })
}

// receive checks a frame.
func (sub *subscriber) receive(frame string) {
	s := sub.s
	s.mu.Lock()
	defer s.mu.Unlock()
	var event, data, id string
	for line := range strings.Lines(frame) {
		line = strings.TrimSuffix(line, "\n")
		switch name, value, _ := strings.Cut(line, ": "); name {
		case "event":
			event = value
		case "data":
			data = value
		case "id":
			id = value
		}
	}
	switch event {
	case "":
		if id != "" && !sub.started {
			at, err := weir.ParseSeq(id)
			if err != nil {
				s.w.violation("first frame %q: %v", frame, err)
			}
			if sub.from == "head" {
				sub.start, sub.at = at, at
			}
		}
		sub.started = sub.started || sub.from != "head" || id != ""
	case "batch":
		var b delivery
		if err := json.Unmarshal([]byte(data), &b); err != nil || len(b.Events) != 1 || id != b.Seq.String() {
			s.w.violation("frame %q: %v", frame, err)
			return
		}
		if b.Seq <= sub.at && (sub.at > 0 || len(sub.got) > 0) {
			s.w.violation("stream %s: a subscriber received %d after %d", s.id, b.Seq, sub.at)
		}
		for seq := range s.acked {
			if sub.started && sub.at < seq && seq < b.Seq {
				s.w.violation("stream %s: a subscriber received %d after %d, without %d", s.id, b.Seq, sub.at, seq)
			}
		}
		sub.at, sub.got[b.Seq] = b.Seq, true
		s.learned(b.Seq, b.Events[0])
	case "end":
	default:
		s.w.violation("stream %s: unexpected frame %q", s.id, frame)
	}
}

// own is the stream and the key of one client, which no other client changes.
type own struct {
	id     weir.StreamID
	exists bool
	sure   bool // whether exists is certain

	key, secret  string
	valid, known bool
}

func (m *model) own(n int) *own {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owns[n] == nil {
		m.owns[n] = &own{id: weir.StreamID(fmt.Sprintf("own%019d", n)), sure: true}
	}
	return m.owns[n]
}

// changed checks the response to a create or delete. yes is the status of a success, and no the
// status if there was nothing to do.
func (o *own) changed(w *world, what string, x *exchange, yes, no int, exists bool) {
	switch {
	case x == nil || x.status == 503 || x.status == 500:
		o.sure = false
		return
	case x.status == yes:
		if o.sure && o.exists == exists {
			w.violation("%s of %s: %d, but exists is %v", what, o.id, x.status, o.exists)
		}
	case x.status == no:
		if o.sure && o.exists != exists {
			w.violation("%s of %s: %d, but exists is %v", what, o.id, x.status, o.exists)
		}
	default:
		w.violation("%s of %s: %d %s", what, o.id, x.status, x.got.String())
	}
	o.exists, o.sure = exists, true
}

func (o *own) look(w *world, x *exchange) {
	if x == nil || x.status == 503 {
		return
	}
	if exists := x.status == 200; o.sure && exists != o.exists {
		w.violation("GET of %s: %d, but exists is %v", o.id, x.status, o.exists)
	} else {
		o.exists, o.sure = exists, true
	}
}

// finish restarts the server and reads everything again.
func (w *world) finish(done *atomic.Bool) {
	c := &client{w: w, n: 1000}
	w.until("the server is up", func() bool { return w.current() != nil })
	w.restart()
	go func() {
		defer done.Store(true)
		for w.current() == nil {
			_ = c.step("waits")
		}
		g := w.current()
		for _, id := range w.model.ids {
			w.model.streams[id].final(c, g)
		}
	}()
}

// final reads every batch that may be stored.
func (s *stream) final(c *client, g *server) {
	for seq := weir.Seq(0); seq <= max(s.cursor, s.next); seq++ {
		x := c.ask(g, "GET", fmt.Sprintf("/v1/streams/%s/batches/%d", s.id, seq), nil)
		switch {
		case x == nil:
			s.w.violation("the final check was interrupted")
		case x.status == 200:
			var b delivery
			if err := json.Unmarshal(x.got.Bytes(), &b); err != nil || len(b.Events) != 1 {
				s.w.violation("batch %d: %v %s", seq, err, x.got.String())
				return
			}
			s.learn(seq, b.Events[0])
		case s.acked[seq] || s.known[seq] != "":
			s.w.violation("stream %s: batch %d is lost: %d %s", s.id, seq, x.status, x.got.String())
		}
	}
}
