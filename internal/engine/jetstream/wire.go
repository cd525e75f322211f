package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
)

var (
	// errConflict means that the last message of the subject is not the expected one. Nothing was
	// stored.
	errConflict = errors.New("another message was stored first")
	// errRefused means that the servers will never accept this request. Nothing was stored.
	errRefused = errors.New("refused by JetStream")
	// errInProcess means that another write to the subject is still in flight. It may be an earlier
	// attempt of this node.
	errInProcess = errors.New("another write is in flight")
)

// The JetStream error codes that the engine handles.
const (
	wrongLast        = 10071
	inProcess        = 10164
	accountExceeded  = 10002
	storageExceeded  = 10047
	noSpace          = 10023
	maxBytesExceeded = 10077
	streamOffline    = 10118
)

// expecting makes a message conditional on the sequence of the last message of its subject (0 if
// there is none).
func expecting(m *nats.Msg, last uint64) {
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(last, 10))
}

// publish stores all of the messages or none, and returns the JetStream sequence of the last one.
// After errConflict, errRefused and engine.ErrFull nothing was stored. After any other error the
// outcome is unknown.
func (e *Engine) publish(ctx context.Context, msgs []*nats.Msg) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, e.apart(e.opts.attempt))
	defer cancel()
	return e.send(ctx, msgs)
}

// send is like publish, but has no timeout other than that of ctx.
func (e *Engine) send(ctx context.Context, msgs []*nats.Msg) (uint64, error) {
	seq, err := e.servers.Store(ctx, msgs)
	refusal, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return seq, err
	}
	switch refusal.ErrorCode {
	case wrongLast:
		return 0, errConflict
	case inProcess:
		return 0, errInProcess
	case accountExceeded, storageExceeded, noSpace, maxBytesExceeded:
		return 0, fmt.Errorf("%w: %w", engine.ErrFull, refusal)
	case streamOffline:
		return 0, refusal
	}
	// JetStream may refuse an atomic batch because some of its messages got lost, and may accept it
	// when it is sent again. So only the refusal of a single message is final.
	if refusal.Code == 400 && len(msgs) == 1 {
		return 0, fmt.Errorf("%w: %w", errRefused, refusal)
	}
	return 0, refusal
}

// askLeader asks the stream's leader for one message. The leader has every message that was
// acknowledged. The error is engine.ErrNotFound if there is no such message. While there is no
// leader, askLeader tries again.
func (e *Engine) askLeader(ctx context.Context, stream string, q Query) (Stored, error) {
	return withRetry(ctx, e, func(ctx context.Context) (Stored, error) {
		m, err := e.servers.Message(ctx, stream, q)
		if refusal, ok := errors.AsType[*jetstream.APIError](err); ok && refusal.Code == 404 && refusal.ErrorCode == jetstream.JSErrCodeMessageNotFound {
			return Stored{}, engine.ErrNotFound
		}
		return m, err
	})
}

// withRetry calls the function ask until it returns a definite answer, ctx ends, or Patience has
// passed.
func withRetry[T any](ctx context.Context, e *Engine, ask func(ctx context.Context) (T, error)) (T, error) {
	var none T
	deadline := time.Now().Add(e.opts.Patience)
	for {
		try, cancel := context.WithTimeout(ctx, e.apart(attempt))
		got, err := ask(try)
		cancel()
		switch {
		case err == nil || errors.Is(err, engine.ErrNotFound) || errors.Is(err, errConflict) || errors.Is(err, errRefused) || errors.Is(err, engine.ErrFull):
			return got, err
		case e.ctx.Err() != nil || errors.Is(err, nats.ErrConnectionClosed):
			return none, engine.ErrClosed
		case ctx.Err() != nil:
			return none, ctx.Err()
		case time.Now().After(deadline):
			return none, fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
		}
		if err := e.pause(ctx, retry/4); err != nil {
			return none, err
		}
	}
}

// read asks any replica for messages and returns them in order. The replica may lag behind, so a
// message may exist even if read does not return it. If the messages have more than MaxBytes in
// total, read returns only the first ones.
func (e *Engine) read(ctx context.Context, stream string, q Query) ([]Stored, error) {
	all, _, err := e.servers.Read(ctx, stream, q)
	return all, err
}

// newest asks any replica for the newest message of a subject. It returns this message (its sequence
// is 0 if there is none), and the last sequence of the stream that the replica has (0: the
// replica did not report it). A replica reports its last sequence only if it finds a message, so
// nonEmpty must be a subject that has a message.
func (e *Engine) newest(ctx context.Context, stream, subject, nonEmpty string) (newest Stored, upTo uint64, err error) {
	all, upTo, err := e.servers.Read(ctx, stream, Query{Newest: []string{subject, nonEmpty}})
	for _, m := range all {
		if m.Subject == subject {
			newest = m
		}
	}
	return newest, upTo, err
}
