package jetstream

import (
	"slices"

	"github.com/nats-io/nats.go"

	"weir/internal/engine"
)

const (
	groupMessages = 500     // of an atomic batch; JetStream takes 1,000
	groupBytes    = 8 << 20 // of payloads that are written together; a single batch may have more
	headRoom      = 16 << 10
	chunkMost     = 1 << 20 // of payload in a message, whatever the servers take

	// What is written together goes into one message up to here, since it is a message that costs: who wants one entry reads all that are in
	// it. In base64 the header must fit into headRoom.
	packBytes = 128 << 10
	packHead  = 8 << 10
)

// group is what one write holds.
type group struct {
	id       uint64
	msgs     []*nats.Msg
	records  []message
	in       []int // which message holds each
	head     int   // bytes that the records of the last message take in its header; 0: it takes no more
	admitted int
	requests []*request
	doubt    bool // an attempt had no answer, and what came first does not say whether it was stored
}

// takeGroup adds to a group what is written together with it. With l.mu held.
func (l *log) takeGroup(group []*request) []*request {
	messages, bytes := 0, 0
	for _, r := range group {
		messages, bytes = messages+r.parts, bytes+r.size
	}
	n := 0
	for ; n < len(l.queue); n++ {
		r := l.queue[n]
		messages, bytes = messages+r.parts, bytes+r.size
		if len(group)+n > 0 && (messages > groupMessages || bytes > groupBytes) {
			break
		}
	}
	group = append(group, l.queue[:n]...)
	if l.queue = l.queue[n:]; len(l.queue) == 0 {
		l.queue = nil
	}
	return group
}

// decide asks the judge about every request and makes messages of what it admits. Requests that nobody waits for and that
// were not asked about are left out.
func (l *log) decide(requests []*request) *group {
	g := &group{id: l.e.node + l.e.groups.Add(1)}
	l.asking.Lock()
	defer l.asking.Unlock()
	for _, r := range requests {
		switch {
		case r.left:
			continue
		case r.entry == nil:
			l.decideTrim(g, r)
		case l.judge.Admit(r.entry):
			g.admitted++
			rec := record{kind: kind(r.entry.Kind), Header: r.entry.Header}
			rec.Flags &= 15
			l.add(g, rec, r.entry.Payload)
		}
		g.requests = append(g.requests, r)
	}
	l.seal(g)
	return g
}

// decideTrim adds a trim. What a judge that follows others knew when it asked for it may be old: it is asked at the trim's place, and
// nothing is added when another process trimmed as far meanwhile.
func (l *log) decideTrim(g *group, r *request) {
	l.mu.Lock()
	low := l.low
	l.mu.Unlock()
	to, note := r.low, r.note
	if f, ok := l.judge.(engine.Follower); ok {
		if to, note = f.Note(); to <= low {
			return
		}
	}
	l.add(g, record{kind: trim, Header: engine.Header{Seq: max(low, to), Size: uint32(len(note))}}, note)
}

// add puts a record into a group: into its last message, or into messages of its own. Payloads are copied: whoever gave them may
// give up waiting.
func (l *log) add(g *group, rec record, payload []byte) {
	n := l.parts(len(payload))
	rec.group, rec.parts, rec.sum = g.id, uint32(n), checksum(payload)
	if rec.isEntry() {
		rec.Kind = engine.Kind(rec.kind)
	}
	if last := len(g.msgs) - 1; n == 1 && g.head > 0 && g.head+rec.most() <= packHead && len(g.msgs[last].Data)+len(payload) <= min(packBytes, l.chunk()) {
		m := g.msgs[last]
		l.put(g, rec, uint32(len(m.Data)))
		m.Data = append(m.Data, payload...)
		g.head += rec.most()
		return
	}
	chunk := l.chunk()
	for i := range n {
		if i > 0 {
			rec = record{kind: part, group: g.id}
		}
		g.msgs = append(g.msgs, &nats.Msg{Subject: l.subject, Data: slices.Clone(payload[i*chunk : min(len(payload), (i+1)*chunk)])})
		l.put(g, rec, 0)
	}
	if g.head = rec.most(); n > 1 {
		g.head = 0
	}
}

// put gives a record of the last message its place.
func (l *log) put(g *group, rec record, offset uint32) {
	rec.position = l.position + uint64(len(g.records)) + 1
	g.records = append(g.records, message{record: rec, offset: offset})
	g.in = append(g.in, len(g.msgs)-1)
}

// seal says in every message what it holds, and of the first one what it is to be stored behind.
func (l *log) seal(g *group) {
	for i := 0; i < len(g.records); {
		in := g.in[i]
		var held []record
		for ; i < len(g.records) && g.in[i] == in; i++ {
			held = append(held, g.records[i].record)
		}
		g.msgs[in].Header = nats.Header{field: {encode(held...)}}
	}
	if len(g.msgs) > 0 {
		expecting(g.msgs[0], l.last)
	}
}

// chunk is how much payload goes into one message.
func (l *log) chunk() int { return int(min(l.e.nc.MaxPayload()-headRoom, chunkMost)) }

func (l *log) parts(size int) int { return max(1, (size+l.chunk()-1)/l.chunk()) }
