// Package copies knows which servers have copies of the streams of a store, and moves the copies
// between servers.
package copies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/wire"
)

// Mover changes which servers have copies of streams. The server inside the process implements it
// (package embedded). It does not exist for servers that run elsewhere: their operator moves
// streams with the tools of NATS.
type Mover interface {
	// Members returns the names of the connected servers, and the number of all servers that have
	// joined the cluster and were not removed.
	Members() (connected []string, all int, err error)
	// HasMember reports whether a server has joined the cluster and was not removed.
	HasMember(name string) (bool, error)
	// Move starts to move the copy of a stream from one server to another.
	Move(ctx context.Context, stream, from, to string) error
	// Lead makes a server that has a copy of a stream its leader.
	Lead(ctx context.Context, stream, name string) error
	// Remove removes a server from the cluster. If the server had copies of streams, other servers
	// get new copies.
	Remove(ctx context.Context, name string) error
}

// Options say which streams are copied, and what else Copies needs to know of the cluster.
type Options struct {
	// Names returns the names of the streams: first that of the documents, then those of the shards
	// in order.
	Names func() []string
	// Mover moves copies between the NATS servers. If Mover is nil, Balance and Expel fail.
	Mover Mover
	// Removed reports whether a node was removed from the cluster, and Remove stores that it was.
	Removed func(name string) bool
	Remove  func(ctx context.Context, name string) error
	// MayRemove returns an error if a node runs a version that knows nothing of removed nodes.
	MayRemove func() error
}

// Copies are the copies of the streams of a store.
type Copies struct {
	Options
	client *wire.Client

	mu  sync.Mutex // held while Stand asks the servers, so that concurrent callers ask once
	at  time.Time
	all Standing // the last result of Stand
}

// New returns the copies of a store.
func New(c *wire.Client, o Options) *Copies { return &Copies{Options: o, client: c} }

// Progress is the progress of Balance or Expel.
type Progress struct {
	Done, Total int    // steps
	Doing       string // the step that has begun
}

// ErrMove means that the copies cannot be moved at the moment, or not at all. The text says why.
var ErrMove = errors.New("cannot move copies")

const (
	// moveEvery is how often the engine asks whether a step is done.
	moveEvery = 200 * time.Millisecond
	// moveAgain is how long the engine waits before it repeats a request that the servers refused.
	// (They may not have been ready.) moveTries is how often it sends a request at most.
	moveAgain = 2 * time.Second
	moveTries = 10
	// leadWithin is how long a server may take to become the leader of a stream.
	leadWithin = 5 * time.Second
	// electWithin is how long Expel waits until all shards have leaders.
	electWithin = 20 * time.Second
	// stopWithin is how long Expel waits until a removed node has stopped by itself.
	stopWithin = 30 * time.Second
)

// Balance spreads the copies of all streams, and their leaders, over all nodes. It returns when all
// new copies are complete. The store is available all the time. If Balance is interrupted, call it
// again.
func (c *Copies) Balance(ctx context.Context, tell func(Progress)) error {
	mover, connected, all, err := c.members()
	if err != nil {
		return err
	}
	if len(connected) < all {
		return fmt.Errorf("%w: %d of %d nodes are connected", ErrMove, len(connected), all)
	}
	return c.rearrange(ctx, mover, "", tell)
}

// members returns the Mover, the connected servers, and the number of all servers.
func (c *Copies) members() (Mover, []string, int, error) {
	if c.Mover == nil {
		return nil, nil, 0, fmt.Errorf("%w: the NATS servers run elsewhere, and their own tools move streams", ErrMove)
	}
	connected, all, err := c.Mover.Members()
	if err != nil {
		err = fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	return c.Mover, connected, all, err
}

// rearrange takes the steps of a plan, one after another. It plans again after every step, because
// nodes may come and go meanwhile.
func (c *Copies) rearrange(ctx context.Context, mover Mover, leaving string, tell func(Progress)) error {
	led := map[step]bool{}
	for done := 0; ; done++ {
		standing, err := c.settled(ctx, "")
		if err != nil {
			return err
		}
		_, connected, _, err := c.members()
		if err != nil {
			return err
		}
		steps := plan(standing.Streams, connected, leaving)
		// A server that was asked to become the leader and did not is not asked again. Otherwise this
		// loop might never end.
		steps = slices.DeleteFunc(steps, func(s step) bool { return led[s] })
		if len(steps) == 0 {
			return nil
		}
		next := steps[0]
		led[next] = next.from == ""
		name, shard := c.Names()[next.stream], shardName(standing.Streams[next.stream].Shard)
		doing := fmt.Sprintf("%s: copy from %s to %s", shard, next.from, next.to)
		if next.from == "" {
			doing = fmt.Sprintf("%s: leader becomes %s", shard, next.to)
		}
		tell(Progress{done, done + len(steps), doing})
		if err := c.take(ctx, mover, name, next); err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
	}
}

// take takes one step and waits until it is done. If a server does not become the leader in time,
// that is no error: the stream has another leader.
func (c *Copies) take(ctx context.Context, mover Mover, stream string, s step) error {
	for tries := 1; ; tries++ {
		try, cancel := context.WithTimeout(ctx, wire.Timeout)
		var err error
		if s.from == "" {
			err = mover.Lead(try, stream, s.to)
		} else {
			err = mover.Move(try, stream, s.from, s.to)
		}
		cancel()
		if err == nil {
			break
		}
		if tries == moveTries || c.client.Pause(ctx, moveAgain) != nil {
			return err
		}
	}
	for begun := time.Now(); ; {
		asking, cancel := context.WithTimeout(ctx, standWithin) // a server that stops leading may not answer
		now := c.askStream(asking, stream)
		cancel()
		on := now.servers()
		switch {
		case s.from == "" && (now.Leader == s.to || time.Since(begun) > leadWithin):
			return nil
		case s.from != "" && slices.Contains(on, s.to) && !slices.Contains(on, s.from):
			return nil
		}
		if err := c.client.Pause(ctx, moveEvery); err != nil {
			return err
		}
	}
}

// settled waits until no copy is being moved, every stream has a leader, and the copies on
// connected servers are up to date. If the parameter gone names a server, settled also waits until
// this server has no copy.
func (c *Copies) settled(ctx context.Context, gone string) (Standing, error) {
	unsettled := func(s StreamStanding) bool {
		late := func(r ReplicaStanding) bool { return !r.Offline && !r.Current || r.Server == gone }
		return s.Fault != "" || len(s.Replicas) != s.Wanted || slices.ContainsFunc(s.Replicas, late)
	}
	for {
		standing := c.ask(ctx)
		at := slices.IndexFunc(standing.Streams, unsettled)
		if at < 0 {
			return standing, nil
		}
		if err := c.client.Pause(ctx, moveEvery); err != nil {
			return standing, fmt.Errorf("wait until all copies are up to date: %s: %w", shardName(standing.Streams[at].Shard), err)
		}
	}
}

func shardName(i int) string {
	if i < 0 {
		return "documents"
	}
	return fmt.Sprint("shard ", i)
}

// Expel takes a node out of the cluster for good. It first moves all copies off the node, while the
// node and the store go on serving. Then it writes the name of the node into the store, which makes
// the node stop, and makes the other nodes refuse a node with this name. If the node is dead, set
// force: the copies on it are given up, and other nodes get new ones. If Expel is interrupted, call
// it again.
func (c *Copies) Expel(ctx context.Context, name string, force bool, tell func(Progress)) error {
	standing := c.ask(ctx)
	// If a node has just died, its shards are still electing leaders, so Expel waits for them.
	for late := time.Now().Add(electWithin); standing.Headless > 0 && time.Now().Before(late) && c.client.Pause(ctx, moveEvery) == nil; {
		standing = c.ask(ctx)
	}
	mover, connected, all, err := c.members()
	if err != nil {
		return err
	}
	member, err := mover.HasMember(name)
	if err != nil {
		return fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	if !member {
		if c.Removed(name) {
			return nil // an earlier call was interrupted after its last change
		}
		return fmt.Errorf("%w: %q is not a node of this cluster", ErrMove, name)
	}
	if err := c.mayExpel(standing, name, connected, all, force); err != nil {
		return err
	}
	if !force {
		if err := c.rearrange(ctx, mover, name, tell); err != nil {
			return err
		}
	}
	tell(Progress{Doing: "remove " + name})
	if err := c.Remove(ctx, name); err != nil {
		return err
	}
	if err := c.awaitStopped(ctx, mover, name); err != nil {
		return err
	}
	_, err = wire.Ask(ctx, c.client, func(ctx context.Context) (bool, error) {
		if member, err := mover.HasMember(name); err == nil && !member {
			return true, nil
		}
		return true, mover.Remove(ctx, name)
	})
	if err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	tell(Progress{Doing: "wait until all copies are up to date"})
	_, err = c.settled(ctx, name)
	return err
}

// mayExpel returns an error that says why a node cannot be removed.
func (c *Copies) mayExpel(standing Standing, name string, connected []string, all int, force bool) error {
	here := slices.Contains(connected, name)
	remain := len(connected)
	if here {
		remain--
	}
	wanted := 0
	for _, s := range standing.Streams {
		wanted = max(wanted, s.Wanted)
		if s.Fault != "" {
			return fmt.Errorf("%w: %s accepts no writes: %s", ErrMove, shardName(s.Shard), s.Fault)
		}
	}
	switch {
	case name == c.client.Server():
		return fmt.Errorf("%w: %s is the node that would do it: ask another node", ErrMove, name)
	case here && force:
		return fmt.Errorf("%w: %s is connected, so its copies can be moved: leave out --force", ErrMove, name)
	case !here && !force:
		return fmt.Errorf("%w: %s is not connected: start it, or give up its copies with --force", ErrMove, name)
	case remain < wanted:
		return fmt.Errorf("%w: %d connected nodes would remain, and each shard has %d copies", ErrMove, remain, wanted)
	case remain <= (all-1)/2:
		return fmt.Errorf("%w: %d of %d nodes would be connected, which is no majority", ErrMove, remain, all-1)
	case !force:
		return c.MayRemove()
	}
	return nil
}

// awaitStopped waits until a removed node has stopped. The node stops by itself. If it does not
// stop in time, removing it does no harm either.
func (c *Copies) awaitStopped(ctx context.Context, mover Mover, name string) error {
	for late := time.Now().Add(stopWithin); time.Now().Before(late); {
		connected, _, err := mover.Members()
		if err == nil && !slices.Contains(connected, name) {
			return nil
		}
		if err := c.client.Pause(ctx, moveEvery); err != nil {
			return err
		}
	}
	return nil
}
