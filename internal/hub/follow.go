package hub

import (
	"time"

	"weir"
	"weir/internal/engine"
)

var _ engine.Follower = (*feed)(nil)

// The methods of this file are called only if other nodes append to the same log.

// Follow implements engine.Follower: another node stored an entry. It is durable and in its final
// position, so it goes into both states at once. Its payload is read only if a subscriber needs it.
func (f *feed) Follow(h engine.Header) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, now := toRules(h), f.hub.now()
	f.ahead.Follow(r, now)
	r.Key = "" // only the state ahead remembers keys
	kept := r.Closed || r.Seq >= f.state.Low()
	f.state.Follow(r, now)
	f.foreign = true
	f.newest = max(f.newest, r.Time)
	if kept && !r.Closed {
		f.expiry = min(f.expiry, r.Time.Add(time.Duration(f.s.RetentionSeconds)*time.Second))
		f.tail.add(f, &admitted{header: r, foreign: true})
	}
	f.s.order.moved(f.ahead.Cursor().Cursor)
	f.shrink(now)
	f.schedule()
	f.wake()
}

// Trimmed implements engine.Follower: another node evicted up to low, so this one does too.
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

// Note implements engine.Follower: the low mark and checkpoint to store with a trim. It uses the
// visible state, because entries that are not durable must not influence what a restart finds.
func (f *feed) Note() (weir.Seq, []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Low(), f.state.Checkpoint()
}

// Behind implements engine.Follower: this node can no longer follow the log. The next caller of
// acquire reopens it. Subscribers get ErrStopping and reconnect.
func (f *feed) Behind() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behind = true
	f.s.order.end()
	f.wake()
}

// Rewind implements engine.Follower: the pending entries were not stored, because another node's
// entry took their position or the store refused them. The state ahead returns to the durable
// state. The engine then asks about the entries again, after it has reported the other node's.
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
