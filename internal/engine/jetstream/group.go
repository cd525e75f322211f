package jetstream

import (
	"slices"

	"github.com/nats-io/nats.go"

	"weir"
	"weir/internal/engine"
)

const (
	groupMessages = 500      // maximum number of messages in an atomic batch; JetStream would accept 1,000
	groupBytes    = 8 << 20  // maximum number of payload bytes in a group; a group with a single entry may have more
	headRoom      = 16 << 10 // bytes of a message that are reserved for its header
	chunkMost     = 1 << 20  // maximum number of payload bytes in a message, even if the servers accept more

	// Entries that are written together share a message, because the cost of JetStream is per
	// message. packBytes limits the payloads in a message, because reading one entry reads its
	// whole message. packHead limits the encoded records, which must fit into headRoom in base64.
	packBytes = 128 << 10
	packHead  = 8 << 10
)

// group is the content of one write: the messages, the records in them, and the requests that the
// write answers. A record is one element of a log, such as an entry or a trim.
type group struct {
	id       uint64 // identifies this write, so that the node recognises its own records when it reads the log
	msgs     []*nats.Msg
	records  []message  // in the order of their positions
	in       []int      // for each record: the index in msgs of the message that holds it
	head     int        // header bytes used by the last message; 0 if no more records may be added to it
	admitted int        // number of entries that the judge (engine.Judge) admitted
	requests []*request // the requests that this write answers
	newer    []*request // those of the requests whose entries another, older node could not read
	// doubt is true if an earlier attempt to store the group got no answer, and the records found
	// in the log do not show whether it was stored.
	doubt bool
}

// takeGroup adds requests from the queue to a list of requests, as long as one write can hold them,
// and returns the list. The caller holds l.mu.
func (l *log) takeGroup(list []*request) []*request {
	messages, bytes := 0, 0
	for _, r := range list {
		messages, bytes = messages+r.parts, bytes+r.size
	}
	n := 0
	for ; n < len(l.queue); n++ {
		r := l.queue[n]
		messages, bytes = messages+r.parts, bytes+r.size
		if len(list)+n > 0 && (messages > groupMessages || bytes > groupBytes) {
			break
		}
	}
	list = append(list, l.queue[:n]...)
	if l.queue = l.queue[n:]; len(l.queue) == 0 {
		l.queue = nil
	}
	return list
}

// decide asks the judge (engine.Judge, which applies the rules of the stream) about every request,
// and builds messages from the entries that the judge admits. It leaves out requests whose callers
// stopped waiting before the judge was asked.
func (l *log) decide(requests []*request) *group {
	// l.e.node is a random number, so writes of different nodes do not share an id.
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
			if rec.version() > l.e.common() {
				g.newer = append(g.newer, r)
			}
			rec.Flags &= 15
			l.add(g, rec, r.entry.Payload)
		}
		g.requests = append(g.requests, r)
	}
	l.seal(g)
	return g
}

// decideTrim adds a trim to the group. If other nodes use the log, the arguments of Trim may be
// outdated by now, so decideTrim asks the judge for current values (Note). If another node has
// already trimmed the log that far, decideTrim adds nothing.
func (l *log) decideTrim(g *group, r *request) {
	l.mu.Lock()
	low := l.low
	l.mu.Unlock()
	to, note := r.low, r.note
	if l.follower != nil {
		if to, note = l.follower.Note(); to <= low {
			return
		}
	}
	low = max(low, to)
	l.add(g, record{kind: trim, Header: engine.Header{Seq: low, First: l.oldestNeeded(g, low), Size: uint32(len(note))}}, note)
}

// oldestNeeded returns the position of the oldest record that is still needed after a trim that
// removes all entries below low. The trim will be the next record of the group, and this position
// is stored with it. If the log begins with a later record when it is opened, records were removed
// that should be there. The result is a weir.Seq because the field of the record that holds it has
// this type.
func (l *log) oldestNeeded(g *group, low weir.Seq) weir.Seq {
	oldest := l.position + uint64(len(g.records)) + 1
	for _, m := range g.records {
		if m.isEntry() && m.Seq >= low {
			oldest = min(oldest, m.position)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := l.find(low)
	for _, e := range l.index[i:] {
		oldest = min(oldest, e.position)
	}
	return weir.Seq(oldest)
}

// add puts a record into a group: into the last message if it fits, otherwise into one or more
// messages of its own. It copies the payload, because a caller that stops waiting may reuse its
// payload while the write is still being repeated.
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

// put adds a record to the group and gives it the next position in the log. The last message of the
// group holds the record.
func (l *log) put(g *group, rec record, offset uint32) {
	rec.position = l.position + uint64(len(g.records)) + 1
	g.records = append(g.records, message{record: rec, offset: offset})
	g.in = append(g.in, len(g.msgs)-1)
}

// seal describes in the header of every message the records that the message holds. It also sets
// the condition of the write: the last message of the log must still be l.last, the one that was
// known when the judge decided about the group.
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

// chunk returns how many bytes of payload fit into one message.
func (l *log) chunk() int { return int(min(l.e.servers.MaxPayload()-headRoom, chunkMost)) }

// parts returns how many messages a payload of this size takes.
func (l *log) parts(size int) int { return max(1, (size+l.chunk()-1)/l.chunk()) }
