package hub

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

// rowSize is how many subscriptions of a stream wake up together, before subscriptions of another
// stream do.
const rowSize = 8

// hall has the subscriptions of a feed. Most streams have none.
type hall struct {
	rows     rows     // has its own lock
	audience audience // has its own lock
}

// openHall returns the hall of a feed. Called with f.mu held.
func openHall(f *feed) *hall {
	if f.hall.Load() == nil {
		f.hall.Store(new(hall))
	}
	return f.hall.Load()
}

// row is a group of subscriptions that wait on one channel.
type row struct {
	members int // guarded by rows.mu

	mu      sync.Mutex
	changed chan struct{}   // closed by wake; nil while no member waits
	parked  []*Subscription // members that wait without a goroutine; see parked.go
}

// wait returns the channel that the next call of wake closes. Before the caller waits on the
// channel, it must check again that there is nothing to do, because a wake just before this call is
// missed.
func (r *row) wait() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed
}

// wake wakes the members that wait. It reports whether any member waited.
func (r *row) wake() bool {
	r.mu.Lock()
	changed := r.changed
	r.changed = nil
	for _, s := range r.parked {
		s.sleeper.Wake()
	}
	waited := changed != nil || len(r.parked) > 0
	r.mu.Unlock()
	if changed != nil {
		close(changed)
	}
	return waited
}

// rows holds the subscriptions of one feed in groups, and the waker's progress through these
// groups.
type rows struct {
	mu      sync.Mutex
	all     []*row
	room    []*row // the rows with fewer than rowSize members
	members int

	queued bool // the feed is in the waker's queue
	at     int  // the row to wake next
	left   int  // number of rows still to wake, beginning with all[at] and continuing with all[0] after the last row

	lap   int       // number of rows that were woken since the current lap over all rows began
	began time.Time // when the current lap began
	due   time.Time // when the next lap may begin; see perSubscription
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
			rs.left++ // otherwise the waker, which may wake the new row first, would leave out the last of the old rows
		}
	}
	r := rs.room[len(rs.room)-1]
	if r.members++; r.members == rowSize {
		rs.room = rs.room[:len(rs.room)-1]
	}
	return r
}

// leave removes a subscription from its row. An empty row stays in rs.all as long as the feed has
// any subscription, because removing it would shift the indexes that the waker uses.
func (rs *rows) leave(r *row) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.members--; r.members == rowSize-1 {
		rs.room = append(rs.room, r)
	}
	if rs.members--; rs.members == 0 {
		rs.all, rs.room, rs.at, rs.left, rs.lap = nil, nil, 0, 0, 0
	}
}

// mark records that all rows must be woken. It reports whether the caller must add the feed to the
// waker's queue.
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

// A delivery costs about 10 µs of CPU time over HTTP/1.1 and 20 µs over HTTP/2, whether it carries
// one batch or several. To leave time for the other streams and the publishers, the waker pauses
// between two laps over the subscriptions of a stream. Batches that are stored in the pause share a
// delivery. A lap begins only when a certain time has passed since the previous lap began. This time
// is the number of subscriptions multiplied by perSubscription, or the duration of the previous lap
// multiplied by resting, whichever is longer. But it is never longer than longestPace. A stream with
// at most unpaced subscriptions has no pauses.
const (
	perSubscription = 15 * time.Microsecond
	resting         = 3
	longestPace     = 2 * time.Second
	unpaced         = 100
)

// next returns the next row to wake and its number of members. If no row is left, next returns nil
// and records that the feed is no longer in the waker's queue. If the next lap may not begin yet,
// next returns nil and how long to wait, unless hurry is true.
func (rs *rows) next(hurry bool) (r *row, members int, wait time.Duration) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.left == 0 {
		rs.queued, rs.lap = false, 0
		return nil, 0, 0
	}
	if rs.lap == 0 && rs.members > unpaced {
		now := time.Now()
		if wait := rs.due.Sub(now); wait > 0 && !hurry {
			return nil, 0, wait
		}
		rs.began, rs.due = now, now.Add(min(time.Duration(rs.members)*perSubscription, longestPace))
	}
	if rs.at >= len(rs.all) {
		rs.at = 0
	}
	r = rs.all[rs.at]
	rs.at, rs.left = rs.at+1, rs.left-1
	if rs.lap++; rs.lap >= len(rs.all) {
		rs.lap = 0
		rs.rest()
	}
	return r, r.members, 0
}

// rest delays the next lap after one that took long. The caller holds rs.mu.
func (rs *rows) rest() {
	pace := min(resting*time.Since(rs.began), longestPace)
	if due := rs.began.Add(pace); due.After(rs.due) {
		rs.due = due
	}
}

// waker wakes the subscriptions of all feeds, in a goroutine of its own. Waking takes microseconds
// per subscription. If Commit woke the subscriptions itself, it would hold up the goroutine that
// writes the entries of all streams.
//
// The waker takes the feeds in turn and wakes one row of a feed at a time. After about perTurn
// subscriptions it lets all other goroutines run before it continues. So a stream with many
// subscriptions delays neither the subscriptions of other streams nor publishers. A subscription
// that is woken late receives several batches at once. For the same reason, the waker leaves some
// time between two laps over the subscriptions of one stream (see perSubscription). The waker never
// waits for the subscriptions that it woke, so a client that accepts no data does not delay the
// other clients.
type waker struct {
	mu      sync.Mutex
	work    sync.Cond             // signalled when the queue is no longer empty, and by stop
	queue   []*feed               // each feed at most once, here or in resting
	resting map[*feed]*time.Timer // feeds whose next lap may not begin yet
	stopped bool
}

func (w *waker) init() { w.work.L, w.resting = &w.mu, map[*feed]*time.Timer{} }

// wake makes the waker's goroutine wake all subscriptions of a feed that are waiting. The method
// wake itself returns at once.
func (w *waker) wake(f *feed) {
	if all := f.hall.Load(); all != nil && all.rows.mark() {
		w.push(f)
	}
}

func (w *waker) push(f *feed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, f)
	w.work.Signal()
}

// rest adds a feed to the queue after a while.
func (w *waker) rest(f *feed, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		w.queue = append(w.queue, f)
		return
	}
	w.resting[f] = time.AfterFunc(wait, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.resting[f] != nil {
			delete(w.resting, f)
			w.queue = append(w.queue, f)
			w.work.Signal()
		}
	})
}

// pop returns the first feed of the queue. If the queue is empty, pop waits for a feed and returns
// waited as true. Once the waker was stopped, pop returns hurry as true, and nil if the queue is
// empty.
func (w *waker) pop() (f *feed, waited, hurry bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 && !w.stopped {
		waited = true
		w.work.Wait()
	}
	if len(w.queue) == 0 {
		return nil, waited, true
	}
	f = w.queue[0]
	w.queue[0] = nil
	w.queue = w.queue[1:]
	return f, waited, w.stopped
}

// perTurn is the approximate number of subscriptions that the waker wakes before it lets all other
// goroutines run. A publisher that becomes ready waits for these subscriptions, about 2 µs for
// each. With a smaller number, a busy machine would spend more time on stepping aside than on the
// subscriptions.
const perTurn = 32

func (w *waker) run() {
	var turns turns
	turns.open()
	defer turns.close()
	woken := 0 // subscriptions woken since other goroutines last had their turn
	for {
		f, waited, hurry := w.pop()
		if f == nil {
			return
		}
		r, members, wait := f.hall.Load().rows.next(hurry)
		if wait > 0 {
			w.rest(f, wait)
		}
		if r == nil {
			continue
		}
		w.push(f)
		if waited {
			woken = 0 // other goroutines ran while pop waited
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

// stop makes the method run return once all feeds in the queue and all resting feeds have been woken.
func (w *waker) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	order := slices.SortedFunc(maps.Keys(w.resting), func(a, b *feed) int { return cmp.Compare(a.s.ID, b.s.ID) })
	for _, f := range order { // sorted, so that a simulation wakes them in the same order each time
		w.resting[f].Stop()
	}
	w.queue = append(w.queue, order...)
	clear(w.resting)
	w.work.Signal()
}
