// Package hub is where rules meet storage: one feed for every stream in use, which decides, appends, applies and wakes.
// It knows streams and projects' ids, and no key.
package hub

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// Options are what a hub needs beside an engine.
type Options struct {
	GapGrace          time.Duration // D4; 2 s
	StreamsPerProject int           // D24; 10,000
	TailBytes         int           // of recent frames that a stream with subscribers keeps; 1 MiB
	Now               func() time.Time
	Logger            *slog.Logger

	// Frame encodes a batch as subscribers of such a stream get it. It is called once a batch for as long as the
	// batch is recent, and the result is shared.
	Frame func(mode weir.Mode, b *weir.Batch) []byte
}

// Spec is what a new stream is made of.
type Spec struct {
	ID               weir.StreamID // empty: the hub makes one
	Project          weir.ProjectID
	Name             string
	RetentionSeconds int64
	MaxBytes         int64
	Mode             weir.Mode
}

var errTodo = errors.New("not built yet")

// Hub serves the streams of one engine.
type Hub struct{}

// Open starts a hub on an engine.
func Open(ctx context.Context, e engine.Engine, o Options) (*Hub, error) { return nil, errTodo }

// Close ends every subscription with ErrStopping, waits for what is in flight, and leaves the engine to its owner.
func (h *Hub) Close() error { return errTodo }

// StopSubscriptions ends every subscription with ErrStopping and refuses new ones; everything else goes on.
func (h *Hub) StopSubscriptions() {}

// Create makes a stream. Errors: StreamNameTaken, StreamLimitReached, StorageUnavailable.
func (h *Hub) Create(ctx context.Context, s Spec) (weir.Stream, error) { return weir.Stream{}, errTodo }

// Stream finds a stream; StreamNotFound when there is none.
func (h *Hub) Stream(id weir.StreamID) (*Stream, error) { return nil, errTodo }

// List returns up to limit streams of a project for which show is true, from the newest to the oldest, older than the
// one at before (zero: from the newest). more tells whether others follow, and next is where (D27).
func (h *Hub) List(ctx context.Context, p weir.ProjectID, before uint64, limit int, show func(weir.StreamID) bool) (list []weir.Stream, next uint64, more bool, err error) {
	return nil, 0, false, errTodo
}

// Count is the number of streams of a project.
func (h *Hub) Count(p weir.ProjectID) int { return 0 }

// Stream is one stream. It costs nothing to hold.
type Stream struct {
	Spec
	CreatedAt weir.Time
}

// Delete removes the stream and all its batches; subscribers get End. StreamNotFound when it is gone already.
func (s *Stream) Delete(ctx context.Context) error { return errTodo }

// Object is the stream object of now.
func (s *Stream) Object(ctx context.Context) (weir.Stream, error) { return weir.Stream{}, errTodo }

// Cursor is the cursor object of now.
func (s *Stream) Cursor(ctx context.Context) (weir.Cursor, error) { return weir.Cursor{}, errTodo }

// Batch reads one batch. StreamNotFound, with a message that says whether it was evicted or never stored (D12).
func (s *Stream) Batch(ctx context.Context, seq weir.Seq) (weir.Batch, error) {
	return weir.Batch{}, errTodo
}

// Publish is a batch on its way into a stream.
type Publish struct {
	Chosen bool     // the client chose Seq
	Seq    weir.Seq // when Chosen
	Key    string   // idempotency key; only when not Chosen
	Batch  weir.Batch
}

// Decide answers what needs no body (D19): an acknowledgement of a duplicate, or a refusal (InvalidSequence,
// SequenceTooFarAhead, StreamNotFound). A nil acknowledgement and no error: send the body.
func (s *Stream) Decide(ctx context.Context, p *Publish) (*weir.Ack, error) { return nil, errTodo }

// Publish stores the batch and returns its acknowledgement once it is durable (D5), or refuses it as Decide does, or
// with PayloadTooLarge or StorageUnavailable. The payload belongs to the hub from here on.
func (s *Stream) Publish(ctx context.Context, p *Publish) (weir.Ack, error) {
	return weir.Ack{}, errTodo
}

// Subscribe begins a subscription at from. It takes the wake-up before it looks, so that nothing falls between.
// Overloaded or StreamNotFound when it cannot; end it with Close.
func (s *Stream) Subscribe(ctx context.Context, from From) (*Subscription, error) {
	return nil, errTodo
}

// From is where a subscription starts (D15): Head, Oldest or After(n).
type From = stream.From

// The starts that are not a sequence.
var (
	Head   = stream.Head
	Oldest = stream.Oldest
)

// After is above sequence n, which may lie in the future.
func After(n weir.Seq) From { return stream.After(n) }

// Subscription is a cursor and a wake-up.
type Subscription struct{}

// Event is what a subscriber gets next: a run of frames, a gap, or nothing for now.
type Event struct {
	Frames [][]byte // encoded batches, in order; shared, nobody writes into them
	Gap    *Gap     // instead of frames: what was evicted before it could be sent
}

// Gap is a range of sequences that the subscriber will not get, inclusive.
type Gap struct{ From, To weir.Seq }

// Why a subscription is over.
var (
	ErrDeleted  = errors.New("the stream was deleted") // send End
	ErrStopping = errors.New("the server shuts down")  // send a jittered retry
)

// Next returns what comes next, waiting for it at most until the context ends (its error) or wait has passed (an empty
// Event: time for a heartbeat). The frames of one call are about 256 KiB at most, unless one frame is larger.
// ErrDeleted, ErrStopping: it is over.
func (s *Subscription) Next(ctx context.Context, wait time.Duration) (Event, error) {
	return Event{}, errTodo
}

// Close ends the subscription.
func (s *Subscription) Close() {}
