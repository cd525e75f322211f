package jetstream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/line"
	"weir/internal/engine/jetstream/record"
	"weir/internal/engine/jetstream/wire"
)

// shard is one JetStream stream with a share of the logs. Each log has its own subject. The line
// creates a consumer only when a log must be followed, which means that its messages must be
// delivered as they are stored. This consumer then follows all logs of the shard, and delivers only
// headers.
type shard struct {
	*line.Line
	e      *Engine
	number int
	prefix string // common prefix of the subjects of all logs
	// The channel batches limits the atomic batches in flight: JetStream accepts 50 at a time,
	// counted over all processes.
	batches chan struct{}
}

const batchesAtOnce = 12

func (s *shard) subject(id engine.LogID) string { return s.prefix + strconv.FormatUint(uint64(id), 10) }

// newShard returns the shard with the number i. It knows that the messages up to the sequence seen
// are of no interest.
func newShard(e *Engine, i int, seen uint64) *shard {
	stream, prefix := e.streams.Shard(i)
	s := &shard{e: e, number: i, prefix: prefix, batches: make(chan struct{}, batchesAtOnce)}
	s.Line = line.New(e.client, seen, line.Options{Stream: stream, Fence: s.subject(noLog), Headers: true, Take: s.take, Reads: e.opts.reads, Full: e.full, Logger: e.opts.Logger})
	return s
}

// openShard returns a shard that exists already.
func openShard(ctx context.Context, e *Engine, i int) (*shard, error) {
	stream, _ := e.streams.Shard(i)
	for {
		info, err := e.client.Stream(ctx, stream)
		if err == nil {
			return newShard(e, i, info.State.LastSeq), nil
		}
		// This node or another one has just created the stream. A server may not know the stream
		// yet, so openShard asks again.
		if !errors.Is(err, jetstream.ErrStreamNotFound) || e.client.Pause(ctx, wire.Retry/4) != nil {
			return nil, fmt.Errorf("follow %s: %w", stream, err)
		}
	}
}

// intact returns ErrDamaged if the shard has lost its marker while this process was running.
func (s *shard) intact(ctx context.Context) error {
	if !s.e.marked {
		return nil
	}
	return s.e.streams.Intact(ctx, s.number)
}

// noLog is not the id of any log. Its subject is used for the shard's fences, which are empty
// messages that are stored only to learn the current end of the shard.
const noLog = engine.LogID(0)

// take passes a message to its log if that log is followed.
func (s *shard) take(m wire.Stored) {
	id, err := strconv.ParseUint(strings.TrimPrefix(m.Subject, s.prefix), 10, 64)
	if err != nil {
		return
	}
	l := s.e.opened(engine.LogID(id))
	if l == nil || !l.hears() {
		return
	}
	records, err := record.Decode(m.Header, m.Seq, s.e.opts.reads)
	if errors.Is(err, engine.ErrTooNew) {
		// An invented record with a position far ahead makes the worker read the message itself. The
		// worker gets the same error, and the log fails with it.
		records, err = []record.Record{{Position: math.MaxUint64, At: m.Seq}}, nil
	}
	if err != nil {
		s.e.opts.Logger.Error("message ignored: header field cannot be read", "subject", m.Subject, "error", err)
		return
	}
	l.hear(records)
}
