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
	return l.propose(ctx, &request{low: low, note: note, size: len(note), parts: l.parts(len(note))})
}

// purgeAfter is how long trimmed messages stay in JetStream. Other nodes may not know of the trim
// yet, and may still read these messages or the records after them. purgeAfter must be longer than
// sureFor, because a node that does not follow the log (receive its messages as they are stored)
// may learn of the trim only after sureFor.
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
	floor, done := l.bottom(), l.over != nil
	done = done || floor <= l.floor
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

// bottom returns the JetStream sequence of the oldest message that is still needed. The caller
// holds l.mu.
func (l *log) bottom() uint64 {
	// The message of the last trim is still needed, because it holds the note.
	floor := l.note
	for i := range l.index {
		floor = min(floor, l.index[i].js)
	}
	return floor
}

// tidy carries out the purges that are due. While the servers are full, it carries out all
// scheduled purges.
func (e *Engine) tidy() {
	due := map[engine.LogID]purging{}
	full := e.room.full.Load() != nil
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
			e.background(func() { e.purge(e.ctx, s.stream, s.subject(id), p.floor) })
			continue
		}
		if full {
			l.mu.Lock()
			p.floor = l.bottom()
			l.mu.Unlock()
		}
		e.background(func() { l.purge(p.floor) })
	}
}

// purge removes the messages with a sequence below floor.
func (l *log) purge(floor uint64) {
	err := l.e.purge(l.e.ctx, l.shard.stream, l.subject, floor)
	l.mu.Lock()
	if err == nil {
		l.floor = max(l.floor, floor)
	} else {
		l.e.opts.Logger.Debug("purge failed, evicted entries keep their space", "log", l.id, "error", err)
	}
	l.mu.Unlock()
	l.purgeLater() // the log may have been trimmed again
}

// purge removes the messages of a subject whose sequence is below floor. If floor is 0, it removes
// all of them.
func (e *Engine) purge(ctx context.Context, stream, subject string, floor uint64) error {
	_, err := withRetry(ctx, e, func(ctx context.Context) (bool, error) { return true, e.servers.Purge(ctx, stream, subject, floor) })
	return err
}
