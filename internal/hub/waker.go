package hub

import "sync"

// rowSize is how many subscriptions wake up together, and how many of one stream wake up before it
// is the turn of another stream.
const rowSize = 8

// row is a group of subscriptions that wait on one channel.
type row struct {
	members int // guarded by rows.mu

	mu      sync.Mutex
	changed chan struct{} // closed by wake; nil while no member waits
}

// wait returns the channel that the next wake closes. The caller must check afterwards, before it
// waits on the channel, that there is still nothing to do.
func (r *row) wait() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed
}

// wake wakes the members that wait, and tells whether any did.
func (r *row) wake() bool {
	r.mu.Lock()
	changed := r.changed
	r.changed = nil
	r.mu.Unlock()
	if changed != nil {
		close(changed)
	}
	return changed != nil
}

// rows are the subscriptions of one feed, in groups, and how far the waker has got with them.
type rows struct {
	mu      sync.Mutex
	all     []*row
	room    []*row // those with fewer than rowSize members
	members int

	queued bool // the feed is in the waker's queue
	at     int  // the row to wake next
	left   int  // number of rows to wake, from there on in a circle
}

// join returns the row of a new subscription.
func (rs *rows) join() *row {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.members++
	if len(rs.room) == 0 {
		r := &row{}
		rs.all, rs.room = append(rs.all, r), append(rs.room, r)
		if rs.left > 0 {
			rs.left++ // the new row must not take the turn of another
		}
	}
	r := rs.room[len(rs.room)-1]
	if r.members++; r.members == rowSize {
		rs.room = rs.room[:len(rs.room)-1]
	}
	return r
}

// leave removes a subscription from its row. A row keeps its place while the feed has any
// subscription, because the circle of the waker must not change under it.
func (rs *rows) leave(r *row) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.members--; r.members == rowSize-1 {
		rs.room = append(rs.room, r)
	}
	if rs.members--; rs.members == 0 {
		rs.all, rs.room, rs.at, rs.left = nil, nil, 0, 0
	}
}

// mark makes all rows due. It tells whether the feed must be added to the waker's queue.
func (rs *rows) mark() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.left = len(rs.all)
	if rs.left == 0 || rs.queued {
		return false
	}
	rs.queued = true
	return true
}

// next returns the next row that is due, and its number of members. It returns nil if there is none;
// the feed then counts as removed from the waker's queue.
func (rs *rows) next() (*row, int) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.left == 0 {
		rs.queued = false
		return nil, 0
	}
	if rs.at >= len(rs.all) {
		rs.at = 0
	}
	r := rs.all[rs.at]
	rs.at, rs.left = rs.at+1, rs.left-1
	return r, r.members
}

// waker wakes the subscriptions of all feeds, in a goroutine of its own. Waking takes microseconds
// per subscription, and Commit must not spend them in the engine's writer: publishes to all streams
// would wait.
//
// It wakes one row of one feed at a time, the feeds by turns, and lets everything else run before it
// goes on. So a stream with many subscriptions delays neither the subscriptions of other streams nor
// publishers, and a subscription that is woken late receives several batches at once. The waker
// never waits for what it woke, so clients that take no data do not hold up the others.
type waker struct {
	mu      sync.Mutex
	work    sync.Cond // signalled when the queue is no longer empty, and by stop
	queue   []*feed   // each feed at most once
	stopped bool
}

func (w *waker) init() { w.work.L = &w.mu }

// wake wakes all subscriptions of a feed that wait now, soon.
func (w *waker) wake(f *feed) {
	if f.rows.mark() {
		w.push(f)
	}
}

func (w *waker) push(f *feed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, f)
	w.work.Signal()
}

// pop returns the first feed of the queue. If there is none, it waits, and says so. It returns nil
// once the waker was stopped and the queue is empty.
func (w *waker) pop() (f *feed, waited bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 && !w.stopped {
		waited = true
		w.work.Wait()
	}
	if len(w.queue) == 0 {
		return nil, waited
	}
	f = w.queue[0]
	w.queue[0] = nil
	w.queue = w.queue[1:]
	return f, waited
}

// perTurn is about how many subscriptions wake up between two turns of everything else. Publishers
// that become ready run behind them, which takes some 2 µs for each. With fewer, the turns would
// take more time than the subscriptions on a busy machine.
const perTurn = 32

func (w *waker) run() {
	var turns turns
	turns.open()
	defer turns.close()
	woken := 0 // since the last turn
	for {
		f, waited := w.pop()
		if f == nil {
			return
		}
		r, members := f.rows.next()
		if r == nil {
			continue
		}
		w.push(f)
		if waited {
			woken = 0 // everything else has had its turn
		}
		if woken >= perTurn {
			turns.take()
			woken = 0
		}
		if r.wake() {
			woken += members
		}
	}
}

// stop makes run return when everything in the queue has been woken.
func (w *waker) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.work.Signal()
}
