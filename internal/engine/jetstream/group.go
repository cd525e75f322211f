package jetstream

import (
	"weir"
	"weir/internal/engine"
	"weir/internal/engine/jetstream/record"
	"weir/internal/engine/jetstream/wire"
)

const (
	groupMessages = 500     // maximum number of messages in an atomic batch; JetStream would accept 1,000
	groupBytes    = 8 << 20 // maximum number of payload bytes in a group; a group with a single entry may have more
)

// group is the content of one write, and the requests that the write answers.
type group struct {
	*record.Group
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
func (w *writer) decide(requests []*request) *group {
	l, bytes := w.l, 0
	for _, r := range requests {
		bytes += r.size
	}
	// l.e.node is a random number, so writes of different nodes do not share an id.
	g := &group{Group: record.NewGroup(l.e.node+l.e.groups.Add(1), l.subject, l.position, l.e.chunk(), bytes)}
	w.asking.Lock()
	defer w.asking.Unlock()
	for _, r := range requests {
		switch {
		case r.left:
			continue
		case r.entry == nil:
			w.decideTrim(g, r)
		case l.judge.Admit(r.entry):
			g.admitted++
			rec := record.Record{Header: r.entry.Header}
			if rec.Version() > l.e.common() {
				g.newer = append(g.newer, r)
			}
			rec.Flags &= 15
			g.Add(rec, r.entry.Payload)
		}
		g.requests = append(g.requests, r)
	}
	if g.Seal(); len(g.Messages) > 0 {
		// The last message of the log must still be the one that was known when the judge decided.
		wire.Expect(g.Messages[0], l.last)
	}
	return g
}

// decideTrim adds a trim to the group. If other nodes use the log, the arguments of Trim may be
// outdated by now, so decideTrim asks the judge for current values (Note). If another node has
// already trimmed the log that far, decideTrim adds nothing.
func (w *writer) decideTrim(g *group, r *request) {
	l := w.l
	l.mu.Lock()
	low := l.index.low
	l.mu.Unlock()
	to, note := r.low, r.note
	if l.follower != nil {
		if to, note = l.follower.Note(); to <= low {
			return
		}
	}
	low = max(low, to)
	g.Add(record.Record{Header: engine.Header{Kind: record.Trim, Seq: low, First: w.oldestNeeded(g, low), Size: uint32(len(note))}}, note)
}

// oldestNeeded returns the position of the oldest record that is still needed after a trim that
// removes all entries below low. The trim will be the next record of the group, and this position
// is stored with it. If the log begins with a later record when it is opened, records were removed
// that should be there. The result is a weir.Seq because the field of the record that holds it has
// this type.
func (w *writer) oldestNeeded(g *group, low weir.Seq) weir.Seq {
	oldest := g.Next()
	for _, m := range g.Records {
		if m.IsEntry() && m.Seq >= low {
			oldest = min(oldest, m.Position)
		}
	}
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	for _, e := range w.l.index.from(low) {
		oldest = min(oldest, e.position)
	}
	return weir.Seq(oldest)
}
