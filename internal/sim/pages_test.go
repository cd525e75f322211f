package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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
}

// page is the response to a query.
type page struct {
	Batches []json.RawMessage
	Next    weir.Seq
	Cursor  weir.Seq
	Gap     *struct {
		From, To weir.Seq
		Reason   string
	}
	Closed bool
}

// passage is a page that leaves nothing out. If a batch between start and next is not in got, it can
// never be stored.
type passage struct {
	start, next weir.Seq
	got         map[weir.Seq]bool
}

// mostPassages is the number of passages that the model remembers for each stream.
const mostPassages = 30

// page reads a page of batches, perhaps as a long poll.
func (c *client) page(g *server, s *stream) {
	before, at := s.seen(), c.w.clock()
	q := s.query(c, before)
	x := &exchange{}
	if q.wait > 0 {
		x.until = before.time.Add(q.wait + 2*time.Second)
		if before.closed {
			c.w.model.endsSoon(x)
		}
		s.polled(x, q)
		defer s.pollEnded(x)
	}
	method := "GET"
	if c.rng.IntN(20) == 0 {
		method = "HEAD"
	}
	x.gated = c.rng.IntN(3) == 0
	x = c.send(g, x, method, fmt.Sprintf("/v1/streams/%s/batches?%s", s.id, q), nil)
	if x == nil || x.status == 503 {
		return
	}
	s.describes(x)
	if method == "HEAD" {
		if x.status != 200 || x.got.Len() > 0 {
			c.w.violation("stream %s: HEAD of a page: %d with %d bytes", s.id, x.status, x.got.Len())
		}
		return
	}
	var p page
	if err := json.Unmarshal(x.got.Bytes(), &p); err != nil || x.status != 200 {
		c.w.violation("stream %s: page %s: %d %.200s", s.id, q, x.status, x.got.String())
		return
	}
	s.paged(q, &p, g, before, at)
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

// paged checks a page. The parameter at is when the request began, by the server's clock.
func (s *stream) paged(q query, p *page, g *server, before seen, at time.Time) {
	got := map[weir.Seq]bool{}
	low := q.from // the lowest sequence that the next batch may have
	if q.start == "head" && before.cursor > 0 {
		low = before.cursor + 1
	}
	first := weir.Seq(0)
	for i, text := range p.Batches {
		d, ok := s.decode(text)
		if !ok || d.Seq < low {
			s.w.violation("stream %s: page %s: batch %.200s instead of %d or more", s.id, q, text, low)
			return
		}
		if q.start == "since" && d.TS.Before(q.since) {
			s.w.violation("stream %s: page %s: batch %d was stored at %s", s.id, q, d.Seq, d.TS)
		}
		if i == 0 {
			first = d.Seq
		}
		got[d.Seq], low = true, d.Seq+1
		s.read(d, at, before)
		s.storedAt(d)
	}
	s.cursorIs(p.Cursor, before)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(got) > q.limit {
		s.w.violation("stream %s: page %s has %d batches", s.id, q, len(got))
	}
	if len(got) > 0 && p.Next != low || len(got) == 0 && p.Next > p.Cursor+1 {
		s.w.violation("stream %s: page %s with %d batches below %d: next is %d, the cursor is %d", s.id, q, len(got), low, p.Next, p.Cursor)
	}
	s.gapOf(q, p, first, got)
	s.leftOut(q, p, first, got, before)
	s.endsEarly(q, p, g, got, before)
	s.closedPage(q, p, g, before)
	if took := time.Since(before.time); q.wait > 0 && len(got) == 0 && p.Gap == nil && !p.Closed && took < q.wait && !g.stopping.Load() {
		s.w.violation("stream %s: the long poll %s was answered after %v without a batch", s.id, q, took)
	}
}

// storedAt checks that a batch keeps the time at which it was stored.
func (s *stream) storedAt(d delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.times[d.Seq]; ok && !old.Equal(d.TS) {
		s.w.violation("stream %s: batch %d was stored at %s and at %s", s.id, d.Seq, old, d.TS)
	}
	s.times[d.Seq] = d.TS
}

// gapOf checks the gap of a page: everything up to its end may be evicted.
func (s *stream) gapOf(q query, p *page, first weir.Seq, got map[weir.Seq]bool) {
	if p.Gap == nil {
		return
	}
	if p.Gap.Reason != "evicted" || p.Gap.From < q.from || p.Gap.To < p.Gap.From ||
		len(got) > 0 && p.Gap.To >= first || p.Next <= p.Gap.To {
		s.w.violation("stream %s: page %s from %d to %d has the gap %+v", s.id, q, first, p.Next, *p.Gap)
		return
	}
	s.evicted(p.Gap.To+1, "gap of a page")
}

// leftOut checks that the page has every acknowledged batch that it must have below its end.
func (s *stream) leftOut(q query, p *page, first weir.Seq, got map[weir.Seq]bool, before seen) {
	start := first // the page has everything from here on
	switch {
	case p.Gap != nil:
		start = p.Gap.To + 1
	case q.start == "from":
		start = q.from
	case len(got) == 0:
		start = p.Next
	}
	if q.start != "since" && start < p.Next {
		s.passed(&passage{start, p.Next, got})
	}
	newest := 0 // number of acknowledged batches from the first batch of the page upwards
	for _, seq := range slices.Sorted(maps.Keys(before.acked)) {
		if seq >= first {
			newest++
		}
		stored, known := s.times[seq]
		switch {
		case got[seq] || seq >= p.Next:
		case q.start == "oldest" && seq < start,
			q.start == "last" && seq < start && s.possible(seq) <= q.last,
			q.start == "since" && known && !stored.Before(q.since):
			s.evicted(seq+1, "page "+q.String())
		}
	}
	if q.start == "last" && len(got) > 0 && newest > q.last {
		s.w.violation("stream %s: page %s starts with %d, the oldest of %d batches", s.id, q, first, newest)
	}
}

// possible returns the number of sequences from seq upwards under which a batch may be stored.
func (s *stream) possible(seq weir.Seq) (n int) {
	for other := range s.sent {
		if other >= seq {
			n++
		}
	}
	for _, b := range s.unplaced {
		if at, known := s.at[b]; !known || at >= seq {
			n++
		}
	}
	return n
}

// passed checks that a passage has all acknowledged batches, and remembers it for those that are
// acknowledged later.
func (s *stream) passed(p *passage) {
	for _, seq := range slices.Sorted(maps.Keys(s.acked)) {
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

// endsEarly checks that the page does not end before a batch that it could have.
func (s *stream) endsEarly(q query, p *page, g *server, got map[weir.Seq]bool, before seen) {
	next := p.Next
	for closed, ok := s.refused[next]; ok && closed.Before(before.time); closed, ok = s.refused[next] {
		next++ // a closed gap
	}
	if len(got) >= q.limit || !before.acked[next] || s.evictable(next) || g.hurt.Load() {
		return
	}
	if stored, known := s.times[next]; q.start == "since" && (!known || stored.Before(q.since)) {
		return
	}
	s.w.violation("stream %s: page %s has %d batches and ends before %d, but %d was acknowledged before", s.id, q, len(got), p.Next, next)
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

// sleeps reports whether a long poll waits for a batch that was acknowledged more than two seconds
// ago.
func (s *stream) sleeps(x *exchange) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, open := s.polls[x]
	at, acked := s.when[q.from]
	return open && acked && q.start == "from" && time.Since(at) > 2*time.Second
}
