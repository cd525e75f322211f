package jetstream

import (
	"fmt"
	"time"

	"weir/internal/engine"
)

// A node that is cut off does not learn that a key was revoked or a stream was deleted. So a node
// has a lease: it may rely on its copy of the documents for leaseFor after it last proved that the
// copy was up to date. For the proof it stores a fence, an empty message, in the stream of documents
// and waits until the message arrives (see line.catchUp). This works only if a majority of the
// replicas agrees.

const (
	// leaseFor is longer than an election (up to nine seconds) and one renewal take together.
	// Otherwise all nodes would refuse requests whenever a leader dies.
	leaseFor = 15 * time.Second
	// renewEvery is the pause between two renewals of the lease.
	renewEvery = 2 * time.Second
)

// Lease returns nil while this node knows which documents exist. After the node has been cut off
// from the majority of the servers for some seconds, Lease returns ErrUnavailable, wrapped.
func (e *Engine) Lease() error {
	if since := e.docs.unproven(); since > e.opts.lease {
		return fmt.Errorf("%w: for %v this node has not heard which keys were revoked and which streams were deleted", engine.ErrUnavailable, since.Round(time.Second))
	}
	return nil
}

// renew keeps the lease valid while a majority of the servers can be reached.
func (e *Engine) renew() {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-e.ending:
			return
		}
		if e.docs.unproven() >= renewEvery/2 {
			e.docs.catchUp(e.ctx) // if it fails, the next round tries again
		}
	}
}

// unproven returns how long ago the line was last proved to be up to date.
func (l *line) unproven() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.proven)
}
