package jetstream

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Nodes is the list of processes that share a store, as far as this process receives their
// messages. Each process sends a message twice per second to show that it is alive, and up to 20
// times per second if it has data for the others. These messages are not stored and may get lost.
type Nodes struct {
	e    *Engine
	name string
	sub  *nats.Subscription
	quit chan struct{}
	work sync.WaitGroup

	ctx    context.Context // ends when Leave is called
	cancel context.CancelFunc

	mu     sync.Mutex
	heard  map[string]time.Time // when each other node was last heard
	since  time.Time            // when this node started to listen
	skewed bool                 // reportClock last logged that this node's clock is wrong
}

const (
	// sayEvery is the interval at which a node sends data. A node without data sends an empty
	// message every stillEvery, to show that it is alive.
	sayEvery   = 50 * time.Millisecond
	stillEvery = 500 * time.Millisecond
	// goneAfter is how long a silent node still counts as present.
	goneAfter = 4 * stillEvery
	// missedFor is how long a silent node is remembered.
	missedFor = time.Hour

	// meetFor is how long Join waits for the first message of another node.
	meetFor = 2 * stillEvery

	// Header fields: the name of the node that sends a message, the time of its clock in
	// milliseconds since 1970, and a request that all nodes answer at once.
	speaker   = "Weir-Node"
	clockTime = "Weir-Clock"
	rollCall  = "Weir-Roll-Call"
)

// Join announces this process to the other nodes under a name, which must be unique. The engine
// calls the function words at short intervals and sends the result to all other nodes, which pass
// it to their function hear. If words returns nil, there is nothing to send. Each of the two
// functions is called by one goroutine at a time. Call Leave before closing the engine.
//
// Join returns when it has received a message of another node, or after a second if there is none.
// So when Join returns, a wrong clock of this node is known (see clock).
func (e *Engine) Join(name string, words func() []byte, hear func(words []byte)) (*Nodes, error) {
	n := &Nodes{e: e, name: name, quit: make(chan struct{}), heard: map[string]time.Time{}, since: time.Now()}
	n.ctx, n.cancel = context.WithCancel(e.ctx)
	subject := e.opts.Name + ".nodes"
	var err error
	n.sub, err = e.nc.Subscribe(subject, func(m *nats.Msg) {
		from := m.Header.Get(speaker)
		if from == "" || from == name {
			return
		}
		n.mu.Lock()
		n.heard[from] = time.Now()
		n.mu.Unlock()
		if ms, err := strconv.ParseInt(m.Header.Get(clockTime), 10, 64); err == nil {
			e.clock.hear(from, time.UnixMilli(ms))
		}
		if m.Header.Get(rollCall) != "" {
			n.say(nil, false)
		}
		if len(m.Data) > 0 {
			hear(m.Data)
		}
	})
	if err == nil {
		err = e.nc.FlushTimeout(attempt)
	}
	if err != nil {
		n.cancel()
		return nil, err
	}
	n.work.Go(n.endOrphans)
	n.say(nil, true)
	n.work.Go(func() { n.announce(words) })
	late := time.NewTimer(meetFor)
	defer late.Stop()
	select {
	case <-e.clock.first:
	case <-late.C:
	}
	n.reportClock()
	return n, nil
}

// announce sends messages to the other nodes until this node leaves.
func (n *Nodes) announce(words func() []byte) {
	tick := time.NewTicker(sayEvery)
	defer tick.Stop()
	var last time.Time
	for {
		if b := words(); b != nil || time.Since(last) >= stillEvery {
			last = time.Now()
			n.say(b, false)
			n.reportClock()
		}
		select {
		case <-tick.C:
		case <-n.quit:
			return
		}
	}
}

// say sends a message to all nodes. The message is lost if no server is connected.
func (n *Nodes) say(words []byte, ask bool) {
	h := nats.Header{speaker: {n.name}, clockTime: {strconv.FormatInt(n.e.opts.Now().UnixMilli(), 10)}}
	if ask {
		h.Set(rollCall, "1")
	}
	n.e.nc.PublishMsg(&nats.Msg{Subject: n.e.opts.Name + ".nodes", Data: words, Header: h})
}

// reportClock logs when this node's clock turns out to be wrong, and when it is right again.
func (n *Nodes) reportClock() {
	why := n.e.clock.fault()
	n.mu.Lock()
	changed := n.skewed != (why != nil)
	n.skewed = why != nil
	n.mu.Unlock()
	switch {
	case changed && why != nil:
		n.e.opts.Logger.Error("this node accepts no writes", "error", why)
	case changed:
		n.e.opts.Logger.Info("the clock of this node agrees with the other nodes again")
	}
}

// Leave ends the announcements. After Leave returns, the engine does not call words.
func (n *Nodes) Leave() {
	close(n.quit)
	n.cancel()
	n.work.Wait()
	n.sub.Unsubscribe()
}

// Names returns the present nodes, this one included, sorted.
func (n *Nodes) Names() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := []string{n.name}
	for name, at := range n.heard {
		if time.Since(at) < goneAfter {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// Known returns the number of nodes that were present within the last hour, this one included. If it
// is more than the number of Names, a node is missing.
func (n *Nodes) Known() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.heard, func(_ string, at time.Time) bool { return time.Since(at) >= missedFor })
	return 1 + len(n.heard)
}

// First reports whether this node should do the tasks that one node does on behalf of all nodes.
// When a node joins or leaves, First can be true on two nodes, or on none, for a moment.
func (n *Nodes) First() bool {
	return time.Since(n.since) >= goneAfter && n.e.nc.IsConnected() && n.Names()[0] == n.name
}
