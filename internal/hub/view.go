package hub

import (
	"weir"
	"weir/internal/stream"
)

// view is an immutable copy of the fields of a feed that subscriptions need. The feed replaces the
// view after every change, and subscriptions read it without a lock. Without the view they would
// take the feed's lock: 30,000 subscriptions that wake up at once would queue for it. The engine's
// next call of Admit or Commit would queue behind them, and with it the publishes of all streams.
type view struct {
	rules   stream.View
	low     weir.Seq // the tail's field low
	frames  []*frame // the tail's field frames; the tail never changes these elements
	bounds  *bounds  // the limits that the rules apply
	newest  weir.Time
	expiry  weir.Time
	dropped bool
	behind  bool
}

// wake replaces the view and asks the hub's waker to wake the subscriptions that wait. The feed
// calls it with f.mu held, after every change that a subscription may wait for. Its cost must not
// grow with the number of subscriptions, because Commit calls it in the goroutine that writes the
// entries of all streams.
func (f *feed) wake() {
	if f.tail.wanted() {
		f.show()
		f.hub.waker.wake(f)
	}
}

// show replaces the view. The caller holds f.mu.
func (f *feed) show() {
	f.view.Store(&view{
		rules: f.state.View(), low: f.tail.low, frames: f.tail.frames,
		bounds: f.bounds, newest: f.newest, expiry: f.expiry, dropped: f.dropped, behind: f.behind,
	})
}

// current returns the view at the time now, without the batches that have expired by then, or that
// exceed new limits of the stream. If there are such batches, one subscription evicts them with
// f.mu held. The other subscriptions wait for it on f.turn. They do not wait on f.mu, because
// publishers need that lock.
func (f *feed) current(now weir.Time) *view {
	v := f.view.Load()
	if v.dropped || v.bounds == f.s.bounds.Load() && max(now, v.newest) < v.expiry {
		return v
	}
	f.turn.Lock()
	defer f.turn.Unlock()
	if v = f.view.Load(); v.bounds == f.s.bounds.Load() && max(now, v.newest) < v.expiry {
		return v
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.evict(now)
	f.show() // the next expiry may have changed, even if nothing was evicted
	return f.view.Load()
}
