package sim

import "time"

// watchAway notes since when nodes are cut off from the majority of the servers.
func (w *cluster) watchAway() {
	for _, n := range w.nodes {
		n.g.link.mu.Lock()
		away := n.g.link.down
		n.g.link.mu.Unlock()
		w.net.mu.Lock()
		away = away || w.net.cut[n.n]
		w.net.mu.Unlock()
		switch {
		case !away:
			n.g.away.Store(0)
		case n.g.away.Load() == 0:
			n.g.away.Store(int64(time.Since(w.scheduler.start)))
		}
	}
}

// isCutOff reports whether a node had been cut off at the given time for so long that it cannot
// know which keys and streams exist. Then it must refuse all requests (D18).
func (w *world) isCutOff(g *server, at time.Time) bool {
	since := time.Duration(g.away.Load())
	return since > 0 && at.Sub(w.scheduler.start)-since > leaseFor+3*time.Second
}

// holdsLease waits until a node knows again which keys and streams exist. During the final checks
// the scheduler may delay heartbeats for so long that a node thinks that it is cut off.
func (g *server) holdsLease() {
	for range 1200 { // a minute
		if g.dead.Load() || g.engine.Lease() == nil {
			return
		}
		<-time.After(50 * time.Millisecond)
	}
}
