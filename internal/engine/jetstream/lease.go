package jetstream

import (
	"fmt"
	"time"

	"weir/internal/engine"
)

// A node that is cut off does not learn that a key was revoked or a stream was deleted. Keys and
// streams are stored as documents, of which every node has a copy. So a node has a lease: after it
// has proved that its copy is up to date, it may rely on the copy for the duration leaseFor. For
// the proof, the node stores a fence (an empty message) in the JetStream stream of the documents
// and waits until the fence arrives (see line.catchUp). This works only if a majority of the
// replicas agrees.

const (
	// leaseFor is longer than the sum of an election (up to nine seconds) and one renewal.
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
	tick := time.NewTicker(e.apart(renewEvery))
	defer tick.Stop()
	for e.awaits(tick) {
		if e.docs.unproven() >= renewEvery/2 {
			e.docs.catchUp(e.ctx) // the error can be ignored, because the next round tries again
		}
	}
}

// unproven returns how long ago this node's copy was last proved to be up to date.
func (l *line) unproven() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.proven)
}
