package jetstream

import (
	"context"
	"fmt"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/copies"
	"weir/internal/engine/jetstream/nodes"
	"weir/internal/engine/jetstream/wire"
)

const (
	// probeEvery is the interval at which the engine checks whether the servers can serve requests.
	probeEvery = 2 * time.Second
	// election is how long a leader may be missing before the store counts as unreachable. Servers
	// elect another leader within nine seconds, and open logs stay usable in the meantime. Without
	// this delay, all nodes would report that they are not ready as soon as one leader dies, and a
	// load balancer would send requests to none of them.
	election = 10 * time.Second
)

// probe checks every probeEvery that the stream of documents has a leader with a quorum. It also
// checks that JetStream as a whole has a leader (the meta leader), because no log can be opened
// without one.
func (e *Engine) probe() {
	tick := time.NewTicker(e.client.Apart(probeEvery))
	defer tick.Stop()
	since := time.Now()
	for e.awaits(tick) {
		begun := time.Now()
		err := e.probeOnce(e.client.Life)
		switch {
		case err == nil:
			since = begun
			e.outage.Store(nil)
		case e.client.Life.Err() == nil && time.Since(since) > election:
			err = fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
			e.outage.Store(&err)
		}
	}
}

// probeOnce returns nil if the servers can serve requests.
func (e *Engine) probeOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, wire.Timeout)
	defer cancel()
	s, err := e.client.Stream(ctx, e.docs.Stream)
	if err == nil {
		err = copies.Led(s.Cluster)
	}
	if err != nil {
		return fmt.Errorf("the documents cannot be written: %w", err)
	}
	// Only the meta leader, the leader of JetStream as a whole, answers this request.
	if _, err := e.client.Account(ctx); err != nil {
		return fmt.Errorf("JetStream has no leader: %w", err)
	}
	return nil
}

// A node that is cut off does not learn that a key was revoked or a stream was deleted. Keys and
// streams are stored as documents, of which every node has a copy. So a node has a lease: after it
// has proved that its copy is up to date, it may rely on the copy for the duration leaseFor. For
// the proof, the node stores a fence (an empty message) in the JetStream stream of the documents
// and waits until the fence arrives (see line.CatchUp). This works only if a majority of the
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
	if since := e.docs.Unproven(); since > e.opts.lease {
		return fmt.Errorf("%w: for %v this node has not heard which keys were revoked and which streams were deleted", engine.ErrUnavailable, since.Round(time.Second))
	}
	return nil
}

// renew keeps the lease valid while a majority of the servers can be reached.
func (e *Engine) renew() {
	tick := time.NewTicker(e.client.Apart(renewEvery))
	defer tick.Stop()
	for e.awaits(tick) {
		if e.docs.Unproven() >= renewEvery/2 {
			e.docs.Sync(e.client.Life) // the error can be ignored, because the next round tries again
		}
	}
}

// tick runs the periodic tasks: it measures the space, carries out the purges that are due, and
// reviews which logs to follow.
func (e *Engine) tick() {
	tick := time.NewTicker(e.client.Apart(nodes.MeasureEvery))
	defer tick.Stop()
	for e.awaits(tick) {
		e.space.Measure(e.client.Life)
		e.tidy()
		e.reviewLogs(time.Now())
	}
}

// awaits waits for a tick. It returns false when the engine ends, even if there is a tick too.
func (e *Engine) awaits(tick *time.Ticker) bool {
	select {
	case <-tick.C:
	case <-e.ending:
	}
	select {
	case <-e.ending:
		return false
	default:
		return true
	}
}

// reviewLogs calls reviewFollowing for each open log.
func (e *Engine) reviewLogs(now time.Time) {
	e.mu.Lock()
	open := e.inOrder()
	e.mu.Unlock()
	for _, l := range open {
		l.reviewFollowing(now)
	}
}
