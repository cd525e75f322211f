package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"weir"
)

// query is a request for a page of batches (D37).
type query struct {
	start string // "from", "oldest", "head", "last" or "since"
	from  weir.Seq
	last  int
	since time.Time
	limit int
	wait  time.Duration
	asked time.Time // when the request began
}

// page is the response to a query.
type page struct {
	Batches []jsontext.Value `json:"batches"`
	Next    weir.Seq         `json:"next"`
	Cursor  weir.Seq         `json:"cursor"`
	Gap     *struct {
		From, To weir.Seq
		Reason   string
	} `json:"gap"`
	Closed bool `json:"closed"`
}

// reading is a page that a client has read.
type reading struct {
	*stream
	query
	*page
	server *server
	before seen
	at     time.Time // when the request began, by the server's clock
	first  weir.Seq  // sequence of the first batch
	got    map[weir.Seq]bool
}

// passage is a page that leaves out no batch from start up to next. So if a sequence in this range
// is not in got, no batch can ever be stored under it.
type passage struct {
	start, next weir.Seq
	got         map[weir.Seq]bool
}

// mostPassages is the number of passages that the model remembers for each stream.
const mostPassages = 30

// page reads a page of batches, perhaps as a long poll.
func (c *client) page(g *server, s *stream) {
	before := s.seen()
	c.readPage(g, s, s.query(c, before), before)
}

// readPage reads a page and checks it. It returns nil if there is no page.
func (c *client) readPage(g *server, s *stream, q query, before seen) *reading {
	at := c.w.clock()
	q.asked = before.time
	x := &exchange{}
	if q.wait > 0 {
		x.until = before.time.Add(q.wait + 2*time.Second + c.w.slack())
		if before.closed {
			c.w.model.endsSoon(x)
		}
		s.polled(x, q)
		defer s.pollEnded(x)
	}
	method := "GET"
	if c.n != watcher && c.rng.IntN(20) == 0 {
		method = "HEAD"
	}
	x.gated = c.n != watcher && c.rng.IntN(3) == 0
	x = c.send(g, x, method, fmt.Sprintf("/v1/streams/%s/batches?%s", s.id, q), nil)
	if x == nil || x.status == 503 {
		return nil
	}
	s.describes(x)
	if method == "HEAD" {
		if x.status != 200 || x.got.Len() > 0 {
			c.w.violation("stream %s: HEAD of a page: %d with %d bytes", s.id, x.status, x.got.Len())
		}
		return nil
	}
	var p page
	if err := unmarshal(x.got.Bytes(), &p); err != nil || x.status != 200 {
		c.w.violation("stream %s: page %s: %d %.200s", s.id, q, x.status, x.got.String())
		return nil
	}
	r := &reading{stream: s, query: q, page: &p, server: g, before: before, at: at, got: map[weir.Seq]bool{}}
	r.check()
	return r
}

// query chooses what to ask for.
func (s *stream) query(c *client, before seen) query {
	q := query{start: "oldest", limit: weir.DefaultBatches}
	switch c.rng.IntN(8) {
	case 0, 1, 2:
		q.start, q.from = "from", weir.Seq(1+c.rng.IntN(int(before.cursor)+2))
	case 3:
		q.start = "head"
	case 4:
		q.start, q.last = "last", 1+c.rng.IntN(20)
		q.limit = q.last
	case 5:
		q.start, q.since = "since", s.moment(c)
	}
	if c.rng.IntN(3) > 0 {
		q.limit = 1 + c.rng.IntN(1<<c.rng.IntN(8))
	}
	if c.rng.IntN(3) == 0 {
		q.wait = time.Duration(c.rng.IntN(10)) * time.Second
	}
	return q
}

// moment returns a time at which a batch was stored, or any time of the last minute.
func (s *stream) moment(c *client) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := slices.Sorted(maps.Keys(s.times)); len(known) > 0 && c.rng.IntN(4) > 0 {
		return s.times[known[c.rng.IntN(len(known))]].Add(time.Duration(c.rng.IntN(3)-1) * time.Millisecond)
	}
	return c.w.clock().Add(-time.Duration(c.rng.IntN(60_000_000)) * time.Microsecond)
}

// String returns the query string.
func (q query) String() string {
	var parts []string
	switch q.start {
	case "from":
		parts = append(parts, fmt.Sprintf("from=%d", q.from))
	case "head":
		parts = append(parts, "from=head")
	case "last":
		parts = append(parts, fmt.Sprintf("last=%d", q.last))
	case "since":
		parts = append(parts, "since="+q.since.UTC().Format(time.RFC3339Nano))
	}
	if q.limit != weir.DefaultBatches && q.limit != q.last {
		parts = append(parts, fmt.Sprintf("limit=%d", q.limit))
	}
	if q.wait > 0 {
		parts = append(parts, fmt.Sprintf("wait=%d", q.wait/time.Second))
	}
	return strings.Join(parts, "&")
}

// check checks the page.
func (r *reading) check() {
	s := r.stream
	low := r.from // the lowest sequence that the next batch may have
	if r.start == "head" && r.before.cursor > 0 {
		low = r.before.cursor + 1
	}
	for i, text := range r.Batches {
		d, ok := s.decode(text)
		if !ok || d.Seq < low {
			s.w.violation("stream %s: page %s: got batch %.200s, want sequence %d or higher", s.id, r, text, low)
			return
		}
		if i == 0 {
			r.first = d.Seq
		}
		r.got[d.Seq], low = true, d.Seq+1
		s.read(d, r.at, r.before)
		r.stored(d)
	}
	s.cursorIs(r.Cursor, r.before)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(r.got)
	if n > r.limit {
		s.w.violation("stream %s: page %s has %d batches", s.id, r, n)
	}
	if n > 0 && r.Next != low || n == 0 && r.Next > r.Cursor+1 {
		s.w.violation("stream %s: page %s with %d batches below %d: next is %d, the cursor is %d", s.id, r, n, low, r.Next, r.Cursor)
	}
	r.checkGap()
	r.leavesOut()
	r.endsEarly()
	r.checkClosed()
	// A node that has to read the log again, or is cut off, ends its long polls.
	if took := time.Since(r.before.time); !s.w.isCluster() && r.wait > 0 && n == 0 && r.Gap == nil && !r.Closed && took < r.wait && !r.server.stopping.Load() && !r.vanished() {
		s.w.violation("stream %s: the long poll %s was answered after %v without a batch", s.id, r, took)
	}
}

// vanished reports whether the batches of a page may have been evicted while the page was being
// read. Then the page is empty, unless the query names a sequence or starts at the head.
func (r *reading) vanished() bool {
	for _, seq := range r.acked.from(r.before.low) {
		if r.start != "from" && r.start != "head" && r.evictable(seq) {
			return true
		}
	}
	return false
}

// stored checks the time at which a batch was stored.
func (r *reading) stored(d delivery) {
	s := r.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.start == "since" && d.TS.Before(r.since) {
		s.w.violation("stream %s: page %s has batch %d, which was stored earlier, at %s", s.id, r, d.Seq, d.TS)
	}
	if old, ok := s.times[d.Seq]; ok && !old.Equal(d.TS) {
		s.w.violation("stream %s: batch %d was stored at %s and at %s", s.id, d.Seq, old, d.TS)
	}
	s.times[d.Seq] = d.TS
}

// checkGap checks that everything up to the end of the page's gap may be evicted.
func (r *reading) checkGap() {
	if r.Gap == nil {
		return
	}
	if r.Gap.Reason != "evicted" || r.Gap.From < r.from || r.Gap.To < r.Gap.From || len(r.got) > 0 && r.Gap.To >= r.first || r.Next <= r.Gap.To {
		r.w.violation("stream %s: page %s from %d to %d has the gap %+v", r.id, r, r.first, r.Next, *r.Gap)
		return
	}
	r.evicted(r.Gap.To+1, "gap of a page")
}

// leavesOut checks that the page has every acknowledged batch that it must have below its end.
func (r *reading) leavesOut() {
	start := r.first // the page must have everything from this sequence upwards
	switch {
	case r.Gap != nil:
		start = r.Gap.To + 1
	case r.start == "from":
		start = r.from
	case len(r.got) == 0:
		start = r.Next
	}
	if r.start != "since" && start < r.Next {
		(&passage{start, r.Next, r.got}).keep(r.stream)
	}
	newest := 0 // number of acknowledged batches from the first batch of the page upwards
	for _, seq := range r.before.acked.all() {
		if seq >= r.first {
			newest++
		}
		stored, known := r.times[seq]
		switch {
		case r.got[seq] || seq >= r.Next:
		case r.start == "oldest" && seq < start,
			r.start == "last" && seq < start && r.possible(seq) <= r.last,
			r.start == "since" && known && !stored.Before(r.since):
			r.evicted(seq+1, "page "+r.String())
		}
	}
	if r.start == "last" && len(r.got) > 0 && newest > r.last {
		r.w.violation("stream %s: page %s starts with %d, the oldest of %d batches", r.id, r, r.first, newest)
	}
}

// possible returns the number of sequences from seq upwards under which a batch may be stored.
func (r *reading) possible(seq weir.Seq) (n int) {
	for other := range r.sent {
		if other >= seq {
			n++
		}
	}
	for _, b := range r.unplaced {
		if at, known := r.stream.at[b]; !known || at >= seq {
			n++
		}
	}
	return n
}

// endsEarly checks that the page does not end before a batch that it could include. In a cluster, a
// batch cannot be included if the servers do not answer, for which a node waits.
func (r *reading) endsEarly() {
	next := r.Next
	for closed, ok := r.refused[next]; ok && closed.Before(r.before.time); closed, ok = r.refused[next] {
		next++ // skips a closed gap
	}
	if len(r.got) >= r.limit || !r.before.acked.has(next) || r.evictable(next) || r.server.hurt.Load() {
		return
	}
	if r.w.isCluster() && len(r.got) > 0 && time.Since(r.before.time) > time.Second {
		return
	}
	if stored, known := r.times[next]; r.start == "since" && (!known || stored.Before(r.since)) {
		return
	}
	r.w.violation("stream %s: page %s has %d batches and ends before %d, but %d was acknowledged before", r.id, r, len(r.got), r.Next, next)
}

// checkClosed checks whether the page says that the stream is closed.
func (r *reading) checkClosed() {
	switch {
	case !r.Closed && r.before.closed && r.Next > r.Cursor:
		r.w.violation("stream %s: page %s reaches the end of a closed stream, but does not say so", r.id, r)
	case r.Closed:
		r.isClosed(r.server)
		for _, seq := range r.acked.from(r.Next) {
			r.w.violation("stream %s: page %s is the last of a closed stream, but batch %d was acknowledged", r.id, r, seq)
			return
		}
	}
}

// keep checks that a passage has all acknowledged batches. It remembers the passage, so that
// batches which are acknowledged later can be checked too.
func (p *passage) keep(s *stream) {
	for _, seq := range s.acked.between(p.start, p.next) {
		p.lacks(s, seq)
	}
	if s.passages = append(s.passages, p); len(s.passages) > mostPassages {
		s.passages = s.passages[1:]
	}
}

// lacks reports a violation if an acknowledged batch is missing in the passage.
func (p *passage) lacks(s *stream, seq weir.Seq) {
	if p.start <= seq && seq < p.next && !p.got[seq] {
		s.w.violation("stream %s: batch %d was acknowledged, but a page from %d to %d does not have it", s.id, seq, p.start, p.next)
	}
}

// polled remembers a long poll.
func (s *stream) polled(x *exchange, q query) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polls[x] = q
}

func (s *stream) pollEnded(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.polls, x)
}

// sleeps reports whether a long poll has waited for more than two seconds since both the poll began
// and its batch was acknowledged.
func (s *stream) sleeps(x *exchange) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, open := s.polls[x]
	at, acked := s.when[q.from]
	if at.Before(q.asked) {
		at = q.asked
	}
	return open && acked && q.start == "from" && time.Since(at) > 2*time.Second+s.w.slack()
}
