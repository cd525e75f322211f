package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/streams"
	"weir/internal/engine/jetstream/wire"
)

// layout is the shards of a store, and which logs they hold. It is not changed after it was
// created.
type layout struct {
	*streams.Generations
	shards []*shard // the shards of the last generation, which has the most shards
}

// shard returns the shard of a log.
func (e *Engine) shard(id engine.LogID) *shard {
	all := e.layout.Load()
	return all.shards[all.Shard(id)]
}

// shards returns all shards of the store.
func (e *Engine) shards() []*shard { return e.layout.Load().shards }

// streamNames returns the names of all streams of the store: first that of the documents, then those
// of the shards in order.
func (e *Engine) streamNames() []string {
	names := []string{e.docs.Stream}
	for _, s := range e.shards() {
		names = append(names, s.Stream)
	}
	return names
}

// takeGenerations applies a growth that the line of the documents has delivered.
func (e *Engine) takeGenerations(m wire.Stored) {
	have := e.layout.Load()
	if m.Seq <= have.Revision {
		return
	}
	all, err := streams.DecodeGenerations(m)
	if err != nil {
		e.opts.Logger.Error("the number of shards is not known: restart this node", "error", err)
		return
	}
	next := &layout{all, slices.Clone(have.shards)}
	for i := len(next.shards); i < all.Count(); i++ {
		next.shards = append(next.shards, newShard(e, i, 0)) // the shard has had no logs, so there is little to skip
	}
	e.layout.Store(next)
	e.opts.Logger.Info("the store has more shards", "shards", all.Count())
}

// mayChangeFormat returns ErrOlder if a node cannot read a store of the newest format.
func (e *Engine) mayChangeFormat() error {
	if e.Nodes.Formats() < streams.Grown {
		return engine.ErrOlder
	}
	return nil
}

// growWithin is how long Grow may take.
const growWithin = time.Minute

// Grow makes n the number of shards for streams that are created from now on. Existing streams stay
// where they are. It returns ErrOlder if another node cannot read a store that has grown. If Grow
// was interrupted, call it again.
func (e *Engine) Grow(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, growWithin)
	defer cancel()
	if err := e.CatchUp(ctx); err != nil {
		return err
	}
	have := e.layout.Load()
	if n == have.Count() {
		return nil
	}
	value, err := have.Growth(n)
	if err == nil {
		err = e.mayChangeFormat()
	}
	if err == nil {
		// The format comes before the message: if this node dies in between, the store has a format
		// that it does not need, which does no harm.
		err = e.streams.Extend(ctx, have.Count(), n)
	}
	if err != nil {
		return err
	}
	if err := e.docs.Put(ctx, streams.ShardsName, value, have.Revision); err != nil {
		return fmt.Errorf("store the number of shards: %w", err)
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
	if err := e.docs.Put(ctx, removedName, value, have.revision); err != nil {
		return fmt.Errorf("store that %s was removed: %w", name, err)
	}
	return nil
}

// takeRemoved handles the names of removed nodes that the line of the documents has delivered.
func (e *Engine) takeRemoved(m wire.Stored) {
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
