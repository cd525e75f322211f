package jetstream

import (
	"cmp"
	"context"
	"errors"
	"time"

	"weir/internal/engine"
)

// How a log keeps up with other nodes
//
// A shard is a JetStream stream that holds many logs. To follow a shard means to subscribe to it,
// so that this node receives every message as soon as it is stored. That costs every server and
// node something for each message, no matter which node wrote the message. Most logs have only one
// node that writes to them, and such a log need not be followed: a write is stored only if no node
// stored another message in between, so every successful write proves that the node has missed
// nothing. Therefore a log is followed only while
//
//   - a caller wants to receive entries of other nodes at once (Attend),
//   - the log is read repeatedly (readFor), or
//   - other nodes write to the log at the same time as this node (rivalry).
//
// A log that is not followed may become outdated. If no write has proved for the time sureFor that
// the node has missed nothing, the worker (the goroutine of the log) reads the messages that other
// nodes wrote. This is called a refresh.

const (
	// sureFor is how long a log that is not followed may go without proof that nothing was missed.
	// It is shorter than purgeAfter, so that a refresh can still read messages that another node
	// has trimmed in the meantime.
	sureFor = 12 * time.Second
	// rivalry is how long a log stays followed after both this node and another node wrote to it.
	rivalry = 5 * time.Second
	// readFor is how long a log stays followed after it was read. A log that is read only once within
	// this time is not followed, because following costs more than a single read.
	readFor = 10 * time.Second
)

// attendance is the state of following one log. It is guarded by log.mu. A log that should be
// followed passes through three flags: wanted, then joined, then followed.
type attendance struct {
	l        *log
	watchers int       // number of calls of Attend minus number of calls of Leave
	until    time.Time // the log stays followed until this time even without watchers
	wanted   bool      // the log should be followed
	joined   bool      // the line, which subscribes to the shard, passes new messages of the log to the worker
	followed bool      // joined, and all messages from before joining were read too
	ended    uint64    // how often the node stopped following the log; see CatchUp
	wrote    time.Time // when this node last wrote to the log
	read     time.Time // when the log was last read
	// sure is the latest time at which the node is certain to have missed nothing. It is zero while
	// the log is being opened.
	sure      time.Time
	refreshes []*request // requests of callers that wait for a refresh
	stop      func()     // cancels the last refresh; nil before the first
}

// Attend implements engine.Log.
func (a *attendance) Attend() {
	a.l.mu.Lock()
	defer a.l.mu.Unlock()
	a.watchers++
	a.wanted = true
	a.l.wake()
}

// Leave implements engine.Log. The log stays followed until reviewFollowing checks it the next
// time, because another caller may call Attend soon.
func (a *attendance) Leave() {
	a.l.mu.Lock()
	defer a.l.mu.Unlock()
	a.watchers--
}

// mustRefresh reports whether the worker must read the messages of other nodes. The caller holds
// log.mu.
func (a *attendance) mustRefresh() bool {
	return len(a.refreshes) > 0 || a.wanted && !a.followed && !a.l.closing && a.l.over == nil
}

// requestRefresh asks the worker for a refresh and waits until it is done.
func (a *attendance) requestRefresh(ctx context.Context) error {
	return a.l.ask(ctx, new(request), &a.refreshes)
}

// halt cancels a running refresh. The caller holds log.mu.
func (a *attendance) halt() {
	if a.stop != nil {
		a.stop()
	}
}

// refresh reads the records that other nodes wrote, and reports them to the judge (engine.Judge,
// which applies the rules of the stream). When it is done, the judge knows everything that was
// acknowledged before refresh began. Closing or dropping the log cancels the refresh, so that Close
// and Delete do not wait for servers that do not answer.
//
// If the log should be followed, refresh first joins the line and then reads. In the other order,
// the node would miss a message that is stored between the two steps.
func (a *attendance) refresh() error {
	ctx, stop := context.WithCancel(a.l.e.client.Life)
	defer stop()
	a.l.mu.Lock()
	a.stop = stop
	needless := a.l.closing || a.l.over != nil
	a.l.mu.Unlock()
	if needless {
		return a.cancelled()
	}
	a.join(ctx)
	begun := time.Now()
	found, err := a.l.readMissing(ctx)
	if err == nil && len(found) > 0 {
		err = a.l.contiguous(found)
	}
	switch {
	case ctx.Err() != nil || errors.Is(err, engine.ErrUnavailable):
		// The refresh was cancelled, or Close stopped waiting. The judge has received nothing.
		return a.cancelled()
	case err != nil:
		return a.l.fail(err)
	}
	if err := a.l.applyAll(found); err != nil {
		return err
	}
	a.l.mu.Lock()
	defer a.l.mu.Unlock()
	a.sure, a.followed = begun, a.joined
	return nil
}

// cancelled returns the error for a refresh that was cancelled.
func (a *attendance) cancelled() error {
	a.l.mu.Lock()
	defer a.l.mu.Unlock()
	return cmp.Or(a.l.over, engine.ErrClosed)
}

// join makes the line pass new messages of the log to the worker, if the log should be followed.
// The caller must read the earlier messages after join returns.
func (a *attendance) join(ctx context.Context) {
	a.l.mu.Lock()
	due := a.wanted && !a.joined
	a.l.mu.Unlock()
	if !due {
		return
	}
	// a.l.mu is not held here, because shard.Join waits for servers. Only the worker calls join, so
	// the flags do not change in the meantime.
	a.l.shard.Join(ctx)
	a.l.mu.Lock()
	a.joined = true
	a.l.mu.Unlock()
}

// unjoin stops following a log. The caller holds a.l.mu.
func (a *attendance) unjoin() {
	if a.joined {
		a.l.shard.Unjoin()
	}
	a.wanted, a.joined, a.followed = false, false, false
	a.ended++
}

// reviewFollowing stops following a log that no caller needs any more, and starts a refresh of a
// log that is not followed and has become outdated.
func (a *attendance) reviewFollowing(now time.Time) {
	a.l.mu.Lock()
	defer a.l.mu.Unlock()
	switch {
	case a.l.closing || a.l.over != nil || a.sure.IsZero():
	case a.followed && a.watchers == 0 && now.After(a.until):
		// If the consumer of the shard is live, the node has missed nothing up to now.
		if a.l.shard.Live() {
			a.sure = now
		}
		a.unjoin()
	case !a.wanted && len(a.refreshes) == 0 && now.Sub(a.sure) >= a.l.e.opts.sure:
		a.refreshes = []*request{{}}
		a.l.wake()
	}
}

// keepFollowing makes the node follow the log for at least the duration span, counted from now. The
// caller holds a.l.mu.
func (a *attendance) keepFollowing(span time.Duration) {
	a.wanted = true
	if until := time.Now().Add(span); until.After(a.until) {
		a.until = until
	}
}

// catchUpToRead is called before a read. It catches up if the log is not followed, and makes the node
// follow a log that is read repeatedly. It waits for the servers only for a short time, because known
// entries must be readable even if other nodes cannot be reached. It does not wait at all if the node
// already knows that it is cut off.
func (a *attendance) catchUpToRead(ctx context.Context) {
	now := time.Now()
	a.l.mu.Lock()
	followed := a.followed
	if now.Sub(a.read) < readFor {
		a.keepFollowing(readFor)
		a.l.wake()
	}
	a.read = now
	a.l.mu.Unlock()
	if !followed && a.l.e.outage.Load() == nil {
		ctx, cancel := context.WithTimeout(ctx, a.l.e.client.Apart(a.l.e.opts.hearing))
		defer cancel()
		a.l.CatchUp(ctx)
	}
}
