package jetstream

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"weir/internal/engine"
)

// How a log keeps up with other nodes
//
// Following a shard costs every server and node something for each of its messages, no matter which
// node wrote it. A log that only one node writes to, as most are, does not need it: each write is
// stored only if nothing came before it, so each write proves that nothing was missed. So a log is
// followed only while
//
//   - a caller wants to hear at once of what other nodes append (Attend),
//   - the log is read (readFor), or
//   - other nodes write to it at the same time as this one (rivalry).
//
// If nothing has proved for sureFor that the node missed nothing, the worker reads what other nodes
// wrote. That is called a refresh.

const (
	// sureFor is how long knowledge about a log stays valid without proof. It is shorter than
	// purgeAfter, so messages that another node trimmed in the meantime can still be read.
	sureFor = 12 * time.Second
	// rivalry is how long a log stays followed after another node wrote to it, if this node wrote
	// as well.
	rivalry = 5 * time.Second
	// readFor is how long a log stays followed after it was read.
	readFor = 10 * time.Second
)

// attendance is the state of following one log. It is guarded by log.mu. A log that should be
// followed passes through three flags: wanted, then joined, then followed.
type attendance struct {
	watchers int       // number of callers of Attend that have not called Leave
	until    time.Time // the log stays followed until then even without watchers
	wanted   bool      // the log should be followed
	joined   bool      // the line hands over its messages as they arrive
	followed bool      // joined, and everything from before joining was read as well
	wrote    time.Time // when this node last wrote
	// When the node last was certain to have missed nothing; zero while the log is being opened.
	sure      time.Time
	refreshes []*request // callers that wait for the worker to refresh
	stop      func()     // cancels the last refresh; nil before the first
}

// Attend implements engine.Log.
func (l *log) Attend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attendance.watchers++
	l.attendance.wanted = true
	l.wake()
}

// Leave implements engine.Log. The log stays followed until the next review, because another
// caller may attend soon.
func (l *log) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attendance.watchers--
}

// mustRefresh reports whether the worker has to read what other nodes wrote. The caller holds l.mu.
func (l *log) mustRefresh() bool {
	a := &l.attendance
	return len(a.refreshes) > 0 || a.wanted && !a.followed && !l.closing && l.over == nil
}

// requestRefresh has the worker read what other nodes wrote, and waits for that.
func (l *log) requestRefresh(ctx context.Context) error {
	r := &request{done: make(chan error, 1)}
	return l.ask(ctx, r, func() { l.attendance.refreshes = append(l.attendance.refreshes, r) })
}

// halt cancels a running refresh. The caller holds log.mu.
func (a *attendance) halt() {
	if a.stop != nil {
		a.stop()
	}
}

// refresh reads and follows what other nodes wrote. When it is done, the judge knows everything
// that was acknowledged before it began. Closing or dropping the log cancels it, so that neither
// waits for servers that do not answer.
//
// If the log is to be followed, refresh first joins the line and then reads. In the other order, a
// message stored between the two steps would be missed.
func (l *log) refresh() error {
	ctx, stop := context.WithCancel(l.e.ctx)
	defer stop()
	l.mu.Lock()
	l.attendance.stop = stop
	needless := l.closing || l.over != nil
	l.mu.Unlock()
	if needless {
		return l.ended()
	}
	l.join(ctx)
	begun := time.Now()
	found, err := l.readMissing(ctx)
	if err == nil && len(found) > 0 {
		err = l.contiguous(found)
	}
	switch {
	case ctx.Err() != nil || errors.Is(err, engine.ErrUnavailable):
		// Cancelled, or Close gave up: nothing has changed.
		return l.ended()
	case err != nil:
		return l.fail(err)
	}
	if err := l.applyAll(found); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attendance.sure, l.attendance.followed = begun, l.attendance.joined
	return nil
}

// ended returns the error for a refresh that was cancelled.
func (l *log) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.over, engine.ErrClosed)
}

// join has the line hand over the log's messages as they arrive, if the log is to be followed. The
// caller must read the earlier messages afterwards.
func (l *log) join(ctx context.Context) {
	l.mu.Lock()
	due := l.attendance.wanted && !l.attendance.joined
	l.mu.Unlock()
	if !due {
		return
	}
	// Without the lock, since this waits for servers. Only the worker joins, so the flags cannot
	// change in between.
	l.shard.join(ctx)
	l.mu.Lock()
	l.attendance.joined = true
	l.mu.Unlock()
}

// part stops following a log. The caller holds l.mu.
func (l *log) part() {
	if l.attendance.joined {
		l.shard.part()
	}
	l.attendance.wanted, l.attendance.joined, l.attendance.followed = false, false, false
}

// attendances reviews which open logs are to be followed.
func (e *Engine) attendances(now time.Time) {
	e.mu.Lock()
	open := slices.Collect(maps.Values(e.logs))
	e.mu.Unlock()
	for _, l := range open {
		l.attended(now)
	}
}

// attended reviews whether the log is to be followed or refreshed.
func (l *log) attended(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.attendance
	switch {
	case l.closing || l.over != nil || a.sure.IsZero():
	case a.followed && a.watchers == 0 && now.After(a.until):
		// With a live consumer nothing was missed up to now.
		if l.shard.live.Load() {
			a.sure = now
		}
		l.part()
	case !a.wanted && len(a.refreshes) == 0 && now.Sub(a.sure) >= l.e.opts.sure:
		a.refreshes = []*request{{done: make(chan error, 1)}}
		l.wake()
	}
}

// keepFollowing has the log followed for at least span from now. The caller holds l.mu.
func (l *log) keepFollowing(span time.Duration) {
	l.attendance.wanted = true
	if until := time.Now().Add(span); until.After(l.attendance.until) {
		l.attendance.until = until
	}
}

// catchUpToRead has the log followed while it is read, and catches up if it was not followed
// before. It does not wait long for the servers: known entries are served even if other nodes
// cannot be reached. It does not wait at all if the node already knows that it is cut off.
func (l *log) catchUpToRead(ctx context.Context) {
	l.mu.Lock()
	followed := l.attendance.followed
	l.keepFollowing(readFor)
	l.wake()
	l.mu.Unlock()
	if !followed && l.e.outage.Load() == nil {
		ctx, cancel := context.WithTimeout(ctx, l.e.opts.hearing)
		defer cancel()
		l.CatchUp(ctx)
	}
}

// join has the shard followed until part was called as often as join. Messages from before the call
// are not delivered.
func (s *shard) join(ctx context.Context) {
	s.mu.Lock()
	quiet := s.users == 0
	s.mu.Unlock()
	if quiet {
		// Learns how far the shard is; if that fails, the line delivers more than necessary.
		s.mark(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users++; s.users == 1 && !s.over {
		s.seen = max(s.seen, s.known)
		s.listen()
	}
}

// part undoes one join. The shard is not followed any more after the last one.
func (s *shard) part() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 && s.stop != nil {
		s.stop()
	}
}
