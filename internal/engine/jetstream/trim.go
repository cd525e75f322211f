package jetstream

import (
	"context"
	"maps"
	"slices"
	"time"

	"weir"
	"weir/internal/engine"
)

// Trim implements engine.Log. It stores the lowest kept sequence (low) and the note of the judge
// (engine.Judge, the rules of the stream) in one message of the log. The messages of the removed
// entries are purged later.
func (l *log) Trim(ctx context.Context, low weir.Seq, note []byte) error {
	return l.ask(ctx, &request{low: low, note: note, size: len(note), parts: l.e.chunk().Parts(len(note))}, &l.queue)
}

// purgeAfter is how long trimmed messages stay in JetStream. Other nodes may not know of the trim
// yet, and may still read these messages or the records after them. A node that follows the log
// receives its messages as they are stored. Any other node may learn of the trim only after sureFor,
// so purgeAfter must be longer than that.
const purgeAfter = sureFor + 8*time.Second

// purging is a scheduled purge.
type purging struct {
	at    time.Time
	floor uint64 // all messages with a lower sequence are removed
}

// purgeLater schedules a purge of all messages that come before the oldest kept entry and before
// the last trim. The purge happens when all nodes have had time to learn of the trim.
func (l *log) purgeLater() {
	l.mu.Lock()
	floor := l.index.bottom()
	done := l.over != nil || floor <= l.index.floor
	l.mu.Unlock()
	if done {
		return
	}
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	if _, waits := l.e.later[l.id]; !waits {
		l.e.later[l.id] = purging{time.Now().Add(purgeAfter), floor}
	}
}

// tidy carries out the purges that are due. While the servers are full, it carries out all
// scheduled purges.
func (e *Engine) tidy() {
	due := map[engine.LogID]purging{}
	full := e.space.Full() != nil
	e.mu.Lock()
	for id, p := range e.later {
		if full || time.Now().After(p.at) {
			delete(e.later, id)
			due[id] = p
		}
	}
	e.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(due)) {
		p, l := due[id], e.opened(id)
		if l == nil || !l.started() {
			// The log is no longer open on this node. If this purge fails, the next node that reads
			// the whole log repeats it.
			s := e.shard(id)
			e.background(func() { e.client.Clear(e.client.Life, s.Stream, s.subject(id), p.floor) })
			continue
		}
		if full {
			l.mu.Lock()
			p.floor = l.index.bottom()
			l.mu.Unlock()
		}
		e.background(func() { l.purge(p.floor) })
	}
}

// purge removes the messages with a sequence below floor.
func (l *log) purge(floor uint64) {
	err := l.e.client.Clear(l.e.client.Life, l.shard.Stream, l.subject, floor)
	l.mu.Lock()
	if err == nil {
		l.index.floor = max(l.index.floor, floor)
	} else {
		l.e.opts.Logger.Debug("purge failed, evicted entries keep their space", "log", l.id, "error", err)
	}
	l.mu.Unlock()
	l.purgeLater() // the log may have been trimmed again
}
