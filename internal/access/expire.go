package access

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/shrink"
)

// A key with Key.RevokeAt revokes itself at that time (D36). No write is needed for that: every
// node ends the grant (the permissions) of the key by its own clock, and after a restart the record
// still says when the key ends. Revoked keys are forgotten later: their documents are deleted, so
// that keys with a short life do not fill memory and disk.
const (
	// keepExpired is how long a key is remembered after it has revoked itself. It must be at least
	// twice idempotencyHour. Otherwise CreateKeyOnce could create a revoked key again.
	keepExpired = 2 * time.Hour

	// keepRevoked is how long a key or token is remembered after a person or program has revoked it.
	keepRevoked = 30 * 24 * time.Hour

	// maxRevoked is the maximum number of revoked keys and tokens that are remembered. If there are
	// more, those that are due first are forgotten early, but none is forgotten within keepExpired
	// of its creation.
	maxRevoked = 100_000

	// maxForget is the maximum number of documents that one call of Forget deletes.
	maxForget = 50_000
)

// steady is a clock that never goes back and never stops. It follows the wall clock when that is set
// forward. While the wall clock is behind, steady advances with the monotonic clock of the process.
// Without it, a key could outlive its time if the wall clock were set back.
type steady struct {
	wall      func() time.Time
	monotonic func() time.Time // time.Now, except in tests

	mu    sync.Mutex
	last  time.Time // when the clock was last read, with a monotonic reading
	nanos int64     // what this clock showed then, in Unix nanoseconds
}

// wallTime returns the time of the wall clock. The times in records are times of this clock.
func (s *steady) wallTime() weir.Time { return weir.TimeOf(s.wall()) }

// now returns the time of the steady clock.
func (s *steady) now() weir.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.monotonic()
	s.nanos = max(s.nanos+max(0, int64(at.Sub(s.last))), s.wall().UnixNano())
	s.last = at
	return weir.Time(s.nanos / int64(time.Millisecond))
}

// SetClock sets the clock by which keys revoke themselves, and from which new records get their
// times. Open sets it to Options.Now. On a node of a cluster, whose own clock may be wrong, the
// caller sets the clock of the cluster once it knows that clock. SetClock must not be called
// concurrently with other methods.
//
// If a time in a record is later than the clock, the clock was set back. The steady clock then
// starts at the time in the record, so that no revoked key becomes valid again.
func (a *Access) SetClock(clock func() time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	newest := weir.Time(0)
	for _, e := range a.digests.All() {
		newest = max(newest, e.record.CreatedAt)
		for _, t := range []*weir.Time{e.record.LastUsedAt, e.record.RevokedAt} {
			if t != nil {
				newest = max(newest, *t)
			}
		}
	}
	a.steady.mu.Lock()
	a.steady.wall, a.steady.last, a.steady.nanos = clock, a.now(), newest.Std().UnixNano()
	a.steady.mu.Unlock()
	now := a.steady.now()
	for _, e := range a.digests.All() {
		a.planAt(e, now, now)
	}
}

// plan puts a key or token on the agenda (a list ordered by time) that it belongs to. Called with
// a.mu held.
func (a *Access) plan(e *entry) { a.planAt(e, a.steady.now(), a.steady.wallTime()) }

// planAt does the work of plan. It gets the time of the steady clock (now) and the time of the wall
// clock (wall). It compares the times in a record only with the wall clock, so that a key lives as
// long as it was meant to, even if the wall clock was wrong when the key was created.
func (a *Access) planAt(e *entry, now, wall weir.Time) {
	e.leave()
	k := &e.record
	if k.RevokeAt != nil && !e.grant.hasEnded() {
		e.at = now + min(*k.RevokeAt-wall, *k.RevokeAt-k.CreatedAt)
		e.grant.due.Store(int64(e.at))
		e.join(&a.ending)
		return
	}
	revoked, keep := k.RevokedAt, keepRevoked
	if revoked == nil {
		revoked, keep = k.RevokeAt, keepExpired
	}
	if revoked == nil { // the key is valid
		return
	}
	kept := weir.Time(keep.Milliseconds())
	e.at = now + min(*revoked+kept-wall, kept)
	e.join(&a.ended)
}

// isDue reports whether the key has to revoke itself now.
func (g *Grant) isDue(s *steady) bool {
	due := g.due.Load()
	return due != 0 && int64(s.now()) >= due
}

// Expire ends the grants of all keys whose time has come. Call it about twice per second. It does
// not wait for the store.
func (a *Access) Expire() {
	now := a.steady.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.ending) > 0 && a.ending[0].at <= now {
		e := a.ending[0]
		e.grant.end()
		a.plan(e)
	}
}

// Forget deletes the records of keys and tokens that were revoked long ago. After that, requests
// with them get InvalidAPIKey instead of KeyRevoked. Call Forget about once per minute, and on one
// node of a cluster only. A call deletes at most maxForget records, and stops at the first error.
//
// If a project has only revoked keys, Forget keeps the record of the last one. A project without
// any record of a key would count as new, and the next start of the server might create a key for
// it.
func (a *Access) Forget(ctx context.Context) error {
	var (
		due   = a.toForget()
		group sync.WaitGroup
		next  atomic.Int64
		fault atomic.Pointer[error] // the first error
	)
	for range min(len(due), flushers) {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(due)); i = next.Add(1) - 1 {
				if fault.Load() != nil {
					a.putBack(due[i])
				} else if err := a.forget(ctx, due[i]); err != nil {
					a.putBack(due[i])
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

// toForget returns the records that Forget deletes, and takes them off the agenda.
func (a *Access) toForget() (due []*entry) {
	now := a.steady.now()
	young := a.steady.wallTime() - weir.Time(keepExpired.Milliseconds())
	a.mu.Lock()
	defer a.mu.Unlock()
	var kept []*entry
	going := map[weir.ProjectID]int{} // how many keys of each project are in the result due
	for len(a.ended) > 0 && len(due) < maxForget {
		e := a.ended[0]
		isFull := len(a.ended) > maxRevoked && e.record.CreatedAt < young
		if e.at > now && !isFull {
			break
		}
		e.leave()
		if p := e.record.Project; p != "" && a.perProject[p]-going[p] == 1 {
			kept = append(kept, e)
			continue
		} else if p != "" {
			going[p]++
		}
		due = append(due, e)
	}
	for _, e := range kept {
		e.at = now + weir.Time(keepExpired.Milliseconds()) // when Forget looks at this record again
		e.join(&a.ended)
	}
	return due
}

// forget deletes the document of a key or token. When the store reports the deletion,
// documentChanged removes the entry from memory.
func (a *Access) forget(ctx context.Context, e *entry) error {
	a.mu.RLock()
	name, revision := e.digest.document(e.record.Kind), e.revision
	a.mu.RUnlock()
	switch err := a.docs.Delete(ctx, name, revision); {
	case errors.Is(err, engine.ErrNotFound): // another node has deleted it
		return nil
	case errors.Is(err, engine.ErrConflict): // the record has changed: the next call of Forget tries again
		a.putBack(e)
		return nil
	case err != nil:
		return storeError("forget revoked key "+e.grant.id, err)
	}
	return nil
}

// putBack returns a record to the agenda from which toForget has taken it.
func (a *Access) putBack(e *entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.digests.Get(e.digest) == e && e.agenda == nil {
		e.join(&a.ended)
	}
}

// agenda is a list of entries from which the one that is due first can be taken quickly. It is a
// heap, guarded by Access.mu.
type agenda []*entry

// join adds the entry, which must be on no agenda.
func (e *entry) join(l *agenda) {
	e.agenda = l
	heap.Push(l, e)
}

// leave removes the entry from its agenda, if it is on one.
func (e *entry) leave() {
	if e.agenda != nil {
		heap.Remove(e.agenda, e.place)
		e.agenda = nil
	}
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (l agenda) Len() int           { return len(l) }
func (l agenda) Less(i, j int) bool { return l[i].at < l[j].at }

func (l agenda) Swap(i, j int) {
	l[i], l[j] = l[j], l[i]
	l[i].place, l[j].place = i, j
}

func (l *agenda) Push(e any) {
	e.(*entry).place = len(*l)
	*l = append(*l, e.(*entry))
}

func (l *agenda) Pop() any {
	last := len(*l) - 1
	e := (*l)[last]
	(*l)[last] = nil
	*l = shrink.Slice((*l)[:last])
	return e
}
