package sim

import (
	"os"
	"slices"
	"time"
)

// mayRest reports whether the clients rest now. They do so only while a client follows the stream of
// another one: then the time may come at which the stream expires or the key revokes itself.
func (w *world) mayRest(r int) bool { return r >= 985 && w.model.isFollowed() }

// isFollowed reports whether a client follows the stream of another one.
func (m *model) isFollowed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.owns {
		if o.user != nil && o.user.started {
			return true
		}
	}
	return false
}

// rest lets some seconds pass in which no client begins a request, nothing fails, and no disk call
// and no message waits for long. Only then does the model know what must happen soon.
func (w *world) rest() {
	d := time.Duration(1+w.rng.IntN(20_000)) * time.Millisecond
	w.note("the clients rest for %v", d)
	if w.isCluster() {
		w.cluster.net.quiet.Store(true)
		defer w.cluster.net.quiet.Store(false)
	}
	until, well := time.Now().Add(d), time.Now()
	for time.Now().Before(until) && w.faulty == "" && w.model.isFollowed() {
		list := w.settled()
		if w.isCluster() {
			w.cluster.heal(false)
			if w.cluster.isTroubled() {
				well = time.Now()
			}
		}
		w.overdue(list)
		w.model.rested(list, time.Since(well))
		if w.cutsOff(list) {
			continue
		}
		if w.draining != nil && w.draining.request() == nil {
			w.drained()
			continue
		}
		list = slices.DeleteFunc(list, func(o *waiter) bool { return o.idle })
		if len(list) == 0 || w.rng.IntN(10) == 0 {
			w.pass(time.Duration(1+w.rng.IntN(400)) * time.Millisecond)
			continue
		}
		w.advance(list[w.rng.IntN(len(list))], nil)
	}
	w.note("the clients go on")
}

// cutsOff ends a step of a client whose deadline has passed.
func (w *world) cutsOff(list []*waiter) bool {
	for _, o := range list {
		if o.client != nil && o.client.x != nil && !o.idle && o.client.x.expired() {
			w.advance(o, os.ErrDeadlineExceeded)
			return true
		}
	}
	return false
}

// isTroubled reports whether a fault of the cluster goes on, or a node is down.
func (w *cluster) isTroubled() bool {
	return len(w.troubles) > 0 || !w.allUp()
}

// calmAfter is how long all must be well until the model expects that everything which takes no time
// has happened. Nodes need some seconds to notice lost messages.
const calmAfter = 5 * time.Second

// rested checks the subscriptions to the streams of other clients. All has been well for the given
// time.
func (m *model) rested(list []*waiter, well time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.owns {
		x := o.user
		if x == nil || !x.started || x.gone || well < calmAfter || slices.ContainsFunc(list, func(o *waiter) bool { return o.disk || o.client == x.client }) {
			continue
		}
		ago := time.Now().Add(-calmAfter)
		h := x.held
		switch {
		case !x.key.revoked.IsZero() && x.key.revoked.Before(ago):
			m.w.violation("client %d: a subscription goes on, although its key was revoked %v ago", x.client.n, time.Since(x.key.revoked))
		case h == nil && o.sure && o.exists && o.exact && x.reached < o.count && !o.life.made.IsZero() && x.at.After(o.life.made):
			m.w.violation("client %d: a subscription waits for batch %d, but %d are stored", x.client.n, x.reached+1, o.count)
		case h == nil || h.vague || x.at.Before(h.again.Add(time.Minute)):
		case !h.exists && h.changed.Before(ago):
			m.w.violation("client %d: a subscription goes on, although its stream was deleted %v ago", x.client.n, time.Since(h.changed))
		case h.exists && x.reached < h.count:
			m.w.violation("client %d: a subscription waits for batch %d, but %d are stored", x.client.n, x.reached+1, h.count)
		}
	}
}
