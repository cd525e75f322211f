package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"weir/internal/engine"
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
	// moveAgain is how long the engine waits before it repeats a request that the servers refused,
	// because they may not have been ready, and moveTries is how often it sends a request.
	moveAgain = 2 * time.Second
	moveTries = 10
	// leadWithin is how long a server may take to become the leader of a stream.
	leadWithin = 5 * time.Second
	// electWithin is how long Expel waits until all shards have leaders.
	electWithin = 2 * election
	// stopWithin is how long Expel waits until a removed node has stopped by itself.
	stopWithin = 30 * time.Second
)

// Balance spreads the copies of all streams, and their leaders, over all nodes. It returns when all
// new copies are complete. The store is available all the time. If Balance is interrupted, call it
// again.
func (e *Engine) Balance(ctx context.Context, tell func(Progress)) error {
	mover, connected, all, err := e.members()
	if err != nil {
		return err
	}
	if len(connected) < all {
		return fmt.Errorf("%w: %d of %d nodes are connected", ErrMove, len(connected), all)
	}
	return e.rearrange(ctx, mover, "", tell)
}

// members returns the Mover, the connected servers, and the number of all servers.
func (e *Engine) members() (Mover, []string, int, error) {
	if e.opts.Mover == nil {
		return nil, nil, 0, fmt.Errorf("%w: the NATS servers run elsewhere, and their own tools move streams", ErrMove)
	}
	connected, all, err := e.opts.Mover.Members()
	if err != nil {
		err = fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	return e.opts.Mover, connected, all, err
}

// rearrange takes the steps of a plan, one after another. It plans again after every step, because
// nodes may come and go meanwhile.
func (e *Engine) rearrange(ctx context.Context, mover Mover, leaving string, tell func(Progress)) error {
	led := map[step]bool{}
	for done := 0; ; done++ {
		standing, err := e.settledStanding(ctx, "")
		if err != nil {
			return err
		}
		_, connected, _, err := e.members()
		if err != nil {
			return err
		}
		steps := plan(standing.Streams, connected, leaving)
		// A server that did not become the leader is not asked again: this could go on for ever.
		steps = slices.DeleteFunc(steps, func(s step) bool { return led[s] })
		if len(steps) == 0 {
			return nil
		}
		next := steps[0]
		led[next] = next.from == ""
		name, shard := e.streamNames()[next.stream], shardName(standing.Streams[next.stream].Shard)
		doing := fmt.Sprintf("%s: copy from %s to %s", shard, next.from, next.to)
		if next.from == "" {
			doing = fmt.Sprintf("%s: leader becomes %s", shard, next.to)
		}
		tell(Progress{done, done + len(steps), doing})
		if err := e.take(ctx, mover, name, next); err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
	}
}

// take takes one step and waits until it is done. If a server does not become the leader in time,
// that is no error: the stream has another leader.
func (e *Engine) take(ctx context.Context, mover Mover, stream string, s step) error {
	for tries := 1; ; tries++ {
		try, cancel := context.WithTimeout(ctx, attempt)
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
		if tries == moveTries || pause(ctx, moveAgain) != nil {
			return err
		}
	}
	for begun := time.Now(); ; {
		asking, cancel := context.WithTimeout(ctx, standWithin) // a server that stops leading may not answer
		now := e.askStream(asking, stream)
		cancel()
		on := now.servers()
		switch {
		case s.from == "" && (now.Leader == s.to || time.Since(begun) > leadWithin):
			return nil
		case s.from != "" && slices.Contains(on, s.to) && !slices.Contains(on, s.from):
			return nil
		}
		if err := pause(ctx, moveEvery); err != nil {
			return err
		}
	}
}

// settledStanding waits until no copy is being moved, every stream has a leader, and the copies on
// connected servers are up to date. None of them may be on the server gone.
func (e *Engine) settledStanding(ctx context.Context, gone string) (Standing, error) {
	unsettled := func(s StreamStanding) bool {
		late := func(r ReplicaStanding) bool { return !r.Offline && !r.Current || r.Server == gone }
		return s.Fault != "" || len(s.Replicas) != s.Wanted || slices.ContainsFunc(s.Replicas, late)
	}
	for {
		standing := e.askStanding(ctx)
		at := slices.IndexFunc(standing.Streams, unsettled)
		if at < 0 {
			return standing, nil
		}
		if err := pause(ctx, moveEvery); err != nil {
			return standing, fmt.Errorf("wait until all copies are up to date: %s: %w", shardName(standing.Streams[at].Shard), err)
		}
	}
}

// streamNames returns the names of the streams in the order of Standing.Streams.
func (e *Engine) streamNames() []string {
	names := []string{e.docs.stream}
	for _, s := range e.shards() {
		names = append(names, s.stream)
	}
	return names
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
func (e *Engine) Expel(ctx context.Context, name string, force bool, tell func(Progress)) error {
	standing := e.askStanding(ctx)
	// If a node has just died, its shards are electing leaders.
	for late := time.Now().Add(electWithin); standing.Headless > 0 && time.Now().Before(late) && pause(ctx, moveEvery) == nil; {
		standing = e.askStanding(ctx)
	}
	mover, connected, all, err := e.members()
	if err != nil {
		return err
	}
	member, err := mover.HasMember(name)
	if err != nil {
		return fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	if !member {
		if e.isRemoved(name) {
			return nil // an earlier call was interrupted after its last change
		}
		return fmt.Errorf("%w: %q is not a node of this cluster", ErrMove, name)
	}
	if err := e.mayExpel(standing, name, connected, all, force); err != nil {
		return err
	}
	if !force {
		if err := e.rearrange(ctx, mover, name, tell); err != nil {
			return err
		}
	}
	tell(Progress{Doing: "remove " + name})
	if err := e.remember(ctx, name); err != nil {
		return err
	}
	if err := awaitStopped(ctx, mover, name); err != nil {
		return err
	}
	_, err = withRetry(ctx, e, func(ctx context.Context) (bool, error) {
		if member, err := mover.HasMember(name); err == nil && !member {
			return true, nil
		}
		return true, mover.Remove(ctx, name)
	})
	if err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	tell(Progress{Doing: "wait until all copies are up to date"})
	_, err = e.settledStanding(ctx, name)
	return err
}

// mayExpel returns an error that says why a node cannot be removed.
func (e *Engine) mayExpel(standing Standing, name string, connected []string, all int, force bool) error {
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
	case name == e.servers.Server():
		return fmt.Errorf("%w: %s is the node that would do it: ask another node", ErrMove, name)
	case here && force:
		return fmt.Errorf("%w: %s is connected, so its copies can be moved: leave out --force", ErrMove, name)
	case !here && !force:
		return fmt.Errorf("%w: %s is not connected: start it, or give up its copies with --force", ErrMove, name)
	case remain < wanted:
		return fmt.Errorf("%w: %d connected nodes would remain, and each shard has %d copies", ErrMove, remain, wanted)
	case remain <= (all-1)/2:
		return fmt.Errorf("%w: %d of %d nodes would be connected, which is no majority", ErrMove, remain, all-1)
	case !force && e.lowestFormat.Load() < grown:
		return engine.ErrOlder
	}
	return nil
}

// awaitStopped waits until a removed node has stopped. The node stops by itself. If it does not
// stop in time, removing it does no harm either.
func awaitStopped(ctx context.Context, mover Mover, name string) error {
	for late := time.Now().Add(stopWithin); time.Now().Before(late); {
		connected, _, err := mover.Members()
		if err == nil && !slices.Contains(connected, name) {
			return nil
		}
		if err := pause(ctx, moveEvery); err != nil {
			return err
		}
	}
	return nil
}

// removedName is the last part of the subject of the message with the names of the removed nodes.
// It is not the key of a document.
const removedName = "~removed"

// removed is the nodes that were removed from the cluster.
type removed struct {
	revision uint64 // sequence of the message with the names
	names    []string
}

// isRemoved reports whether a node was removed from the cluster.
func (e *Engine) isRemoved(name string) bool {
	all := e.removed.Load()
	return all != nil && slices.Contains(all.names, name)
}

// remember stores the name of a removed node.
func (e *Engine) remember(ctx context.Context, name string) error {
	if err := e.CatchUp(ctx); err != nil {
		return err
	}
	var have removed
	if all := e.removed.Load(); all != nil {
		have = *all
	}
	if slices.Contains(have.names, name) {
		return nil
	}
	value, err := json.Marshal(append(slices.Clone(have.names), name))
	if err != nil {
		return err
	}
	m := &nats.Msg{Subject: e.docs.prefix + removedName, Data: value, Header: nats.Header{writerID: {writerName()}}}
	if _, err := e.docs.write(ctx, m, have.revision); err != nil {
		return fmt.Errorf("store that %s was removed: %w", name, err)
	}
	return nil
}

// takeRemoved handles the names of removed nodes that the line of the documents has delivered.
func (e *Engine) takeRemoved(m Stored) {
	next := &removed{revision: m.Seq}
	if err := json.Unmarshal(m.Data, &next.names); err != nil {
		e.opts.Logger.Error("the names of removed nodes cannot be read", "error", err)
		return
	}
	e.removed.Store(next)
	if e.opts.Removed != nil {
		e.opts.Removed(next.names)
	}
}
