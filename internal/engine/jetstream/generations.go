package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
)

// The number of shards can grow while the store is in use. Logs that exist stay in their shards, so
// no data moves. The growth is a message in the stream of documents, and its sequence in this
// stream divides the logs: the id of a log is the sequence of the message that created its document.
// All nodes follow the stream in order, so a node that knows a log also knows every growth before
// it.
//
// A program that does not know this message would look for a log in the wrong shard. So a store
// that has grown has the format grown, which such a program refuses, and a store does not grow
// while such a program is among the nodes.

// shardsName is the last part of the subject of the message with the generations. It is not the key
// of a document.
const shardsName = "~shards"

// generation says over how many shards the logs from an id on are distributed.
type generation struct {
	From   engine.LogID `json:"from"`
	Shards int          `json:"shards"`
}

// layout is the shards of a store, and which logs they hold. It is not changed after it was
// created.
type layout struct {
	revision    uint64       // sequence of the message with the generations; 0 if the store has not grown
	generations []generation // in order of ids; the first one begins with 0
	shards      []*shard     // those of the last generation, which has the most
}

// count returns the number of shards for logs that are created from now on.
func (l *layout) count() int { return l.generations[len(l.generations)-1].Shards }

// shard returns the shard of a log.
func (l *layout) shard(id engine.LogID) *shard {
	n := 0
	for _, g := range l.generations {
		if g.From <= id {
			n = g.Shards
		}
	}
	return l.shards[uint64(id)%uint64(n)]
}

func (e *Engine) shard(id engine.LogID) *shard { return e.layout.Load().shard(id) }

// shards returns all shards of the store.
func (e *Engine) shards() []*shard { return e.layout.Load().shards }

// decodeGenerations reads the message with the generations. The last generation begins with the
// message itself, whose sequence was not known when it was written.
func decodeGenerations(m Stored) ([]generation, error) {
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
	return all, nil
}

// readGenerations returns the generations of a store that may have grown. The parameter first is
// the number of shards that it was created with.
func (e *Engine) readGenerations(ctx context.Context, first int) (*layout, error) {
	l := &layout{generations: []generation{{0, first}}}
	for { // tries again while the servers do not answer, because other nodes may still be starting
		m, err := e.askLeader(ctx, e.docsStream(), Query{LastFor: e.docsSubject() + shardsName})
		switch {
		case err == nil:
			l.revision = m.Seq
			l.generations, err = decodeGenerations(m)
			return l, err
		case errors.Is(err, engine.ErrNotFound):
			return l, nil
		case !errors.Is(err, engine.ErrUnavailable) || e.pause(ctx, retry) != nil:
			return nil, err
		}
	}
}

// takeGenerations applies a growth that the line of the documents has delivered.
func (e *Engine) takeGenerations(m Stored) {
	have := e.layout.Load()
	if m.Seq <= have.revision {
		return
	}
	all, err := decodeGenerations(m)
	if err != nil {
		e.opts.Logger.Error("the number of shards is not known: restart this node", "error", err)
		return
	}
	next := &layout{m.Seq, all, slices.Clone(have.shards)}
	for i := len(next.shards); i < next.count(); i++ {
		s := &shard{}
		s.prepare(e, i)
		s.line.begin(e, 0) // the shard has had no logs, so there is little to skip
		next.shards = append(next.shards, s)
	}
	e.layout.Store(next)
	e.opts.Logger.Info("the store has more shards", "shards", next.count())
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
	switch {
	case n == have.count():
		return nil
	case n < have.count():
		return fmt.Errorf("%w %d: the store has %d, and cannot have fewer", ErrShards, n, have.count())
	case n > MaxShards:
		return fmt.Errorf("%w %d: at most %d are possible", ErrShards, n, MaxShards)
	case e.lowestFormat.Load() < grown:
		return engine.ErrOlder
	}
	info, err := withRetry(ctx, e, func(ctx context.Context) (*jetstream.StreamInfo, error) { return e.servers.Stream(ctx, e.docsStream()) })
	if err != nil {
		return fmt.Errorf("read the settings of stream %s: %w", e.docsStream(), err)
	}
	docs := info.Config
	identity := docs.Metadata[storeKey]
	for i := have.count(); i < n; i++ {
		part, err := e.stream(ctx, e.shardConfig(i, identity), func(context.Context) error { return nil })
		if err == nil {
			err = e.identify(ctx, part.Config, identity, false)
		}
		if err == nil {
			err = e.writeMarker(ctx, "", e.logPrefix(i)+markerName)
		}
		if err != nil {
			return fmt.Errorf("create shard %d: %w", i, err)
		}
	}
	// The format comes before the message: if this node dies in between, the store has a format
	// that it does not need, which does no harm.
	docs.Metadata[formatKey] = strconv.Itoa(grown)
	if err := e.mark(ctx, docs); err != nil {
		return err
	}
	value, err := json.Marshal(append(slices.Clone(have.generations), generation{Shards: n}))
	if err != nil {
		return err
	}
	m := &nats.Msg{Subject: e.docs.prefix + shardsName, Data: value, Header: nats.Header{writerID: {writerName()}}}
	if _, err := e.docs.write(ctx, m, have.revision); err != nil {
		return fmt.Errorf("store the number of shards: %w", err)
	}
	return nil
}

// ErrShards means that Grow was called with a number of shards that is not possible.
var ErrShards = errors.New("number of shards")
