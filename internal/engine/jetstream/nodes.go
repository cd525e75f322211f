package jetstream

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Nodes are the processes that share a store, as far as they can be heard: each says many times a second that it is there, and
// what it has to say. Nothing of it is kept, and a word may be lost.
type Nodes struct {
	e    *Engine
	name string
	sub  *nats.Subscription
	quit chan struct{}
	work sync.WaitGroup

	ctx    context.Context // ends when it leaves
	cancel context.CancelFunc

	mu    sync.Mutex
	heard map[string]time.Time
	since time.Time // when it began to listen
}

const (
	// sayEvery is how often a node tells what it has to say, and stillEvery that it is there.
	sayEvery   = 50 * time.Millisecond
	stillEvery = 500 * time.Millisecond
	// goneAfter is how long a node that says nothing counts as there.
	goneAfter = 4 * stillEvery

	speaker = "Weir-Node"
)

// Join makes this process known to the others under a name, which no other has. What words returns is handed to hear of all
// others; nil: nothing to say. Both are called by one goroutine at a time. End it with Leave, before the engine is closed.
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
	n.work.Go(func() {
		tick := time.NewTicker(sayEvery)
		defer tick.Stop()
		var last time.Time
		for {
			if b := words(); b != nil || time.Since(last) >= stillEvery {
				last = time.Now()
				e.nc.PublishMsg(&nats.Msg{Subject: subject, Data: b, Header: nats.Header{speaker: {name}}}) // lost while there is no server
			}
			select {
			case <-tick.C:
			case <-n.quit:
				return
			}
		}
	})
	return n, nil
}

// Leave ends it.
func (n *Nodes) Leave() {
	close(n.quit)
	n.cancel()
	n.work.Wait()
	n.sub.Unsubscribe()
}

// Names are the nodes that are there, this one included, in order.
func (n *Nodes) Names() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := []string{n.name}
	for name, at := range n.heard {
		if time.Since(at) < goneAfter {
			all = append(all, name)
		} else {
			delete(n.heard, name)
		}
	}
	slices.Sort(all)
	return all
}

// First tells whether this node is the one that does what only one should do. For a moment, when a node comes or goes, there
// can be none or two.
func (n *Nodes) First() bool {
	return time.Since(n.since) >= goneAfter && n.e.nc.IsConnected() && n.Names()[0] == n.name
}
