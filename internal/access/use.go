package access

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/engine"
)

// flushEvery is how often the last use of one key is written, at most.
const flushEvery = time.Minute

// flushers write at once, since the store syncs what comes together with one sync.
const flushers = 32

// Flush stores when keys were last used, each at most once a minute. Call it now and then, and not while the store is
// full: the records of keys are written out of the space that is kept for revoking them. It stops at the first fault; what
// is left is due the next time. It also forgets the rate windows of clients that are gone.
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
	a.windows.demoClients.forget(now.Unix())
	a.windows.anonymousClients.forget(now.Unix())

	var (
		group sync.WaitGroup
		next  atomic.Int64
		fault atomic.Pointer[error] // the first
	)
	for range min(len(due), flushers) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(due)) && fault.Load() == nil; i = next.Add(1) - 1 {
				if err := a.flushKey(ctx, due[i], now); err != nil {
					fault.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	group.Wait()
	if err := fault.Load(); err != nil {
		return *err
	}
	return nil
}

// flushKey stores the last use of one key.
func (a *Access) flushKey(ctx context.Context, e *entry, now time.Time) error {
	err := a.update(ctx, e, func(*Key) bool {
		a.mu.RLock()
		defer a.mu.RUnlock()
		return e.unstored() // after a conflict another node may have stored a later use
	})
	if errors.Is(err, engine.ErrNotFound) { // and forgotten by now
		return nil
	}
	if err != nil {
		return refused("store the last use of key "+e.grant.id, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	e.flushed = now
	return nil
}

// unstored tells whether the key was used since its record was stored. The lock is held.
func (e *entry) unstored() bool {
	used := e.grant.lastUsed()
	return used != 0 && (e.record.LastUsedAt == nil || *e.record.LastUsedAt < used)
}
