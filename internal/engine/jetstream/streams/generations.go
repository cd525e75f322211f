package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/wire"
)

// The number of shards can grow while the store is in use. Logs that exist stay in their shards, so
// no data moves. The growth is a message in the stream of documents, and its sequence in this
// stream divides the logs: the id of a log is the sequence of the message that created its document.
// All nodes follow the stream in order, so a node that knows a log also knows every growth before
// it.
//
// A program that does not know this message would look for a log in the wrong shard. So a store
// that has grown has the format Grown, which such a program refuses, and a store does not grow
// while such a program is among the nodes.

// ShardsName is the last part of the subject of the message with the generations. It is not the key
// of a document.
const ShardsName = "~shards"

// ErrShards means that the number of shards is not possible.
var ErrShards = errors.New("number of shards")

// generation holds the number of shards over which the logs from a certain id on are distributed.
type generation struct {
	From   engine.LogID `json:"from"`
	Shards int          `json:"shards"`
}

// Generations say which shard holds which log.
type Generations struct {
	Revision uint64       // sequence of the message with the generations; 0 if the store has not grown
	all      []generation // in order of ids; the first one begins with 0
}

// Count returns the number of shards for logs that are created from now on.
func (g *Generations) Count() int { return g.all[len(g.all)-1].Shards }

// Shard returns the number of the shard of a log.
func (g *Generations) Shard(id engine.LogID) int {
	n := 0
	for _, one := range g.all {
		if one.From <= id {
			n = one.Shards
		}
	}
	return int(uint64(id) % uint64(n))
}

// Growth returns the content of the message that makes n the number of shards.
func (g *Generations) Growth(n int) ([]byte, error) {
	switch {
	case n <= g.Count():
		return nil, fmt.Errorf("%w %d: the store has %d, and cannot have fewer", ErrShards, n, g.Count())
	case n > MaxShards:
		return nil, fmt.Errorf("%w %d: at most %d are possible", ErrShards, n, MaxShards)
	}
	return json.Marshal(append(slices.Clone(g.all), generation{Shards: n}))
}

// DecodeGenerations reads the message with the generations. The last generation begins with the
// sequence of the message itself. The message does not contain this number, because it was not
// known when the message was written.
func DecodeGenerations(m wire.Stored) (*Generations, error) {
	var all []generation
	if err := json.Unmarshal(m.Data, &all); err != nil {
		return nil, fmt.Errorf("read the generations of shards: %w", err)
	}
	if len(all) < 2 || all[0].From != 0 {
		return nil, fmt.Errorf("read the generations of shards: %s has no first and last one", m.Data)
	}
	all[len(all)-1].From = engine.LogID(m.Seq)
	for i, g := range all {
		if g.Shards < 1 || g.Shards > MaxShards || i > 0 && (g.From <= all[i-1].From || g.Shards <= all[i-1].Shards) {
			return nil, fmt.Errorf("read the generations of shards: %s is not in order", m.Data)
		}
	}
	return &Generations{m.Seq, all}, nil
}

// readGenerations returns the generations of a store that may have grown. The parameter first is
// the number of shards that it was created with.
func (s *Streams) readGenerations(ctx context.Context, first int) (*Generations, error) {
	stream, prefix := s.Docs()
	for { // tries again while the servers do not answer, because other nodes may still be starting
		m, err := s.client.Leader(ctx, stream, wire.Query{LastFor: prefix + ShardsName})
		switch {
		case err == nil:
			return DecodeGenerations(m)
		case errors.Is(err, engine.ErrNotFound):
			return &Generations{all: []generation{{0, first}}}, nil
		case !errors.Is(err, engine.ErrUnavailable) || s.client.Pause(ctx, wire.Retry) != nil:
			return nil, err
		}
	}
}

// Extend creates the shards from a number up to, but not including, another number, and gives the
// store the format Grown.
func (s *Streams) Extend(ctx context.Context, from, to int) error {
	stream, _ := s.Docs()
	info, err := s.client.Info(ctx, stream)
	if err != nil {
		return err
	}
	docs := info.Config
	identity := docs.Metadata[storeKey]
	for i := from; i < to; i++ {
		part, err := s.stream(ctx, s.shardConfig(i, identity), func(context.Context) error { return nil })
		if err == nil {
			err = s.identify(ctx, part.Config, identity, false)
		}
		if err == nil {
			stream, prefix := s.Shard(i)
			err = s.writeMarker(ctx, stream, prefix)
		}
		if err != nil {
			return fmt.Errorf("create shard %d: %w", i, err)
		}
	}
	docs.Metadata[formatKey] = strconv.Itoa(Grown)
	return s.mark(ctx, docs)
}
