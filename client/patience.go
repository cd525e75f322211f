package client

import (
	"errors"
	"fmt"
	"time"
)

// load limits how many bytes a publisher keeps in flight. The limit follows the speed of the
// connection, like the congestion window of TCP. Without the limit, batches on a slow connection
// would wait behind each other for so long that the publisher would take the connection for dead.
type load struct {
	most     int           // maximum number of bytes in flight; one batch is always allowed
	patience time.Duration // how long a batch may go without progress; never longer than Options.Timeout
}

const (
	firstLoad = 1 << 20
	leastLoad = 64 << 10
	prompt    = time.Second     // an acknowledgement within this time shows that the connection can carry more
	tardy     = 4 * time.Second // an acknowledgement after more than this time shows that the connection can carry less

	// leastPatience is long enough to empty the buffers between client and service at 40 kB/s.
	// Until the first acknowledgement the publisher knows nothing about the connection, so it
	// starts with mostPatience: it waits as long as Options.Timeout allows.
	leastPatience = 10 * time.Second
	mostPatience  = time.Hour
)

// arrived adjusts the limits after a batch was acknowledged. It uses the size of the batch in bytes
// and the time that the acknowledgement took. The parameter limit is the highest value for l.most.
func (l *load) arrived(bytes int, took time.Duration, limit int) {
	l.patience = max(leastPatience, 8*took)
	switch {
	case took < prompt:
		l.most = min(l.most+bytes, max(limit, leastLoad))
	case took > tardy:
		l.most = max(l.most/2, leastLoad)
	}
}

// broke lowers the limit after an attempt failed, because the speed of the connection is then
// unknown.
func (l *load) broke(err error) {
	l.most = max(min(l.most/2, firstLoad), leastLoad)
	if _, ok := errors.AsType[errStalled](err); ok { // the connection may not have been dead, only slower than before
		l.patience = min(2*l.patience, mostPatience)
	}
}

// overtakenLimit is how long the batch with the lowest sequence may go without a response while
// later batches get one. Each of the first four cancelled attempts of the batch doubles this time.
const overtakenLimit = 2 * time.Second

var errOvertaken = errors.New("later batches were answered before this one")

// schedule sets the alarm to the next time at which the first batch of the window may have waited
// too long. When the alarm fires, it calls the method ring.
func (p *Publisher) schedule() {
	if len(p.window) == 0 {
		return
	}
	if p.o.GiveUp > 0 {
		p.ringBy(p.since.Add(p.o.GiveUp))
	}
	if f := p.window[0]; p.overtaken(f) {
		p.ringBy(f.began.Add(overtakenLimit << min(f.slow, 4)))
	}
}

// ringBy makes the method ring run at the given time or earlier. If the alarm is already set to an
// earlier time, ringBy leaves it there, because setting a timer for every batch would be expensive.
// A call of ring that comes too early only sets the alarm again.
func (p *Publisher) ringBy(at time.Time) {
	if p.rings.IsZero() || at.Before(p.rings) {
		p.rings = at
		p.alarm.Reset(max(time.Until(at), 0))
	}
}

// overtaken reports whether a batch is still in flight although a batch that was sent later has
// already reached the service. The service refused that later batch, because its predecessor was
// not stored. The overtaken batch may be stuck in a proxy, or on a dead connection while other
// connections work.
func (p *Publisher) overtaken(f *flight) bool {
	if f.state != flying || f.stop == nil || p.refused < f.sent {
		return false
	}
	for _, later := range p.window {
		if later.early > f.sent {
			return true
		}
	}
	return false
}

// ring runs when the alarm fires. It makes the publisher fail once the time in GiveUp has passed.
// It cancels attempts that make no progress, and the attempt of a batch that later batches have
// overtaken. The batches of cancelled attempts are sent again.
func (p *Publisher) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rings = time.Time{}
	if p.ctx.Err() != nil || len(p.window) == 0 {
		return
	}
	for _, f := range p.window {
		if f.progress != nil {
			if left := f.progress.check(); left > 0 {
				p.ringBy(time.Now().Add(left))
			}
		}
	}
	if p.err != nil {
		return
	}
	f := p.window[0]
	if p.o.GiveUp > 0 && time.Since(p.since) >= p.o.GiveUp {
		err := fmt.Errorf("%w after %v without an acknowledgement", ErrGivenUp, p.o.GiveUp)
		if p.last != nil {
			err = fmt.Errorf("%w: %w", err, p.last)
		}
		p.end(f, err)
		p.cancel()
		return
	}
	if p.overtaken(f) && time.Since(f.began) >= overtakenLimit<<min(f.slow, 4) {
		f.slow++
		f.stop(errOvertaken)
		f.stop = nil
	}
	p.schedule()
}
