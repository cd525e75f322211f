package hub

import (
	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

var _ engine.Follower = (*feed)(nil)

// The methods of this file are called only if other nodes append to the same log.

// Follow implements engine.Follower: another node stored an entry. The entry is durable and in its
// final position, so Follow applies it to both f.ahead and f.state at once. The payload is read
// only if a subscriber needs it.
func (f *feed) Follow(h engine.Header) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, now := toRules(&h), f.hub.now()
	f.ahead.Follow(r, now)
	r.Key = weir.KeyDigest{} // only f.ahead remembers keys
	kept := r.Closed || r.Seq >= f.state.Low()
	f.state.Follow(r, now)
	if l := lifeOf(f.s); l != nil && !r.Closed {
		l.touch(r.Time)
	}
	if endsLife(&h) {
		die(f.s)
	}
	setEnded(f)
	f.foreign = true
	f.newest = max(f.newest, r.Time)
	if kept && !r.Closed {
		f.expiry = min(f.expiry, r.Time.Add(f.bounds.retention()))
		f.tail.add(f, &admitted{header: r, foreign: true})
	}
	f.way.order.moved(f.ahead.Cursor().Cursor)
	f.shrink(now)
	f.updateHeld(now)
	f.schedule()
	f.wake()
}

// Trimmed implements engine.Follower: another node evicted the batches below low, so this node
// evicts them too.
func (f *feed) Trimmed(low weir.Seq) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// If nothing was ever stored in the stream, the other node has called Begin, and low is the
	// first sequence.
	if stream.Begin(f.ahead, low) && stream.Begin(f.state, low) {
		f.way.order.begin(low - 1)
	}
	f.state.EvictBelow(low, f.headers)
	f.ahead.Raise(f.state.Low())
	f.tail.raise(f, f.state.Low())
	f.trimmed = max(f.trimmed, low)
	f.expiry = nextExpiry(f)
	f.updateHeld(f.hub.now())
	f.schedule()
	f.wake()
}

// Note implements engine.Follower. It returns what to store with a trim: the low mark, below which
// everything is evicted, and the checkpoint. Both come from the durable state, because entries that
// are not durable must not affect the state after a restart.
func (f *feed) Note() (weir.Seq, []byte) {
	f.mu.Lock()
	c := f.state.Checkpoint(f.ahead)
	f.mu.Unlock()
	return c.Low(), c.Encode()
}

// Behind implements engine.Follower: this node can no longer follow the log. The next caller of
// acquire reopens the log. Subscribers get ErrStopping and reconnect.
func (f *feed) Behind() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behind = true
	f.way.order.end()
	f.wake()
}

// Rewind implements engine.Follower: the pending entries were not stored, because another node's
// entry took their position or the store refused them. Rewind resets f.ahead to the durable state.
// The engine then reports the other node's entry and asks about the pending entries again.
func (f *feed) Rewind() {
	f.mu.Lock()
	defer f.mu.Unlock()
	keyed := 0
	for _, a := range f.pending.all() {
		if a.header.KeySize > 0 {
			keyed++
		}
	}
	f.ahead = f.ahead.Back(f.state, keyed)
	f.pending = pending{}
	f.way.order.moved(f.ahead.Cursor().Cursor)
	f.updateHeld(f.hub.now())
	f.schedule()
}
