package nodes

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"weir/internal/engine"
)

// A batch expires by the clock of the node that handles a request, and expiry is final for all
// nodes. So a node whose clock is two hours ahead would evict batches two hours too early for all
// nodes. Its wrong timestamps would also spread to later batches of other nodes, because times in a
// log never go backwards. Therefore nodes compare their clocks: every heartbeat (see Nodes) carries
// the time of the node that sends it. A node whose clock differs from the median of all clocks by
// more than maxSkew writes to no log until the clocks agree again, and uses the median as the
// current time.

const (
	// maxSkew is how far the clock of a node may differ from the median. It is longer than a
	// heartbeat takes on a busy machine.
	maxSkew = 5 * time.Second
	// clockSamples is how many of the last heartbeats of a node are remembered. A heartbeat that
	// takes long makes the clock of its sender look late. So only the fastest of the remembered
	// heartbeats is used.
	clockSamples = 8
	// witnessFor is how long the clock of a silent node is remembered. While only two nodes are
	// present, it tells which of them has the wrong clock.
	witnessFor = 10 * time.Minute
)

// clock compares the clock of this node with those of the other nodes. All times are measured as
// offsets from a steady clock, which does not change when the system time is set. So a jump of this
// node's own clock shows at once, before the next heartbeat arrives.
type clock struct {
	wall  func() time.Time // the clock that is checked
	begun time.Time        // when the steady clock began; see the method steady

	mu        sync.Mutex
	peers     map[string]*peerClock
	others    []time.Duration // offsets of the other nodes' clocks, sorted
	witnesses []time.Duration // the last known offsets of nodes that are silent
	first     chan struct{}   // closed when another node's clock is known
}

// peerClock is what is known about the clock of another node.
type peerClock struct {
	heard   time.Time
	offsets []time.Duration // of the last heartbeats
}

// isPresent reports whether the node was heard a short time ago.
func (p *peerClock) isPresent() bool { return time.Since(p.heard) <= goneAfter }

func (c *clock) init(wall func() time.Time) {
	c.wall, c.begun, c.peers, c.first = wall, time.Now(), map[string]*peerClock{}, make(chan struct{})
}

// steady returns the time of the steady clock.
func (c *clock) steady() time.Time { return c.begun.Add(time.Since(c.begun)) }

// offset returns how far a time is ahead of the steady clock. It removes the monotonic reading,
// because otherwise Sub would ignore changes of the system time.
func (c *clock) offset(at time.Time) time.Duration { return at.Round(0).Sub(c.steady().Round(0)) }

// hear takes note of the time that a heartbeat of another node carries. A node that has been silent
// for a while counts only as a witness. If all other nodes are silent, their last known offsets stay
// valid: this node is cut off, and its own clock may be the wrong one. If the other node has just
// started, its earlier heartbeats do not count any more: its clock may have been set in the meantime.
func (c *clock) hear(node string, at time.Time, started bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[node]
	if p == nil || started {
		p = &peerClock{}
		c.peers[node] = p
	}
	if p.heard = time.Now(); len(p.offsets) == clockSamples {
		p.offsets = p.offsets[1:]
	}
	p.offsets = append(p.offsets, c.offset(at))
	c.others, c.witnesses = nil, nil
	for name, p := range c.peers {
		switch {
		case p.isPresent():
			c.others = append(c.others, slices.Max(p.offsets))
		case time.Since(p.heard) < witnessFor:
			c.witnesses = append(c.witnesses, slices.Max(p.offsets))
		default:
			delete(c.peers, name)
		}
	}
	slices.Sort(c.others)
	select {
	case <-c.first:
	default:
		close(c.first)
	}
}

// read returns the current time and by how much this node's clock is ahead of the median of all
// clocks. The current time is that of this node's clock or, if that clock is wrong, the median. If
// the number of nodes is even, the earlier of the two middle clocks is the median, because only a
// clock that is ahead destroys data. But if only two nodes are present and their clocks differ, the
// clock that more witnesses agree with is right.
func (c *clock) read() (now time.Time, ahead time.Duration) {
	now = c.wall()
	own := c.offset(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	i, _ := slices.BinarySearchFunc(c.others, own, cmp.Compare)
	median := own
	switch middle := len(c.others) / 2; {
	case i < middle:
		median = c.others[middle-1]
	case i > middle:
		median = c.others[middle]
	}
	if len(c.others) == 1 && (own-c.others[0]).Abs() > maxSkew {
		switch trust := c.agreeing(own) - c.agreeing(c.others[0]); {
		case trust > 0:
			median = own
		case trust < 0:
			median = c.others[0]
		}
	}
	if ahead = own - median; ahead.Abs() > maxSkew {
		now = c.steady().Round(0).Add(median)
	}
	return now, ahead
}

// agreeing returns how many witnesses agree with a clock. The caller holds c.mu.
func (c *clock) agreeing(offset time.Duration) (n int) {
	for _, w := range c.witnesses {
		if (w - offset).Abs() <= maxSkew {
			n++
		}
	}
	return n
}

// aheads returns by how much the clock of each other node that is present is ahead of the median of
// all clocks.
func (c *clock) aheads() map[string]time.Duration {
	now, ahead := c.read()
	if ahead.Abs() > maxSkew {
		ahead = 0 // the time that read returned is the median
	}
	median := c.offset(now) - ahead
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]time.Duration{}
	for name, p := range c.peers {
		if p.isPresent() {
			all[name] = slices.Max(p.offsets) - median
		}
	}
	return all
}

// fault returns an error (engine.ErrClock, wrapped) while this node's clock is wrong.
func (c *clock) fault() error {
	_, ahead := c.read()
	switch {
	case ahead > maxSkew:
		return fmt.Errorf("%w: it is %v ahead of the clocks of the other nodes", engine.ErrClock, ahead.Round(time.Second))
	case ahead < -maxSkew:
		return fmt.Errorf("%w: it is %v behind the clocks of the other nodes", engine.ErrClock, -ahead.Round(time.Second))
	}
	return nil
}

// Now returns the current time. It is the time of this node's clock or, while that clock is wrong,
// the median of the clocks of all nodes.
func (n *Nodes) Now() time.Time {
	now, _ := n.clock.read()
	return now
}

// Ahead returns by how much this node's clock is ahead of the median of the clocks of all nodes. It
// is negative if the clock is behind.
func (n *Nodes) Ahead() time.Duration {
	_, ahead := n.clock.read()
	return ahead
}

// ClockFault returns an error (engine.ErrClock, wrapped) while this node's clock is wrong.
func (n *Nodes) ClockFault() error { return n.clock.fault() }
