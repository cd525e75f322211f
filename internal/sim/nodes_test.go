package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"weir/internal/access"
	"weir/internal/api"
	"weir/internal/budget"
	"weir/internal/engine"
	"weir/internal/engine/jetstream"
	peers "weir/internal/engine/jetstream/nodes"
	"weir/internal/hub"
)

// cluster is the part of a simulation in which several nodes share a store.
type cluster struct {
	*world
	net      *servers
	nodes    []*node
	troubles []trouble
	looked   int       // the node that the final check looks at
	righted  time.Time // when a clock was last seen to be wrong by much
	unsure   time.Time // when a node was last unable to tell which clock is wrong
}

// node is one of the processes that share a store, and the NATS server inside the process. After a
// crash or a restart, another process takes its place.
type node struct {
	w      *cluster
	n      int
	starts int
	ahead  atomic.Int64 // how far the clock of the node is ahead of the simulated time

	// Guarded by world.mu.
	g  *server
	up bool // g accepts requests
}

// natsServers is the number of NATS servers. If there are fewer nodes, some servers run alone.
const natsServers = 3

// isCluster reports whether several nodes share a store.
func (w *world) isCluster() bool { return w.cluster != nil }

// makeNodes prepares the nodes and their servers. It starts the first node, which creates what all
// clients use, and then the others.
func (w *cluster) makeNodes() {
	w.net = newServers(natsServers, w.seed)
	w.net.gate = func(name string) error { return w.gate(name, nil) }
	for i := range w.config.nodes {
		w.nodes = append(w.nodes, &node{w: w, n: i})
	}
	w.nodes[0].start()
	w.until("the first node is up", func() bool { return w.nodes[0].process() != nil })
	for _, n := range w.nodes[1:] {
		n.start()
	}
}

// process returns the process of the node if it accepts requests.
func (n *node) process() *server {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if !n.up {
		return nil
	}
	return n.g
}

// clock returns the time of the node.
func (n *node) clock() time.Time { return n.w.tick().Add(time.Duration(n.ahead.Load())) }

// start starts a process.
func (n *node) start() {
	g := &server{bodies: budget.New(300<<10, 100<<10), quit: make(chan struct{})}
	g.limited.Store(true) // the servers may be slow or unreachable at any time
	n.w.mu.Lock()
	n.starts++
	n.w.servers = append(n.w.servers, g)
	n.g, n.up = g, false
	n.w.mu.Unlock()
	g.link = n.w.net.connect(fmt.Sprintf("node %d.%d", n.n, n.starts), n.n)
	n.w.graves.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err := n.assemble(ctx, g)
		if g.dead.Load() {
			g.end()
			return
		}
		if err == nil {
			n.w.mu.Lock()
			n.up = true
			n.w.mu.Unlock()
			return
		}
		g.end()
		<-time.After(time.Second)
		if !g.dead.Load() {
			n.start()
		}
	})
}

// assemble builds a process in the same order as package service.
func (n *node) assemble(ctx context.Context, g *server) (err error) {
	g.engine, err = jetstream.OpenOn(ctx, g.link, jetstream.Options{
		Replicas: natsServers, Shards: 2, Now: n.clock, Room: func() (used, limit int64) { return 0, 0 },
	})
	if err != nil {
		return fmt.Errorf("open the engine: %w", err)
	}
	if g.access, err = access.Open(ctx, g.engine, access.Options{}); err != nil {
		return fmt.Errorf("open access: %w", err)
	}
	g.access.Share()
	if err := g.engine.Nodes.Join(peers.Self{Name: fmt.Sprint("node-", n.n), Words: g.access.Tally, Hear: g.access.AddTally}); err != nil {
		return fmt.Errorf("join the other nodes: %w", err)
	}
	g.members = g.engine.Nodes
	g.access.SetClock(g.engine.Nodes.Now)
	if g.hub, err = hub.Open(ctx, g.engine, hub.Options{Now: g.engine.Nodes.Now, Frame: api.Frame, TrimAfter: trimAfter(n.w.seed)}); err != nil {
		return fmt.Errorf("open the hub: %w", err)
	}
	g.hub.Lead(g.members.First)
	g.handler = api.New(api.Options{Hub: g.hub, Access: g.access, Bodies: g.bodies, Logger: n.w.logger(), Lease: g.engine.Lease})
	g.serveDurable()
	startLoop(n.w.world, g, fmt.Sprintf("loop of node %d.%d", n.n, n.starts))
	n.w.graves.Go(g.expireKeys)
	n.w.graves.Go(g.watchLease)
	if n.n > 0 {
		return nil
	}
	return n.w.bootstrap(ctx, g)
}

// watchLease ends all subscriptions while the node does not know which keys and streams exist.
func (g *server) watchLease() {
	<-time.After(171 * time.Microsecond)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for g.awaits(tick) {
		g.hub.Suspend(g.engine.Lease() != nil)
	}
}

// endNode ends the goroutines of a process that is a node, in the order in which a real service
// stops its parts.
func (g *server) endNode() {
	if g.hub != nil {
		g.hub.StopSubscriptions()
	}
	if g.members != nil {
		g.members.Leave()
	}
	if g.hub != nil {
		g.hub.Close()
	}
	if g.engine != nil {
		g.engine.Close()
	}
	if g.loop != nil {
		g.loop.stop()
	}
	g.link.Close()
}

// trouble is a fault of the cluster that ends by itself.
type trouble struct {
	until time.Time
	end   func()
}

// trouble causes a fault for a while.
func (w *cluster) causes(longest time.Duration, end func()) {
	d := time.Duration(1 + w.rng.Int64N(int64(longest)))
	w.troubles = append(w.troubles, trouble{time.Now().Add(d), end})
}

// heal ends the faults whose time is over, or all of them.
func (w *cluster) heal(all bool) {
	for i := 0; i < len(w.troubles); i++ {
		if t := w.troubles[i]; all || time.Now().After(t.until) {
			w.troubles = slices.Delete(w.troubles, i, i+1)
			i--
			t.end()
		}
	}
	w.watchAway()
}

// isolate cuts a server off from the others. Other servers take over what it leads.
func (w *cluster) isolate(server int) {
	w.net.mu.Lock()
	w.net.cut[server] = true
	w.net.mu.Unlock()
	for _, name := range w.streamNames() {
		if l := w.net.streams[name]; l.leader == server {
			w.elects(l, true)
		}
	}
}

// rejoin ends what isolate began.
func (w *cluster) rejoin(server int) {
	w.note("server %d is reachable again", server)
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.net.cut[server] = false
	for _, name := range slices.Sorted(maps.Keys(w.net.streams)) {
		l := w.net.streams[name]
		if l.deposed == server {
			l.deposed = -1
		}
		w.net.feed(l)
	}
}

func (w *cluster) streamNames() []string {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	return slices.Sorted(maps.Keys(w.net.streams))
}

// elects replaces the leader of a stream, at once or after an election.
func (w *cluster) elects(l *ledger, deposed bool) {
	next := (l.leader + 1) % natsServers
	if w.net.cut[next] {
		next = (next + 1) % natsServers
	}
	w.net.elect(l, -1, deposed)
	w.note("%s has no leader", l.config.Name)
	w.causes(9*time.Second, func() {
		if w.net.cut[next] {
			next = (next + 1) % natsServers
		}
		w.net.mu.Lock()
		l.leader = next
		if l.deposed == next {
			l.deposed = -1
		}
		l.lead() // a server becomes the leader only if it has everything that was agreed
		w.net.feed(l)
		w.net.mu.Unlock()
		w.note("server %d leads %s", next, l.config.Name)
		w.causes(5*time.Second, func() { w.notices(l) })
	})
}

// notices makes a server that was replaced as leader of a stream notice it, unless it is cut off.
func (w *cluster) notices(l *ledger) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	if l.deposed >= 0 && !w.net.cut[l.deposed] {
		l.deposed = -1
		w.net.feed(l)
	}
}

// fault causes a fault of the servers or of the network.
func (w *cluster) fault() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	names := w.streamNames()
	l := w.net.streams[names[w.rng.IntN(len(names))]]
	switch w.rng.IntN(5) {
	case 0:
		if slices.Contains(w.net.cut, true) {
			return
		}
		w.note("server %d is cut off", n.n)
		w.isolate(n.n)
		w.causes(25*time.Second, func() { w.rejoin(n.n) })
	case 1:
		k := n.g.link
		w.note("node %d has no connection", n.n)
		k.disconnect(true)
		w.causes(20*time.Second, func() {
			w.note("node %d is connected", n.n)
			k.disconnect(false)
			w.net.mu.Lock()
			defer w.net.mu.Unlock()
			for _, name := range slices.Sorted(maps.Keys(w.net.streams)) {
				w.net.feed(w.net.streams[name])
			}
		})
	case 2, 3:
		if l.leader >= 0 {
			w.elects(l, w.rng.IntN(2) == 0)
		}
	case 4:
		w.net.mu.Lock()
		for _, f := range l.feeds {
			f.dead = true
		}
		w.net.mu.Unlock()
		w.note("the consumers of %s are lost", l.config.Name)
	}
}

// disconnect cuts a node off from all servers, or ends that.
func (k *link) disconnect(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down = on
}

// clusterStep is like oneStep, for several nodes.
func (w *cluster) clusterStep() {
	list := w.settled()
	w.heal(false)
	w.watchClocks()
	w.overdue(list)
	if w.cutsOff(list) {
		return
	}
	if !slices.ContainsFunc(w.nodes, func(n *node) bool { return n.process() != nil }) {
		list = slices.DeleteFunc(list, func(o *waiter) bool { return o.idle })
	}
	if len(list) == 0 {
		w.pass(time.Duration(w.rng.IntN(1000)+1) * time.Millisecond)
		return
	}
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	switch r := w.rng.IntN(1000); {
	case w.has("crashes") && r < w.violence && n.process() != nil:
		n.crash()
		return
	case w.has("restarts") && r < 2*w.violence && n.process() != nil:
		n.restart()
		return
	case r < 20+w.pace/2:
		w.pass(time.Duration(w.rng.IntN(1<<w.rng.IntN(11))+1) * time.Millisecond)
		return
	case w.mayRest(r):
		w.rest()
		return
	case r < 21+w.pace/2 && w.has("clock") && w.violence > 0:
		w.skew(n)
		return
	case w.has("faults") && 21+w.pace/2 <= r && r < 21+w.pace/2+2*w.violence:
		w.fault()
		return
	}
	o := list[w.rng.IntN(len(list))]
	var err error
	switch {
	case o.disk && w.has("faults") && w.rng.IntN(200) < w.violence:
		err = []error{errLost, errUnanswered}[w.rng.IntN(2)]
	case !o.disk && w.has("hangups") && w.rng.IntN(60) == 0:
		err = errVanished
	}
	w.advance(o, err)
}

// crash kills the process of a node and, for a while, its server. Then another process starts.
func (n *node) crash() {
	w := n.w
	w.mu.Lock()
	g := n.g
	n.up = false
	w.mu.Unlock()
	g.dead.Store(true)
	w.note("node %d crashes", n.n)
	g.link.Close()
	alone := !slices.Contains(w.net.cut, true)
	if alone {
		w.isolate(n.n)
	}
	w.cut(g)
	w.graves.Go(g.end)
	n.setClock(0)
	w.causes(5*time.Second, func() {
		if alone {
			w.rejoin(n.n)
		}
		n.start()
	})
}

// restart stops the process of a node in an orderly way and starts another one.
func (n *node) restart() {
	w := n.w
	w.mu.Lock()
	g := n.g
	n.up = false
	w.mu.Unlock()
	w.note("node %d restarts", n.n)
	g.stopping.Store(true)
	g.hub.StopSubscriptions()
	w.cut(g)
	n.setClock(0)
	w.graves.Go(func() {
		g.end()
		n.start()
	})
}

// calmNodes ends all faults and makes all clocks right.
func (w *cluster) calmNodes() {
	w.heal(true)
	for len(w.troubles) > 0 {
		w.heal(true)
	}
	for _, n := range w.nodes {
		n.setClock(0)
	}
}

// allMet reports whether each node has heard all others.
func (w *cluster) allMet() bool {
	return !slices.ContainsFunc(w.nodes, func(n *node) bool { return len(n.g.members.Names()) < len(w.nodes) })
}

// allUp reports whether all nodes accept requests and writes.
func (w *cluster) allUp() bool {
	return !slices.ContainsFunc(w.nodes, func(n *node) bool {
		g := n.process()
		return g == nil || g.engine.Lease() != nil || g.engine.Status().State != engine.Ready
	})
}

// finishNodes checks each node, restarts all nodes, and checks them again. While the nodes restart,
// and while the streams are deleted, the scheduler decides when each message arrives. Otherwise
// requests arrive at once, because the client that checks the nodes does one thing after another.
func (w *cluster) finishNodes(done *atomic.Bool) {
	c := clientOf(w.world, watcher)
	w.until("all nodes are up", w.allUp)
	go func() {
		defer done.Store(true)
		w.net.quiet.Store(true)
		c.checkNodes(false)
		w.net.quiet.Store(false)
		w.again.Store(true)
		_ = c.step("asks for a restart")
		for w.again.Load() || !w.allUp() {
			<-time.After(50 * time.Millisecond)
		}
		w.net.quiet.Store(true)
		c.checkNodes(true)
	}()
}

// checkNodes inspects all streams on all nodes. All nodes must agree. If remove is true, it deletes
// the streams on one node, and waits until the other nodes know.
func (c *client) checkNodes(remove bool) {
	w := c.w.cluster
	for i, n := range w.nodes {
		w.look(i)
		g := n.process()
		c.paged = i != c.rng.IntN(len(w.nodes))
		objects := c.inspect()
		last := remove && i == len(w.nodes)-1
		w.net.quiet.Store(!last)
		for k, s := range w.model.streams {
			if w.faulty == "" {
				c.drain(g, s, &objects[k], last)
			}
		}
	}
	if !remove || w.faulty != "" {
		return
	}
	for _, s := range w.model.streams {
		for _, n := range w.nodes {
			for w.faulty == "" {
				x := c.ask(n.process(), "GET", "/v1/streams/"+string(s.id), nil)
				if x != nil && x.status == 404 {
					break
				}
				<-time.After(50 * time.Millisecond)
			}
		}
	}
}

// look makes the method current return the process of a node.
func (w *cluster) look(node int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looked = node
}
