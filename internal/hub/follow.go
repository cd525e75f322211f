package hub

import (
	"time"

	"weir"
	"weir/internal/engine"
)

var _ engine.Follower = (*feed)(nil)

// Follow implements engine.Follower: what another node stored is seen here, too.
func (f *feed) Follow(h engine.Header) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, now := rules(h), f.hub.now()
	f.ahead.Follow(r, now)
	r.Key = "" // keys are the business of the state ahead
	kept := r.Closed || r.Seq >= f.state.Low()
	f.state.Follow(r, now)
	f.foreign = true
	f.newest = max(f.newest, r.Time)
	if kept && !r.Closed {
		f.expiry = min(f.expiry, r.Time.Add(time.Duration(f.s.RetentionSeconds)*time.Second))
		f.tail.add(f, &admitted{header: r, foreign: true})
	}
	f.evict(now)
	f.schedule()
	f.wake()
}

// Trimmed implements engine.Follower: what another node evicted is gone here, too.
func (f *feed) Trimmed(low weir.Seq) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.EvictBelow(low, f.headers)
	f.ahead.Raise(f.state.Low())
	f.tail.raise(f, f.state.Low())
	f.trimmed = max(f.trimmed, low)
	f.expiry = f.nextExpiry()
	f.wake()
}

// Note implements engine.Follower.
func (f *feed) Note() (weir.Seq, []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Low(), f.state.Checkpoint()
}

// Behind implements engine.Follower: the log is opened again for whoever uses it next, and subscribers come back to it.
func (f *feed) Behind() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behind = true
	f.wake()
}

// Rewind implements engine.Follower: what was decided and is not stored was decided too early.
func (f *feed) Rewind() {
	f.mu.Lock()
	defer f.mu.Unlock()
	keyed := 0
	for _, a := range f.pending {
		if a.header.Key != "" {
			keyed++
		}
	}
	f.ahead = f.ahead.Back(f.state, keyed)
	f.pending = nil
	f.schedule()
}
