package client

import (
	"errors"
	"fmt"
	"time"
)

// load is how much a publisher keeps in flight. It follows what the connection carries, like the
// congestion window of TCP: on a slow connection, batches must not queue for longer than it takes to
// notice that the connection is dead.
type load struct {
	most     int           // bytes; at least one batch is in flight anyway
	patience time.Duration // how long a batch may make no progress; never above Options.Timeout
}

const (
	firstLoad = 1 << 20
	leastLoad = 64 << 10
	prompt    = time.Second     // batches that arrive sooner show that the connection carries more
	tardy     = 4 * time.Second // batches that arrive later show that it carries less

	// leastPatience is enough for the bytes that buffers on the way hold, at 40 kB/s. Before the
	// first acknowledgement the publisher knows nothing about the connection, and is as patient as
	// Options.Timeout allows.
	leastPatience = 10 * time.Second
	mostPatience  = time.Hour
)

// arrived takes into account how long a batch took.
func (l *load) arrived(bytes int, took time.Duration, limit int) {
	l.patience = max(leastPatience, 8*took)
	switch {
	case took < prompt:
		l.most = min(l.most+bytes, max(limit, leastLoad))
	case took > tardy:
		l.most = max(l.most/2, leastLoad)
	}
}

// broke takes into account that an attempt failed: what the connection carries now is unknown.
func (l *load) broke(err error) {
	l.most = max(min(l.most/2, firstLoad), leastLoad)
	if _, ok := errors.AsType[errStalled](err); ok { // perhaps it was not dead, but slower than before
		l.patience = min(2*l.patience, mostPatience)
	}
}

// patience is how long the lowest batch may stay without a response while later ones are answered.
const patience = 2 * time.Second

var errOvertaken = errors.New("later batches were answered before this one")

// schedule sets the alarm to the next time at which ring has something to do.
func (p *Publisher) schedule() {
	at := time.Hour
	if len(p.window) > 0 {
		if p.o.GiveUp > 0 {
			at = min(at, time.Until(p.since.Add(p.o.GiveUp)))
		}
		if f := p.window[0]; p.overtaken(f) {
			at = min(at, time.Until(f.began.Add(patience<<min(f.slow, 4))))
		}
	}
	p.alarm.Reset(max(at, 0))
}

// overtaken reports whether a batch is in flight although the service has refused a later one that
// was sent after it. It may be stuck: on a connection that is dead while others work, or in a proxy.
func (p *Publisher) overtaken(f *flight) bool {
	if f.state != flying || f.stop == nil {
		return false
	}
	for _, later := range p.window {
		if later.early > f.sent {
			return true
		}
	}
	return false
}

// ring gives up in time, and sends a batch again that later ones have overtaken.
func (p *Publisher) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil || p.err != nil || len(p.window) == 0 {
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
	if p.overtaken(f) && time.Since(f.began) >= patience<<min(f.slow, 4) {
		f.slow++
		f.stop(errOvertaken)
		f.stop = nil
	}
	p.schedule()
}
