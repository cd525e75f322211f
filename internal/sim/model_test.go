package sim

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"weir"
)

// model is what clients may expect of the service. It is written from docs/decisions.md, not from
// the code.
type model struct {
	w         *world
	streams   []*stream
	mu        sync.Mutex
	owns      map[int]*own
	producers map[int]*producer // by number of the client
	libraries map[int]*library  // by number of the client
	venture   *venture          // nil: there is none
}

// grace is the time for which a gap stays open (D4).
const grace = 2 * time.Second

// slack is how much longer than usual a request may take. In a cluster, a request may have to wait
// until the servers answer.
func (w *world) slack() time.Duration {
	if w.isCluster() {
		return 40 * time.Second
	}
	return 0
}

// newModel chooses the streams. In every other stream the clients choose all sequences, so that the
// model knows exactly when a gap can open.
func newModel(w *world) *model {
	m := &model{w: w, owns: map[int]*own{}, producers: map[int]*producer{}, libraries: map[int]*library{}}
	strict := w.rng.IntN(2)
	for i := range 1 + w.rng.IntN(4) {
		s := &stream{
			w: w, n: i, id: weir.StreamID(fmt.Sprintf("stream%016d", i)), mode: weir.JSON, loose: i%2 != strict,
			sent: map[weir.Seq][]*batch{}, unplaced: map[string]*batch{}, keys: map[string]*batch{}, known: map[weir.Seq]*batch{}, at: map[*batch]weir.Seq{},
			fresh: map[weir.Seq]bool{}, refused: map[weir.Seq]time.Time{}, outlived: map[weir.Seq]bool{}, above: map[weir.Seq]time.Time{},
			times: map[weir.Seq]time.Time{}, when: map[weir.Seq]time.Time{}, polls: map[*exchange]query{},
			decoded: map[string]delivery{},
		}
		if w.rng.IntN(3) == 0 {
			s.mode = weir.Raw
		}
		l := &limits{maxBytes: 64 << 20, retention: 24 * time.Hour}
		switch w.rng.IntN(5) {
		case 0, 1:
			l.maxBytes = int64(1500 + w.rng.IntN(1<<(8+w.rng.IntN(8))))
		case 2:
			l.retention = time.Duration(2+w.rng.IntN(1+w.steps/150)) * time.Second
		}
		s.limits, s.floor = []*limits{l}, l.maxBytes
		if s.changes = w.rng.IntN(3) == 0; s.changes {
			s.floor = min(s.floor, 4<<10)
		}
		if w.rng.IntN(4) == 0 {
			s.closeAfter = time.Duration(1+w.rng.IntN(20*w.steps)) * time.Millisecond
		}
		m.streams = append(m.streams, s)
	}
	return m
}

// batch is a batch that a client sends.
type batch struct {
	payload   string
	publisher string
	key       string
	first     time.Time // when it was first sent
	acked     bool      // the batch was acknowledged; used only for a batch with a key
}

// stream is what the clients know about a stream.
type stream struct {
	w       *world
	n       int
	id      weir.StreamID
	mode    weir.Mode
	loose   bool  // clients also publish without choosing a sequence
	floor   int64 // the smallest max_bytes that the stream will have
	changes bool  // clients change the limits

	closeAfter time.Duration // when clients begin to close the stream; 0: never

	mu       sync.Mutex
	created  string                 // x-svc-stream-created
	most     weir.Seq               // highest sequence that was sent; only if loose is false
	above    map[weir.Seq]time.Time // when a batch above this sequence was first sent; only if loose is false
	sent     map[weir.Seq][]*batch  // batches that were sent under a sequence
	unplaced map[string]*batch      // batches that were sent without a sequence, by payload
	keys     map[string]*batch      // the batches of unplaced that have an idempotency key, by key
	known    map[weir.Seq]*batch    // batches that are stored
	at       map[*batch]weir.Seq    // the reverse of known
	acked    acks                   // sequences whose batch was acknowledged
	fresh    map[weir.Seq]bool      // sequences whose batch was acknowledged as new
	refused  map[weir.Seq]time.Time // sequences that were refused for good, and when
	outlived map[weir.Seq]bool      // the sequences of refused that may have been refused because of an eviction; like the field low, this may be undone
	cursor   weir.Seq               // the highest cursor that a client has seen
	low      weir.Seq               // clients were told that everything below this sequence was evicted; if the clock was set back, a restart may undo that
	subs     []*subscriber
	limits   []*limits              // all limits that the stream had
	changing bool                   // a client changes the limits
	closing  bool                   // a client has tried to close the stream
	closed   bool                   // a client knows that the stream is closed
	deleting bool                   // the final check deletes the stream
	times    map[weir.Seq]time.Time // when batches were stored, by the server's clock
	when     map[weir.Seq]time.Time // when batches were first acknowledged
	passages []*passage             // pages that clients have read
	polls    map[*exchange]query    // long polls in progress

	reading sync.Mutex
	decoded map[string]delivery // the batches that clients have received, by their JSON form
}

// seen is what clients knew about a stream when a request began.
type seen struct {
	time   time.Time
	cursor weir.Seq
	low    weir.Seq
	closed bool
	acked  earlier

	repeated bool // the batch of the request was acknowledged before
}

func (s *stream) seen() seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return seen{time: time.Now(), cursor: s.cursor, low: s.low, closed: s.closed, acked: s.acked.earlier(len(s.acked.sorted))}
}

// size is the number of bytes by which a batch increases bytes_stored (D11).
func (s *stream) size(b *batch) int64 {
	if s.mode == weir.Raw {
		return int64(len(b.payload))
	}
	return int64(len(b.payload) + len(`[""]`))
}

// charge is the number of bytes that a batch counts towards max_bytes (D12).
func (s *stream) charge(b *batch) int64 { return max(s.size(b), 128) + int64(len(b.key)) }

// evictable reports whether a batch may be evicted.
func (s *stream) evictable(seq weir.Seq) bool {
	return seq < s.low || slices.ContainsFunc(s.limits, func(l *limits) bool { return l.exceeded(s, seq) })
}

// evicted checks that everything below the sequence low may be evicted, and remembers low.
func (s *stream) evicted(low weir.Seq, source string) {
	for _, seq := range s.acked.between(0, low) {
		if !s.evictable(seq) {
			s.w.violation("stream %s: batch %d is evicted without need (%s)", s.id, seq, source)
			return
		}
	}
	s.low = max(s.low, low)
}

// choose returns a sequence to publish under, and the batch.
func (s *stream) choose(c *client) (weir.Seq, *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq := max(s.next(), s.cursor+1)
	switch r := c.rng.IntN(20); {
	case r < 6: // a batch that was sent before, under the same sequence
		if all := slices.Sorted(maps.Keys(s.sent)); len(all) > 0 {
			seq = all[max(0, len(all)-1-c.rng.IntN(6))]
			return seq, s.sent[seq][c.rng.IntN(len(s.sent[seq]))]
		}
	case r < 9: // leave a gap
		seq += weir.Seq(c.rng.IntN(4))
	case r < 12: // another batch under a sequence that was used or skipped before
		seq -= min(seq, weir.Seq(c.rng.IntN(6)))
	case r == 12 && !s.loose:
		seq += weir.MaxAhead + weir.Seq(c.rng.IntN(3))
		if s.w.isCluster() || s.w.hasLoop() {
			seq += 1000 // the cursor may rise while the request waits for the servers or the event loop
		}
		return seq, &batch{payload: "far", first: time.Now()}
	}
	b := &batch{payload: c.payload(s), first: time.Now()}
	if c.rng.IntN(3) == 0 {
		b.publisher = fmt.Sprintf("c%d-%d", c.n, c.rng.IntN(3))
	}
	s.sent[seq] = append(s.sent[seq], b)
	for ; s.most < seq; s.most++ {
		s.above[s.most] = time.Now()
	}
	return seq, b
}

// next is the lowest sequence above all sequences that clients have chosen.
func (s *stream) next() weir.Seq {
	next := weir.Seq(0)
	for seq := range s.sent {
		next = max(next, seq+1)
	}
	return next
}

// chooseKey returns a batch to publish under the next sequence, perhaps one that was sent before.
func (s *stream) chooseKey(c *client) *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := ""
	if c.rng.IntN(4) > 0 {
		key = fmt.Sprintf("key-%d-%d", c.n, c.rng.IntN(2+len(s.keys)))
		if b := s.keys[key]; b != nil {
			return b
		}
	}
	b := &batch{payload: c.payload(s), key: key, first: time.Now()}
	s.unplaced[b.payload] = b
	if key != "" {
		s.keys[key] = b
	}
	return b
}

// wasAcked reports whether a batch was acknowledged.
func (s *stream) wasAcked(b *batch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return b.acked
}

// find returns the batch that has this payload and may be stored under this sequence.
func (s *stream) find(seq weir.Seq, payload string) *batch {
	for _, b := range s.sent[seq] {
		if b.payload == payload {
			return b
		}
	}
	return s.unplaced[payload]
}

// learn records that a payload is stored under a sequence, and checks that this is allowed.
func (s *stream) learn(seq weir.Seq, payload string) {
	b := s.find(seq, payload)
	if b == nil {
		s.w.violation("stream %s: sequence %d holds %d bytes that no client sent: %.20q", s.id, seq, len(payload), payload)
		return
	}
	if old := s.known[seq]; old != nil && old != b {
		s.w.violation("stream %s: sequence %d holds %.20s and %.20s", s.id, seq, old.payload, payload)
	}
	if old, ok := s.at[b]; ok && old != seq {
		s.w.violation("stream %s: batch %.20s is stored under %d and %d", s.id, payload, old, seq)
	}
	s.known[seq], s.at[b] = b, seq
	s.cursor = max(s.cursor, seq)
}

// acknowledged records that a batch was acknowledged. It checks that no subscriber and no page has
// passed its sequence without the batch.
func (s *stream) acknowledged(seq weir.Seq) {
	if s.acked.add(seq) {
		s.when[seq] = time.Now()
	}
	for _, p := range s.passages {
		p.lacks(s, seq)
	}
	for _, sub := range s.subs {
		if sub.started && sub.start <= seq && seq < sub.pos && !sub.got[seq] {
			s.w.violation("stream %s: batch %d was acknowledged, but a subscriber waits for %d and did not receive it", s.id, seq, sub.pos)
		}
	}
}

// published checks the response to a publish under a chosen sequence.
func (s *stream) published(x *exchange, a ack, seq weir.Seq, b *batch, contiguous bool, before seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	far := b.payload == "far"
	switch {
	case x.status == 409 && x.code() == weir.StreamClosed:
		s.refusedClosed(x.server, before.acked.has(seq) && !s.evictable(seq), fmt.Sprintf("batch %d", seq))
	case before.closed && x.status != 200 && (x.status != 409 || !s.evictable(seq)):
		s.w.violation("stream %s is closed, but the response to publish %d is %d %s", s.id, seq, x.status, x.got.String())
	case x.status == 422 && far, x.status == 412 && far && contiguous:
	case far:
		s.w.violation("stream %s: publish %d far above the cursor %d: %d %s", s.id, seq, before.cursor, x.status, x.got.String())
	case x.status == 202:
		s.stored(x, a, seq, b, contiguous, before)
	case x.status == 200:
		s.repeated(x, a, seq, b)
	case x.status == 409:
		s.gapClosed(x, seq)
	case x.status == 412:
		if !contiguous || seq <= before.cursor+1 {
			s.w.violation("stream %s: publish %d was refused with 412, but the cursor was %d", s.id, seq, before.cursor)
		}
	default:
		s.w.violation("stream %s: publish %d: %d %s", s.id, seq, x.status, x.got.String())
	}
}

func (s *stream) stored(x *exchange, a ack, seq weir.Seq, b *batch, contiguous bool, before seen) {
	if a.Seq != seq || a.Duplicate || a.Cursor < seq || a.Accepted != 1 || x.header.Get(weir.HeaderPublisher) != b.publisher {
		s.w.violation("stream %s: publish %d was acknowledged by %+v, publisher %q", s.id, seq, a, x.header.Get(weir.HeaderPublisher))
	}
	// A client may receive its response late. Meanwhile another client may be told that the batch is a
	// duplicate.
	twice := s.fresh[seq] || before.acked.has(seq)
	s.fresh[seq] = true
	if twice || before.low > seq && !s.w.back {
		s.w.violation("stream %s: sequence %d was stored twice, or after it was evicted", s.id, seq)
	}
	if at, ok := s.refused[seq]; ok && at.Before(before.time) && !(s.outlived[seq] && s.w.back) {
		s.w.violation("stream %s: sequence %d was stored after a refusal", s.id, seq)
	}
	if contiguous && !s.loose && seq > 1 && !s.reachable(seq) {
		s.w.violation("stream %s: a contiguous publish of %d opened a gap", s.id, seq)
	}
	s.learn(seq, b.payload)
	s.acknowledged(seq)
	s.cursor = max(s.cursor, a.Cursor)
}

// reachable reports whether the cursor can have been at seq-1 or above before seq was stored.
func (s *stream) reachable(seq weir.Seq) bool {
	for other := range s.sent {
		if other >= seq-1 && other != seq {
			return true
		}
	}
	return false
}

func (s *stream) repeated(x *exchange, a ack, seq weir.Seq, _ *batch) {
	if a.Seq != seq || !a.Duplicate || a.Cursor < seq || a.Accepted != 1 || len(s.sent[seq]) == 0 && !s.loose {
		s.w.violation("stream %s: publish %d is answered as a duplicate: %+v", s.id, seq, a)
	}
	who := x.header.Get(weir.HeaderPublisher)
	if b := s.known[seq]; b != nil && b.publisher != who {
		s.w.violation("stream %s: sequence %d was stored by publisher %q, but the response names %q", s.id, seq, b.publisher, who)
	}
	s.acknowledged(seq)
	s.cursor = max(s.cursor, a.Cursor)
}

// gapClosed checks a 409, which means that no batch can be stored under this sequence any more.
func (s *stream) gapClosed(x *exchange, seq weir.Seq) {
	if s.evictable(seq) {
		if !s.w.back {
			s.refused[seq], s.outlived[seq] = time.Now(), true
		}
		return
	}
	if s.acked.has(seq) || s.known[seq] != nil {
		s.w.violation("stream %s: sequence %d is stored, but a publish was refused with 409", s.id, seq)
	}
	if x.begun && seq > 0 && !s.w.isCluster() { // another node does not know that the batch is being received; the service never waits for sequence 0
		s.w.violation("stream %s: the gap at %d was closed while the batch was being received: %s", s.id, seq, x.got.String())
	}
	if since, ok := s.above[seq]; !s.loose && seq > 0 && (!ok || time.Since(since) < grace && s.w.stepped.Before(since)) {
		s.w.violation("stream %s: the gap at %d was closed %v after a batch above it was sent", s.id, seq, time.Since(since))
	}
	s.refused[seq], s.outlived[seq] = time.Now(), false
}

// publishedNext checks the response to a publish without a sequence.
func (s *stream) publishedNext(x *exchange, a ack, b *batch, before seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := x.status
	if status == 409 && x.code() == weir.StreamClosed {
		s.refusedClosed(x.server, b.acked && b.key != "", "the batch with key "+b.key)
		return
	}
	if status != 200 && (status != 202 || before.closed) {
		s.w.violation("stream %s: publish: %d %s", s.id, status, x.got.String())
		return
	}
	if a.Duplicate != (status == 200) || a.Accepted != 1 || a.Cursor < a.Seq {
		s.w.violation("stream %s: the response to a publish has status %d and is %+v", s.id, status, a)
	}
	if a.Duplicate && b.key == "" {
		s.w.violation("stream %s: a publish without a key is a duplicate: %+v", s.id, a)
	}
	if at, ok := s.at[b]; b.key != "" && ok && at != a.Seq || before.repeated && !a.Duplicate {
		s.w.violation("stream %s: key %s was stored under %d, but a repeated publish is acknowledged with %+v", s.id, b.key, at, a)
	}
	if !a.Duplicate && a.Seq <= before.cursor {
		s.w.violation("stream %s: sequence %d was assigned, but the cursor was %d", s.id, a.Seq, before.cursor)
	}
	b.acked = true
	s.learn(a.Seq, b.payload)
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

// describes checks the header field with the creation time of the stream, by which clients tell the
// stream from another one with the same id (D39).
func (s *stream) describes(x *exchange) {
	created := x.header.Get(weir.HeaderStreamCreated)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.created == "" {
		s.created = created
	}
	if created != s.created || created == "" {
		s.w.violation("stream %s was created at %s, but a response says %s", s.id, s.created, created)
	}
}

// aged reports whether a batch may be evicted because of its age, in a stream whose limits never
// changed.
func (s *stream) aged(b *batch) bool {
	return time.Since(b.first)+s.w.swing(b.first) >= s.limits[0].retention
}

// gone checks a response which says that a batch does not exist (404).
func (s *stream) gone(seq weir.Seq, message string, wasEvicted bool, before seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case wasEvicted:
		s.evicted(seq+1, "404")
	case before.acked.has(seq):
		s.w.violation("stream %s: batch %d was acknowledged, but cannot be read: %s", s.id, seq, message)
	}
}

// read checks a batch that a client has read. The parameter at is when the request began, by the
// server's clock.
func (s *stream) read(d delivery, at time.Time, before seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Seq < before.low && !s.w.back && !s.w.isCluster() { // a node may not know yet what another one has evicted
		s.w.violation("stream %s: batch %d can be read, but everything below %d was evicted", s.id, d.Seq, before.low)
	}
	if s.mode == weir.JSON && s.w.stepped.Before(before.time) && !d.TS.Add(s.loosest(before.time).retention).After(at) {
		s.w.violation("stream %s: batch %d was stored at %s, but can still be read at %s", s.id, d.Seq, d.TS, at)
	}
	s.learn(d.Seq, d.payload)
}
