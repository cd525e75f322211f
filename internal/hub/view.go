package hub

import (
	"weir"
	"weir/internal/stream"
)

// view is what subscriptions see of a feed: an immutable copy, which the feed replaces after every
// change. Subscriptions read it without a lock. If they took the feed's lock, 30,000 of them that
// wake up at once would queue for it, and the next Admit or Commit behind them, with the publishes
// of all streams.
type view struct {
	rules   stream.View
	low     weir.Seq // of the tail
	frames  []*frame // of the tail; never written to below its length
	newest  weir.Time
	expiry  weir.Time
	dropped bool
	behind  bool
}

// wake shows the feed's current state to its subscriptions and has the waiting ones woken. Called
// with f.mu held, after every change that a subscription may wait for. It is cheap whatever the
// number of subscriptions, because Commit calls it in the engine's writer.
func (f *feed) wake() {
	if f.tail.wanted() {
		f.show()
		f.hub.waker.wake(f)
	}
}

// show replaces the view. Called with f.mu held.
func (f *feed) show() {
	f.view.Store(&view{
		rules: f.state.View(), low: f.tail.low, frames: f.tail.frames,
		newest: f.newest, expiry: f.expiry, dropped: f.dropped, behind: f.behind,
	})
}

// current returns the view at now, without expired batches. Only one subscription at a time evicts
// them, and the others wait for it on f.turn and not on f.mu, which publishers need.
func (f *feed) current(now weir.Time) *view {
	v := f.view.Load()
	if max(now, v.newest) < v.expiry || v.dropped {
		return v
	}
	f.turn.Lock()
	defer f.turn.Unlock()
	if v = f.view.Load(); max(now, v.newest) < v.expiry {
		return v
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.evict(now)
	f.show() // the next expiry may have changed, even if nothing was evicted
	return f.view.Load()
}
