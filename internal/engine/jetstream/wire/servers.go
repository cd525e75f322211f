// Package wire talks to NATS. The interface Servers lists the requests that the engine makes,
// Connect implements it for real servers, and Client interprets the answers.
package wire

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Servers are the NATS servers that hold a store, as far as the engine uses them. Connect returns the
// real ones. Package sim simulates others, so that one process can run several nodes in an order
// that a seed decides. The tests of package sim hold both to the same cases.
//
// An error of type *jetstream.APIError is the answer of a server. After any other error the outcome
// is unknown: the request or its answer may have got lost, or may still be on its way. All methods
// can be called from several goroutines.
type Servers interface {
	// Store stores all of the messages or none, next to each other, and returns the sequence of the
	// last one. The first message may be conditional on the last message of its subject (see the
	// function Expect). The condition is stored with it.
	Store(ctx context.Context, msgs []*nats.Msg) (seq uint64, err error)
	// Message asks the leader of a stream for one message.
	Message(ctx context.Context, stream string, q Query) (Stored, error)
	// Read asks any replica for messages and returns them in order. It returns none if the replica
	// has none. The replica may lag behind. If the query has the field Newest and the replica found
	// a message, upTo is the last sequence that the replica has. Otherwise upTo is 0.
	Read(ctx context.Context, stream string, q Query) (all []Stored, upTo uint64, err error)
	// Headers calls visit with the messages of a subject from a sequence on, in order and without
	// payloads. It ends with the messages that the replica had when the call began. If visit returns
	// an error, so does Headers.
	Headers(ctx context.Context, stream, subject string, from uint64, visit func(Stored) error) error
	// Follow returns a feed of all messages of a stream from a sequence on. If headersOnly is true,
	// the messages have no payloads.
	Follow(ctx context.Context, stream string, from uint64, headersOnly bool) (*Feed, error)
	// Purge removes the messages of a subject whose sequence is lower than below, or all if below
	// is 0. A majority of the replicas has agreed when Purge returns nil.
	Purge(ctx context.Context, stream, subject string, below uint64) error

	// Stream returns the settings and the state of a stream. If there is no such stream, the error
	// is jetstream.ErrStreamNotFound.
	Stream(ctx context.Context, name string) (*jetstream.StreamInfo, error)
	Create(ctx context.Context, c jetstream.StreamConfig) (*jetstream.StreamInfo, error)
	Update(ctx context.Context, c jetstream.StreamConfig) error
	// Subjects returns the number of messages of each subject of a stream that matches the filter.
	Subjects(ctx context.Context, stream, filter string) (map[string]uint64, error)
	// Names returns the names of the streams that store messages of the subject.
	Names(ctx context.Context, subject string) ([]string, error)
	// Account returns the space that the account uses and may use. Only the leader of JetStream as
	// a whole answers.
	Account(ctx context.Context) (*jetstream.AccountInfo, error)

	// Say sends a message to all nodes that call Hear. The message is not stored, and may get lost.
	Say(m *nats.Msg) error
	// Hear calls take with the messages of a subject, one at a time, until stop is called. The
	// servers may not know of the call yet when it returns; Flush waits until they do.
	Hear(subject string, take func(m *nats.Msg)) (stop func(), err error)
	Flush(within time.Duration) error

	// Connected reports whether a server is connected, and Server returns its name.
	Connected() bool
	Server() string
	// MaxPayload returns the size in bytes of the largest message that the servers accept. It never
	// waits, because event loops call it.
	MaxPayload() int64
	Close()
}

// Stored is a message that was read from a stream.
type Stored struct {
	Seq     uint64
	Subject string
	Header  nats.Header
	Data    []byte
}

// Query selects messages of a stream.
type Query struct {
	Seq      uint64   `json:"seq,omitempty"`
	LastFor  string   `json:"last_by_subj,omitempty"` // the last message of this subject
	NextFor  string   `json:"next_by_subj,omitempty"` // messages of this subject, from Seq on
	Newest   []string `json:"multi_last,omitempty"`   // the last message of each of these subjects
	Batch    int      `json:"batch,omitempty"`        // maximum number of messages; 0: one
	MaxBytes int      `json:"max_bytes,omitempty"`    // if the messages have more bytes, only the first ones are returned
}

// Feed delivers the messages of a stream in order.
type Feed struct {
	Pending uint64 // number of messages that the feed had to deliver when it began
	Near    bool   // the messages come from the server that this node is connected to
	// Next waits for the next delivery. It fails if nothing arrives in time. It fails at once after
	// Close.
	Next func(within time.Duration) (Delivery, error)
	// Close ends the feed. It may be called more than once, and while Next waits.
	Close func()
}

// Beat is the interval at which a feed without messages sends a heartbeat.
const Beat = 500 * time.Millisecond

// Delivery is a message of a feed or, if Seq is 0, a sign of life.
type Delivery struct {
	Stored
	Count uint64 // number of messages that the feed has sent so far, this one included
	// Beat says that the delivery is a heartbeat, which has the fields below. Any other sign of life
	// is empty.
	Beat    bool
	Passed  uint64 // all messages up to this sequence were sent, or have been deleted
	Stalled bool   // the feed waits for this node before it sends more
}
