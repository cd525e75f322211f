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

// A log is followed while somebody wants to hear at once of what others append, while it is read, or while others write to it beside us. To follow costs every
// server and node something for each message of the shard, whoever wrote it; and a log that one node alone writes to, as most are, needs none of it: each
// of our writes is stored only if nothing came before it, so each shows that nothing was missed. Where nothing has shown that for long, it is looked.

const (
	// sureFor is how long what was known of a log may be relied on. What others trimmed is purged later than that, so it can still be read.
	sureFor = 12 * time.Second
	// rivalry is how long a log is followed after others wrote to it beside us.
	rivalry = 5 * time.Second
	// readFor is how long a log is followed after it was read.
	readFor = 10 * time.Second
)

// attendance is how a log keeps up with others. Guarded by log.mu.
type attendance struct {
	watchers  int        // who wants to hear of everything
	until     time.Time  // it is followed as long, without them
	wanted    bool       // it is to be followed
	joined    bool       // its messages are taken as they come
	followed  bool       // and nothing before them is missing
	wrote     time.Time  // when we last did
	sure      time.Time  // when last nothing was missing; zero while it is being opened
	refreshes []*request // who waits for the worker to look
	stop      func()     // ends the last look; nil before the first
}

// Attend implements engine.SharedLog.
func (l *log) Attend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attendance.watchers++
	l.attendance.wanted = true
	l.wake()
}

// Leave implements engine.SharedLog. Whether the log is still followed is seen to later: somebody may come back.
func (l *log) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attendance.watchers--
}

// mustLook tells whether the worker has to look what others wrote. With l.mu held.
func (l *log) mustRefresh() bool {
	a := &l.attendance
	return len(a.refreshes) > 0 || a.wanted && !a.followed && !l.closing && l.over == nil
}

// lookFor has the worker look, and waits for that.
func (l *log) requestRefresh(ctx context.Context) error {
	r := &request{done: make(chan error, 1)}
	return l.ask(ctx, r, func() { l.attendance.refreshes = append(l.attendance.refreshes, r) })
}

// halt ends a look. With log.mu held.
func (a *attendance) halt() {
	if a.stop != nil {
		a.stop()
	}
}

// look reads and follows what others wrote. When it is done, the judge knows all that was acknowledged before it began. Who closes or drops the log
// ends it.
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
	case ctx.Err() != nil || errors.Is(err, engine.ErrUnavailable): // nobody waits any more, and nothing has changed
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

// ended is what a look is told that was ended.
func (l *log) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return cmp.Or(l.over, engine.ErrClosed)
}

// join has messages of the log taken as they come, if it is to be followed. What came before is to be read after it.
func (l *log) join(ctx context.Context) {
	l.mu.Lock()
	due := l.attendance.wanted && !l.attendance.joined
	l.mu.Unlock()
	if !due {
		return
	}
	l.shard.join(ctx)
	l.mu.Lock()
	l.attendance.joined = true
	l.mu.Unlock()
}

// part ends the following of a log. With l.mu held.
func (l *log) part() {
	if l.attendance.joined {
		l.shard.part()
	}
	l.attendance.wanted, l.attendance.joined, l.attendance.followed = false, false, false
}

// attendances sees which logs are to be followed.
func (e *Engine) attendances(now time.Time) {
	e.mu.Lock()
	open := slices.Collect(maps.Values(e.logs))
	e.mu.Unlock()
	for _, l := range open {
		l.attended(now)
	}
}

// attended sees whether the log is to be followed, or looked at.
func (l *log) attended(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.attendance
	switch {
	case l.closing || l.over != nil || a.sure.IsZero():
	case a.followed && a.watchers == 0 && now.After(a.until):
		if l.shard.live.Load() {
			a.sure = now
		}
		l.part()
	case !a.wanted && len(a.refreshes) == 0 && now.Sub(a.sure) >= l.e.opts.sure:
		a.refreshes = []*request{{done: make(chan error, 1)}}
		l.wake()
	}
}

// keepFollowing has the log followed for a while from now on. With l.mu held.
func (l *log) keepFollowing(span time.Duration) {
	l.attendance.wanted = true
	if until := time.Now().Add(span); until.After(l.attendance.until) {
		l.attendance.until = until
	}
}

// freshen has the log followed while it is read, and catches up with it if it was not. What is known is served also when others
// cannot be reached: that is waited for a moment, and not at all when it is known.
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

// join has the shard followed until as many parted as joined. Nothing is brought that was there long before.
func (s *shard) join(ctx context.Context) {
	s.mu.Lock()
	quiet := s.users == 0
	s.mu.Unlock()
	if quiet {
		s.mark(ctx) // so that it is known how far the shard is; if that fails, more is brought than anybody wants
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users++; s.users == 1 && !s.over {
		s.seen = max(s.seen, s.known)
		s.listen()
	}
}

func (s *shard) part() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 && s.stop != nil {
		s.stop()
	}
}
