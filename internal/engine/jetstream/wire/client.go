package wire

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
)

var (
	// ErrConflict means that the last message of the subject is not the expected one. Nothing was
	// stored.
	ErrConflict = errors.New("another message was stored first")
	// ErrRefused means that the servers will never accept this request. Nothing was stored.
	ErrRefused = errors.New("refused by JetStream")
	// ErrInProcess means that another write to the subject is still in flight. It may be an earlier
	// attempt of this node.
	ErrInProcess = errors.New("another write is in flight")
)

const (
	// Timeout is the timeout of one request. Without it, the engine would not notice that a request
	// or its answer got lost.
	Timeout = 2 * time.Second
	// Retry is the pause before the engine repeats a request to servers that were not ready.
	Retry = 200 * time.Millisecond
	// ReadWithin is how long a replica may take to answer a read before the engine asks the leader
	// instead. A replica may hang without any other server noticing it.
	ReadWithin = time.Second
)

// Client sends requests to the servers of a store and interprets their answers.
type Client struct {
	Servers
	// Patience is how long a call waits for the servers before it returns ErrUnavailable.
	Patience time.Duration
	Attempt  time.Duration   // how long Publish waits for an answer
	Life     context.Context // ends when the engine is closed
	// Waits counts the calls of Apart. It starts at a different number on each node, so that nodes
	// that fail together do not all try again at the same time.
	Waits atomic.Uint32
}

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

// Expect makes a message conditional on the sequence of the last message of its subject (0 if
// there is none).
func Expect(m *nats.Msg, last uint64) {
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(last, 10))
}

// Before returns the sequence of the message that precedes m in its subject. It works for a message
// that has a condition (see Expect), and for one that follows such a message in a call of Store. In
// the latter case, the preceding message of the subject is also the preceding message of the
// stream.
func Before(m Stored) uint64 {
	seq, err := strconv.ParseUint(m.Header.Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
	if err != nil {
		return m.Seq - 1
	}
	return seq
}

// Publish stores all of the messages or none, and returns the JetStream sequence of the last one.
// After ErrConflict, ErrRefused and engine.ErrFull nothing was stored. After any other error the
// outcome is unknown.
func (c *Client) Publish(ctx context.Context, msgs []*nats.Msg) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Apart(c.Attempt))
	defer cancel()
	return c.Send(ctx, msgs)
}

// Send is like Publish, but has no timeout other than that of ctx.
func (c *Client) Send(ctx context.Context, msgs []*nats.Msg) (uint64, error) {
	seq, err := c.Servers.Store(ctx, msgs)
	refusal, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return seq, err
	}
	switch refusal.ErrorCode {
	case wrongLast:
		return 0, ErrConflict
	case inProcess:
		return 0, ErrInProcess
	case accountExceeded, storageExceeded, noSpace, maxBytesExceeded:
		return 0, fmt.Errorf("%w: %w", engine.ErrFull, refusal)
	case streamOffline:
		return 0, refusal
	}
	// JetStream may refuse an atomic batch because some of its messages got lost, and may accept it
	// when it is sent again. So only the refusal of a single message is final.
	if refusal.Code == 400 && len(msgs) == 1 {
		return 0, fmt.Errorf("%w: %w", ErrRefused, refusal)
	}
	return 0, refusal
}

// Leader asks a stream's leader for one message. The leader has every message that was
// acknowledged. The error is engine.ErrNotFound if there is no such message. While there is no
// leader, Leader tries again.
func (c *Client) Leader(ctx context.Context, stream string, q Query) (Stored, error) {
	return Ask(ctx, c, func(ctx context.Context) (Stored, error) {
		m, err := c.Servers.Message(ctx, stream, q)
		if refusal, ok := errors.AsType[*jetstream.APIError](err); ok && refusal.Code == 404 && refusal.ErrorCode == jetstream.JSErrCodeMessageNotFound {
			return Stored{}, engine.ErrNotFound
		}
		return m, err
	})
}

// Ask calls the function question until it returns a definite answer, ctx ends, or Patience has
// passed.
func Ask[T any](ctx context.Context, c *Client, question func(ctx context.Context) (T, error)) (T, error) {
	var none T
	deadline := time.Now().Add(c.Patience)
	for {
		try, cancel := context.WithTimeout(ctx, c.Apart(Timeout))
		got, err := question(try)
		cancel()
		switch {
		case err == nil || errors.Is(err, engine.ErrNotFound) || errors.Is(err, ErrConflict) || errors.Is(err, ErrRefused) || errors.Is(err, engine.ErrFull):
			return got, err
		case c.Life.Err() != nil || errors.Is(err, nats.ErrConnectionClosed):
			return none, engine.ErrClosed
		case ctx.Err() != nil:
			return none, ctx.Err()
		case time.Now().After(deadline):
			return none, fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
		}
		if err := c.Pause(ctx, Retry/4); err != nil {
			return none, err
		}
	}
}

// Newest asks any replica for the newest message of a subject. If there is none, the sequence of the
// returned message is 0. The result upTo is the last sequence of the stream that the replica has, or 0
// if the replica did not report it. A replica reports it only if it finds a message, so nonEmpty must
// be a subject that has a message.
func (c *Client) Newest(ctx context.Context, stream, subject, nonEmpty string) (newest Stored, upTo uint64, err error) {
	all, upTo, err := c.Servers.Read(ctx, stream, Query{Newest: []string{subject, nonEmpty}})
	for _, m := range all {
		if m.Subject == subject {
			newest = m
		}
	}
	return newest, upTo, err
}

// Clear removes the messages of a subject whose sequence is below floor. If floor is 0, it removes
// all of them.
func (c *Client) Clear(ctx context.Context, stream, subject string, floor uint64) error {
	_, err := Ask(ctx, c, func(ctx context.Context) (bool, error) { return true, c.Purge(ctx, stream, subject, floor) })
	return err
}

// Info returns the settings and the state of a stream.
func (c *Client) Info(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	s, err := Ask(ctx, c, func(ctx context.Context) (*jetstream.StreamInfo, error) { return c.Stream(ctx, stream) })
	if err != nil {
		return nil, fmt.Errorf("read the settings of stream %s: %w", stream, err)
	}
	return s, nil
}

// writer is the header field with a random name of the call that wrote the message. If a write gets
// no answer, this name shows whether the stored message comes from that call.
const writer = "Weir-Write"

// Name returns a random name for the messages of one call.
func Name() string {
	var name [12]byte
	rand.Read(name[:])
	return hex.EncodeToString(name[:])
}

// Signed returns a message that carries the name of the call that writes it.
func Signed(name, subject string, data []byte) *nats.Msg {
	return &nats.Msg{Subject: subject, Data: data, Header: nats.Header{writer: {name}}}
}

// Signature returns the name of the call that wrote a message.
func Signature(h nats.Header) string { return h.Get(writer) }

// Apart returns a duration that is about a millisecond longer than d, and differs from the results of
// the calls before. Goroutines that fail together then do not all try again at the same time.
func (c *Client) Apart(d time.Duration) time.Duration { return d + c.offset() }

// offset returns up to about a millisecond. The odd nanoseconds keep waits of different lengths from
// ending at the same time: a simulation with two such waits could not be repeated.
func (c *Client) offset() time.Duration {
	n := time.Duration(c.Waits.Add(1))
	return n%1021*time.Microsecond + n%997
}

// Limit returns Patience, or up to a millisecond less, so that goroutines that wait for the same thing
// do not all give up at the same time.
func (c *Client) Limit() time.Duration {
	return c.Patience - c.offset()
}

// Pause waits for about d, unless ctx ends first.
func (c *Client) Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(c.Apart(d))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
