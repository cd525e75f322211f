package jetstream

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"weir"
	"weir/internal/engine"
)

// Trim remembers what is gone and the note in one message of the log. What is behind it is purged after that.
func (l *log) Trim(ctx context.Context, low weir.Seq, note []byte) error {
	return l.propose(ctx, &request{low: low, note: note, done: make(chan error, 1), size: len(note), parts: l.parts(len(note))})
}

// purgeAfter is how long what was trimmed stays: others may not have heard of it yet, and read it, or what lies behind it.
const purgeAfter = sureFor + 8*time.Second

// purging is what is to be taken back of a log, and when.
type purging struct {
	at    time.Time
	floor uint64 // everything before it
}

// purgeLater has the servers take back what lies before every kept entry and the last trim, when everybody had the time to hear
// of it.
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

// bottom is the place before which nothing counts any more. With l.mu held.
func (l *log) bottom() uint64 {
	floor := l.note
	for i := range l.index {
		floor = min(floor, l.index[i].js)
	}
	return floor
}

// tidy purges what has waited long enough; while there is no space, everything at once.
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
	for id, p := range due {
		l := e.opened(id)
		if l == nil || !l.started() { // closed meanwhile; what cannot be purged now is purged by whoever opens it next
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

// purge has the servers take back what is before a place.
func (l *log) purge(floor uint64) {
	err := l.e.purge(l.e.ctx, l.shard.stream, l.subject, floor)
	l.mu.Lock()
	if err == nil {
		l.floor = max(l.floor, floor)
	} else {
		l.e.opts.Logger.Debug("evicted entries keep their space for now", "log", l.id, "error", err)
	}
	l.mu.Unlock()
	l.purgeLater() // it may have been trimmed again
}

// purge removes the messages of a subject before a place; 0: all of them.
func (e *Engine) purge(ctx context.Context, stream, subject string, before uint64) error {
	ask, err := json.Marshal(map[string]any{"filter": subject, "seq": before})
	if err != nil {
		return err
	}
	_, err = withRetry(ctx, e, func(ctx context.Context) (bool, error) {
		answer, err := e.nc.RequestWithContext(ctx, "$JS.API.STREAM.PURGE."+stream, ask)
		if err != nil {
			return false, err
		}
		var got struct {
			Error *jetstream.APIError `json:"error"`
		}
		if err := json.Unmarshal(answer.Data, &got); err != nil {
			return false, err
		}
		if got.Error != nil {
			return false, got.Error
		}
		return true, nil
	})
	return err
}
