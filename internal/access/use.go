package access

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/engine"
	"weir/internal/shrink"
)

// flushEvery is the minimum time between two writes of one key's last use.
const flushEvery = time.Minute

// flushers is the number of keys that Flush writes concurrently. The store combines concurrent
// writes into one sync.
const flushers = 32

// Flush stores the last use of each key and management token, at most once per minute for each of
// them. It leaves out keys that revoke themselves: their last use is kept in memory only, because a
// service may have very many of them. Call Flush periodically, but not while the store is full: its
// writes would use up the space that is reserved for revoking keys. It stops at the first error, and
// the next call writes the rest.
func (a *Access) Flush(ctx context.Context) error { return a.flush(ctx, flushEvery) }

// Close stores the last use of all keys. Access has nothing else to close.
func (a *Access) Close(ctx context.Context) error { return a.flush(ctx, 0) }

func (a *Access) flush(ctx context.Context, every time.Duration) error {
	now := a.now()
	var due []*entry
	a.mu.RLock()
	for _, all := range []*shrink.Map[string, *entry]{&a.keys, &a.tokens} {
		for _, e := range all.All() {
			if e.unstored() && now.Sub(e.flushed) >= every {
				due = append(due, e)
			}
		}
	}
	slices.SortFunc(due, func(d, e *entry) int { return cmp.Compare(d.record.ID, e.record.ID) }) // so that a simulation stores them in the same order each time
	a.mu.RUnlock()

	var (
		group sync.WaitGroup
		next  atomic.Int64
		fault atomic.Pointer[error] // the first error
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
		return e.unstored() // false if another node has stored a later use in the meantime
	})
	if errors.Is(err, engine.ErrNotFound) { // the key was deleted in the meantime
		return nil
	}
	if err != nil {
		return storeError("store the last use of key "+e.grant.id, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	e.flushed = now
	return nil
}

// unstored reports whether the last use of the key must still be stored: it is later than the
// stored record says, and the key does not revoke itself. Called with Access.mu held.
func (e *entry) unstored() bool {
	if e.record.RevokeAt != nil {
		return false
	}
	used := e.grant.lastUsed()
	return used != 0 && (e.record.LastUsedAt == nil || *e.record.LastUsedAt < used)
}
