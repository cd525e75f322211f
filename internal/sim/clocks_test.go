package sim

import (
	"slices"
	"time"
)

// skew sets the clock of a node. Nodes tolerate small differences. A node whose clock is wrong by
// more writes nothing (D14). But a node that has heard no other one since it started cannot know
// that its clock is wrong, so at most one clock is wrong by much, and only if all nodes are present.
// Nodes remember eight heartbeats, so after a clock was wrong, the others are right for ten seconds.
func (w *cluster) skew(n *node) {
	d := time.Duration(w.rng.IntN(9000)-4500) * time.Millisecond
	if slices.ContainsFunc(w.nodes, (*node).isWrong) {
		w.righted = time.Now()
	}
	if w.rng.IntN(4) == 0 && time.Since(w.righted) > 10*time.Second && w.allUp() && w.allMet() {
		d *= 100_000 // days, which is longer than most batches are kept
		if len(w.nodes) == 2 {
			d = d.Abs() // of two clocks that differ, the one that is ahead counts as wrong
		}
	}
	w.skewed, w.back, w.stepped = true, true, time.Now().Add(1000*time.Hour)
	n.setClock(d)
	w.note("the clock of node %d is %v ahead", n.n, d)
}

// isWrong reports whether the clock of the node is wrong by much.
func (n *node) isWrong() bool { return time.Duration(n.ahead.Load()).Abs() > 5*time.Second }

// watchClocks notes when a node cannot tell which clock is wrong, because it has not heard all others
// since it started.
func (w *cluster) watchClocks() {
	wrong := slices.ContainsFunc(w.nodes, (*node).isWrong)
	for _, n := range w.nodes {
		if g := n.process(); g != nil && !g.met {
			g.met = len(g.members.Names()) == len(w.nodes)
		}
		if g := n.process(); wrong && (g == nil || !g.met) {
			w.unsure = time.Now()
		}
	}
}

// isUnsure reports whether a node could not tell a short time ago which clock is wrong.
func (w *world) isUnsure() bool {
	return w.isCluster() && !w.cluster.unsure.IsZero() && time.Since(w.cluster.unsure) < leaseFor
}

// setClock sets how far the clock of the node is ahead.
func (n *node) setClock(d time.Duration) {
	if was := time.Duration(n.ahead.Swap(int64(d))); was.Abs() > 5*time.Second {
		n.w.righted = time.Now()
	}
}
