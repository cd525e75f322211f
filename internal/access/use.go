package access

import (
	"context"
	"errors"
	"time"

	"weir"
	"weir/internal/engine"
)

// flushEvery is how often the last use of one key is written, at most.
const flushEvery = time.Minute

// Flush stores when keys were last used, each at most once a minute. Call it now and then, and not while the store is
// full: the records of keys are written out of the space that is kept for revoking them. It goes on after a key that
// cannot be written, unless the store is to blame.
func (a *Access) Flush(ctx context.Context) error { return a.flush(ctx, flushEvery) }

// Close stores when keys were last used, all of them. Nothing else needs closing.
func (a *Access) Close(ctx context.Context) error { return a.flush(ctx, 0) }

func (a *Access) flush(ctx context.Context, every time.Duration) error {
	now := a.now()
	var due []*entry
	a.mu.RLock()
	for _, e := range a.keys {
		if e.unstored() && now.Sub(e.flushed) >= every {
			due = append(due, e)
		}
	}
	a.mu.RUnlock()
	var faults []error
	for _, e := range due {
		err := a.update(ctx, e, func(k *Key) bool { return k.LastUsedAt != nil })
		switch {
		case err == nil:
			a.mu.Lock()
			e.flushed = now
			a.mu.Unlock()
		case errors.Is(err, engine.ErrNotFound): // forgotten
		default:
			faults = append(faults, refused("store the last use of key "+e.grant.id, err))
			var known *weir.Error
			if ctx.Err() != nil || errors.As(faults[len(faults)-1], &known) {
				return errors.Join(faults...)
			}
		}
	}
	return errors.Join(faults...)
}

// unstored tells whether the key was used since its record was stored. The lock is held.
func (e *entry) unstored() bool {
	used := e.grant.lastUsed()
	return used != 0 && (e.record.LastUsedAt == nil || *e.record.LastUsedAt < used)
}
