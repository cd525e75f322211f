package hub

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// rowSize is how many subscriptions wake up together. A publisher that becomes ready runs behind one
// row for each core, so it is small.
const rowSize = 4

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

// next returns the next row that is due. It returns nil if there is none; the feed then counts as
// removed from the waker's queue.
func (rs *rows) next() *row {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.left == 0 {
		rs.queued = false
		return nil
	}
	if rs.at >= len(rs.all) {
		rs.at = 0
	}
	r := rs.all[rs.at]
	rs.at, rs.left = rs.at+1, rs.left-1
	return r
}

// waker wakes the subscriptions of all feeds, in a goroutine of its own. Waking takes microseconds
// per subscription, and Commit must not spend them in the engine's writer: publishes to all streams
// would wait.
//
// It wakes one row of one feed at a time, the feeds by turns, and no more while many of the woken
// subscriptions are still sending. So a stream with many subscriptions delays neither the
// subscriptions of other streams nor the publishers that run in between, and a subscription that is
// woken late receives several batches at once.
type waker struct {
	mu      sync.Mutex
	work    sync.Cond // signalled when the queue is no longer empty, and by stop
	queue   []*feed   // each feed at most once
	stopped bool

	awake  atomic.Int64 // subscriptions that were woken and have not come back to wait
	most   int64        // when more than this are awake, run waits
	room   chan struct{}
	paused atomic.Bool // run waits on room
}

// awakePerCore is how many woken subscriptions may be at work at a time, for each core.
const awakePerCore = 8

// patience is how long the waker waits for woken subscriptions to send what they got. Those that
// take longer are held up by their clients and not by this process, so the others need not wait.
const patience = time.Millisecond

func (w *waker) init() {
	w.work.L = &w.mu
	w.most = int64(awakePerCore * runtime.GOMAXPROCS(0))
	w.room = make(chan struct{}, 1)
}

// rise counts a subscription that was woken.
func (s *Subscription) rise() {
	if !s.awake {
		s.awake = true
		s.f.hub.waker.awake.Add(1)
	}
}

// rest ends what rise began, when the subscription waits again or ends.
func (s *Subscription) rest() {
	if !s.awake {
		return
	}
	s.awake = false
	w := &s.f.hub.waker
	w.awake.Add(-1)
	if w.paused.Load() {
		select {
		case w.room <- struct{}{}:
		default:
		}
	}
}

// pause waits until at most w.most subscriptions are awake beside those that are stalled, and
// returns how many of them count as stalled.
func (w *waker) pause(stalled int64) int64 {
	awake := w.awake.Load()
	if stalled = min(stalled, awake); awake-stalled <= w.most {
		return stalled
	}
	w.paused.Store(true)
	defer w.paused.Store(false)
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		awake = w.awake.Load()
		if stalled = min(stalled, awake); awake-stalled <= w.most {
			return stalled
		}
		select {
		case <-w.room:
		case <-late.C:
			return awake
		}
	}
}

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

// pop returns the first feed of the queue and waits for one. It returns nil once the waker was
// stopped and the queue is empty.
func (w *waker) pop() *feed {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 && !w.stopped {
		w.work.Wait()
	}
	if len(w.queue) == 0 {
		return nil
	}
	f := w.queue[0]
	w.queue[0] = nil
	w.queue = w.queue[1:]
	return f
}

func (w *waker) run() {
	stalled := int64(0)
	for f := w.pop(); f != nil; f = w.pop() {
		stalled = w.pause(stalled)
		r := f.rows.next()
		if r == nil {
			continue
		}
		w.push(f)
		if r.wake() {
			runtime.Gosched() // lets the members, and whatever else is ready, run before the next row wakes up
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
