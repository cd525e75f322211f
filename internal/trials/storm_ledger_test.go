package trials

import (
	"fmt"
	"hash/fnv"
	"sync"
	"time"
)

const (
	// retention is how long the streams of TestStorm keep a batch. It is the shortest that the
	// service accepts.
	retention = 60 * time.Second
	// grace is the default of --gap-grace.
	grace = 2 * time.Second
	// punctual is by how much a node may be early or late with a decision that depends on the time:
	// the service measures time in milliseconds, and a stamp is made a moment before it is stored.
	punctual = 2 * time.Second
	// skew is by how much the clocks of nodes may differ (D18). A node may serve a batch for this
	// long after another node has evicted it, and may stamp a batch with a time that is this wrong.
	skew = 5 * time.Second
)

// fate is what a client knows about a batch that it has published.
type fate int

const (
	pending fate = iota // the client repeats the publish
	acked               // a node has acknowledged it
	closed              // a node has answered that its sequence is in a closed gap: it was never stored
	perhaps             // a node has answered that its sequence was evicted: it may have been stored before
)

// published is a batch that a client of TestStorm has published. Times are those of the test, whose
// clock is always right.
type published struct {
	name  string // for messages
	sum   uint64 // of the bytes
	seq   int64
	fate  fate
	sent  time.Time // before the first attempt
	known time.Time // when fate was decided
}

// arrival is a batch or a gap that a subscriber got. A gap has the sequences from seq to to.
type arrival struct {
	seq, to int64
	ts      time.Time
	sum     uint64
	at      time.Time
}

// book is what clients know about one stream of TestStorm. Its rules:
//
//  1. A batch is acknowledged once, and every read of its sequence returns its bytes.
//  2. A batch that a node has answered with "in a closed gap" was never stored: no client ever sees
//     its sequence. A gap closes no earlier than grace after the first attempt to store a batch
//     above it. A batch that was answered with "evicted" may have been stored or not.
//  3. A batch is readable on every node until it is retention old. Its age is at most the time since
//     its first attempt, so a 404 or an eviction that comes earlier than retention after that
//     attempt is an error: the batch was lost, or evicted by a wrong clock.
//  4. A batch is not readable any more when it is older than retention and skew. Its age is at least
//     the time since its acknowledgement.
//  5. The time of a batch is between its first attempt and its acknowledgement, give or take skew: no
//     node stamps with a wrong clock. If the server chooses the sequences, times never decrease.
//  6. A subscriber sees sequences in increasing order, and every acknowledged batch once, or a gap
//     event with reason evicted whose range includes the batch. By rule 3, the event comes no
//     earlier than retention after the first attempt.
//  7. At the end, all nodes have the same batches, and among them is every acknowledged batch that
//     rule 3 protects.
type book struct {
	mu     sync.Mutex
	all    []*published
	bySeq  map[int64]*published // batches whose sequence is known
	seen   [][]arrival          // by subscriber
	faults []string             // broken rules
	last   time.Time            // time of the last acknowledgement
	worst  time.Duration        // longest time between two acknowledgements
	acks   int
	top    int64 // highest acknowledged sequence
}

func newBook(subscribers int) *book {
	return &book{bySeq: map[int64]*published{}, seen: make([][]arrival, subscribers), last: time.Now()}
}

func sumOf(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64()
}

// fail notes a broken rule. The caller holds b.mu.
func (b *book) fail(format string, args ...any) {
	b.faults = append(b.faults, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// send notes a batch before its first attempt. The parameter seq is 0 if the server chooses it.
func (b *book) send(name, body string, seq int64) *published {
	p := &published{name: name, sum: sumOf(body), seq: seq, sent: time.Now()}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, p)
	if seq > 0 {
		b.bySeq[seq] = p
	}
	return p
}

// ack notes an acknowledgement.
func (b *book) ack(p *published, seq int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.fate, p.known = acked, time.Now()
	if p.seq > 0 && p.seq != seq {
		b.fail("batch %s with sequence %d was acknowledged with sequence %d", p.name, p.seq, seq)
	}
	if other := b.bySeq[seq]; other != nil && other != p {
		b.fail("sequence %d was acknowledged for two batches: %s and %s", seq, other.name, p.name)
	}
	p.seq = seq
	b.bySeq[seq] = p
	b.acks++
	b.top = max(b.top, seq)
	b.worst = max(b.worst, time.Since(b.last))
	b.last = time.Now()
}

// settle notes a refusal.
func (b *book) settle(p *published, f fate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.fate, p.known = f, time.Now()
	if f == perhaps && time.Since(p.sent) < retention-punctual {
		b.fail("sequence %d counts as evicted %v after its first attempt", p.seq, time.Since(p.sent))
	}
}

// read notes the answer to a read of one batch that was acknowledged (rules 1, 3, 4).
func (b *book) read(who string, p *published, begun time.Time, found bool, sum uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case found && sum != p.sum:
		b.fail("%s returned other bytes for batch %d (%s)", who, p.seq, p.name)
	case found && begun.Sub(p.known) > retention+skew:
		b.fail("%s served batch %d %v after its acknowledgement", who, p.seq, begun.Sub(p.known))
	case !found && time.Since(p.sent) < retention-punctual:
		b.fail("%s has lost batch %d (%s) or evicted it early: 404 at %v after its first attempt", who, p.seq, p.name, time.Since(p.sent))
	}
}

// check applies the rules for closed gaps (2) and for subscribers (1, 5, 6), and returns all broken
// rules.
func (b *book) check(ordered bool) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checkClosed()
	for i, seen := range b.seen {
		b.checkSeen(fmt.Sprint("subscriber ", i), seen, ordered)
	}
	return b.broken()
}

// broken returns the broken rules that are known so far, but not more than a reader needs. The caller
// holds b.mu.
func (b *book) broken() []string {
	if len(b.faults) > 20 {
		return append(b.faults[:20:20], fmt.Sprintf("and %d more", len(b.faults)-20))
	}
	return b.faults
}

// checkClosed checks that no gap was closed early.
func (b *book) checkClosed() {
	highest := int64(0)
	for seq := range b.bySeq {
		highest = max(highest, seq)
	}
	above := time.Now() // the earliest first attempt of a batch above seq
	for seq := highest; seq > 0; seq-- {
		p := b.bySeq[seq]
		if p == nil {
			continue
		}
		if p.fate == closed && p.known.Sub(above) < grace-punctual/4 {
			b.fail("the gap at %d closed %v after the first batch above it was sent", seq, p.known.Sub(above))
		}
		if p.sent.Before(above) {
			above = p.sent
		}
	}
}

// checkSeen checks what one subscriber got.
func (b *book) checkSeen(who string, seen []arrival, ordered bool) {
	last, stamp := int64(0), time.Time{}
	missing := func(from, to int64) {
		for seq := from; seq < to; seq++ {
			if p := b.bySeq[seq]; p != nil && p.fate == acked {
				b.fail("%s did not get batch %d (%s)", who, seq, p.name)
			}
		}
	}
	for _, a := range seen {
		if a.seq <= last {
			b.fail("%s got %d after %d", who, a.seq, last)
		}
		missing(last+1, a.seq)
		last = max(a.seq, a.to)
		if a.to > 0 {
			b.checkGap(who, a)
			continue
		}
		p := b.bySeq[a.seq]
		switch {
		case p == nil:
			b.fail("%s got batch %d, which no client has published", who, a.seq)
			continue
		case p.fate == closed:
			b.fail("%s got batch %d, whose gap is closed", who, a.seq)
		case p.sum != a.sum:
			b.fail("%s got other bytes for batch %d (%s)", who, a.seq, p.name)
		case a.ts.Before(p.sent.Add(-skew)) || a.ts.After(p.known.Add(skew)):
			b.fail("batch %d has the time %v, but was sent at %v and acknowledged at %v", a.seq, a.ts, p.sent, p.known)
		case ordered && a.ts.Before(stamp):
			b.fail("the time of batch %d is earlier than that of the batch before it", a.seq)
		}
		stamp = a.ts
	}
	missing(last+1, b.top+1)
}

// checkGap checks that a gap event names no batch that must still be kept.
func (b *book) checkGap(who string, a arrival) {
	for seq := a.seq; seq <= a.to; seq++ {
		if p := b.bySeq[seq]; p != nil && p.fate == acked && a.at.Sub(p.sent) < retention-punctual {
			b.fail("%s was told that batch %d (%s) is evicted %v after its first attempt", who, seq, p.name, a.at.Sub(p.sent))
			return
		}
	}
}

// checkLogs compares the final logs of all nodes (rule 7). The parameter kept is when the nodes
// stopped evicting. At that time a node may already have evicted batches that another node had not.
// So checkLogs compares the logs above the lowest batch that all nodes have.
func (b *book) checkLogs(logs [][]sighting, kept time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	low := int64(0)
	for _, log := range logs {
		low = max(low, log[0].seq)
	}
	first := map[int64]sighting{}
	for node, log := range logs {
		have := map[int64]sighting{}
		for _, s := range log {
			if p := b.bySeq[s.seq]; p == nil || p.fate == closed || p.sum != sumOf(s.events) {
				b.fail("node %d stores batch %d, which no client has published so: %+v", node, s.seq, p)
			}
			if have[s.seq] = s; s.seq < low {
				continue
			}
			if node == 0 {
				first[s.seq] = s
			} else if first[s.seq] != s {
				b.fail("nodes 0 and %d differ at batch %d", node, s.seq)
			}
		}
		for seq := range first {
			if _, ok := have[seq]; !ok {
				b.fail("node 0 has batch %d, node %d has not", seq, node)
			}
		}
		for _, p := range b.all {
			if _, ok := have[p.seq]; p.fate == acked && kept.Sub(p.sent) < retention-punctual && !ok {
				b.fail("node %d has lost batch %d (%s)", node, p.seq, p.name)
			}
		}
	}
}
