// Package engine is the promise that storage keeps: ordered durable logs and small documents. It holds interfaces and
// the errors that rooms above branch on, and no code. An engine knows no duplicate, no retention and no project: what
// becomes of an entry is decided by the Judge that the log was opened with, along the one order that the engine keeps.
package engine

import (
	"context"
	"errors"
	"iter"

	"weir"
)

// Engine is one store: documents, and a log for each document that wants one.
type Engine interface {
	Documents

	// Open attaches a judge to the log of the document that was created at revision id, and returns the log.
	// Before it returns, Judge.Restore has been called once with everything that the log holds. A log is open at most
	// once at a time: opening it again before Log.Close is a fault of the caller and panics.
	// A log whose document does not exist (any more) is ErrDropped.
	Open(ctx context.Context, id LogID, judge Judge) (Log, error)

	// Status tells whether the store takes writes now. It never blocks on a disk.
	Status() Status

	// Close waits for what is in flight, makes it durable and gives the store up. Later calls on the engine and its
	// logs return ErrClosed. Closing twice does nothing.
	Close() error
}

// LogID names a log: the revision at which its document was created. It is never used twice, so a document that is
// deleted and created again under the same key has a log that never meets the old entries.
type LogID uint64

// Log is one ordered log. All methods may be called from many goroutines at once.
type Log interface {
	// Append proposes an entry and waits for its fate. The judge is asked at the entry's place in the log's order
	// (Judge.Admit) and may complete it. When Append returns nil, the entry and everything admitted before it in this
	// log are durable and can be read, or the judge refused it and everything admitted before it is durable: so a
	// refusal ("a duplicate of that one") is as durable as what it rests on.
	//
	// Any number of appends may be in flight, also on one log; none holds up another for longer than a sync.
	//
	// ErrFull: refused for want of space before the judge was asked. ErrReadOnly: the store takes no more writes; the
	// entry may be in the log or not after a restart, and is not readable now. ErrDropped, ErrClosed: not appended. When ctx ends first its error is
	// returned and the fate is open: it may yet be appended.
	// ErrUnavailable: the store did not answer in time; the fate is open as well. ErrBehind: not appended; every method returns
	// it from then on, and the log must be closed and opened again.
	//
	// The engine owns e and its payload until Append returns nil or an error that is not from ctx; after an error
	// from ctx, for good.
	Append(ctx context.Context, e *Entry) error

	// Read returns the entry with this sequence, payload included, as it was appended. The caller owns it.
	// An entry can be read as soon as its Append returned, and never before it is durable.
	// ErrNotFound: none, or trimmed. ErrDamaged (wrapped): it is there but does not check out; it is never served.
	Read(ctx context.Context, seq weir.Seq) (Entry, error)

	// Header is Read without the payload: all fields are set, nothing but the header is read.
	Header(ctx context.Context, seq weir.Seq) (Header, error)

	// Scan visits the entries of sequence from and above in increasing sequence, payload included, until visit
	// returns false or there are no more. It sees at least what was durable when it was called, reads in runs of about
	// run bytes (how much the caller thinks it will take; 0: long ones), and holds no lock while visit runs. The payload
	// belongs to the engine and is valid during the visit only. An entry that is trimmed while the scan goes on is left
	// out.
	Scan(ctx context.Context, from weir.Seq, run int, visit func(*Entry) bool) error

	// Headers visits the same entries as Scan without their payloads, from memory: Seq, Time, Kind, Flags and Size are set,
	// and nothing else. It holds the log's lock: visit must be quick and must not call the log.
	Headers(from weir.Seq, visit func(Header) bool)

	// Trim removes every entry whose sequence is below low and remembers note, both durable together when it returns.
	// Low never goes down: a lower one than before changes only the note. Removed entries are not seen again, after a
	// restart neither. The space comes back in the background.
	Trim(ctx context.Context, low weir.Seq, note []byte) error

	// Close detaches the judge, after appends in flight are settled. The log can be opened again.
	Close() error
}

// Judge applies rules along a log's order. The engine calls Admit for one entry at a time per log, and Commit for one
// group at a time, each in the log's order; the two may run at the same time, since entries are decided while the disk
// is still busy with those before them.
type Judge interface {
	// Restore is called once, before anything else, with the note of the last Trim (nil when there was none) and the
	// headers of what the log holds, in increasing sequence. Count and ContentType are not set.
	Restore(note []byte, entries iter.Seq[Header]) error

	// Admit is asked about every entry in log order before it becomes part of the log. It may set the entry's
	// sequence, time, flags and count. False keeps the entry out. What it answers holds only once Commit follows:
	// when the store fails in between, Commit never comes. It must not block and must not call the engine.
	// Two entries of one log must never be admitted under the same sequence.
	Admit(e *Entry) bool

	// Commit reports that of the entries admitted and not reported yet, the first n are durable and can be read. It
	// comes before the Appends of those entries return. It must not block; of the engine it may call Log.Headers only.
	Commit(n int)

	// Dropped reports that the log's document was deleted and the log with it; nothing is called after it.
	Dropped()
}

// Follower is a Judge of a log that other processes append to as well. An engine that is shared asks for it; one that serves
// a single process never calls it. The calls come between those of Admit and Commit, never beside them.
type Follower interface {
	Judge

	// Follow reports an entry of another process at its place in the log's order. It was decided there, is durable and can
	// be read. Nothing that was admitted is on its way. It must not block; of the engine it may call Log.Headers only.
	Follow(h Header)

	// Trimmed reports that another process trimmed the log below low. What is removed is still visited by Log.Headers while
	// it runs, and not after it.
	Trimmed(low weir.Seq)

	// Behind reports that other processes went on too far to be followed: the log must be closed and opened again. Nothing is
	// called after it.
	Behind()

	// Note is asked at the place of a Trim in the log's order, and what it returns is stored instead of what Trim was given: others
	// may have appended and trimmed since. Everything that was committed and followed is known by then; what was admitted
	// since may be left out of it. It must not block and must not call the engine.
	Note() (low weir.Seq, note []byte)

	// Rewind takes back everything that was admitted and not reported by Commit: another process's entry took its place, or
	// the store refused it. What is still wanted is asked about again, after Follow told what came first.
	Rewind()
}

// Shared is an engine whose store other processes change as well. One that serves a single process is not one.
type Shared interface {
	Engine

	// Watch has visit called for every change of a document from now on, whoever makes it, in order of revisions, and before
	// the call returns that made it here. Of changes of one document that follow each other closely the last one may be all
	// that is told. It must not block, and must not call the engine.
	Watch(visit func(Change))

	// CatchUp returns when every change of a document that was acknowledged to anybody before the call was told to those
	// who watch. ErrUnavailable: that is not known.
	CatchUp(ctx context.Context) error
}

// Change is a document that changed.
type Change struct {
	Document      // Value is nil when it was deleted, and Revision that of the deletion
	Deleted  bool // Created says which one it was; 0: one that nobody here knew
}

// SharedLog is a log of a Shared engine.
type SharedLog interface {
	Log

	// CatchUp returns when the judge knows everything that was acknowledged to anybody before the call. ErrUnavailable: that
	// is not known.
	CatchUp(ctx context.Context) error

	// Attend has the judge hear of what others append as soon as it is there, until Leave is called as often. Otherwise it hears of that when
	// it has to: before something of its own is stored behind it, when somebody catches up, and now and then.
	Attend()
	Leave()
}

// Kind says what an entry is.
type Kind uint8

// The kinds of entries. Zero is not one.
const (
	Batch     Kind = 1 // a batch under its sequence
	GapClosed Kind = 2 // what is missing from First to Seq will stay missing; it has no payload
)

// Flags are set by the judge and handed back in headers. Only the low four bits are kept.
type Flags uint8

// What flags say.
const (
	Late Flags = 1 // of a batch: it was stored below the cursor of its time
	Lost Flags = 2 // of a batch: it was stored and could not be read any more when the store was repaired; it has no payload.
	// Of a GapClosed: what is missing from First to Seq may have been stored, and nobody can tell any more
)

// Header is an entry without its payload.
type Header struct {
	Kind        Kind
	Flags       Flags
	Seq         weir.Seq // of a GapClosed: the last sequence it closes
	First       weir.Seq // of a GapClosed: the first sequence it closes
	Time        weir.Time
	Count       uint32 // events in the batch
	Size        uint32 // bytes of payload
	ContentType string // at most MaxContentType bytes
	Key         string // idempotency key, at most MaxKey bytes
}

// MaxContentType is the longest content type that a log keeps.
const MaxContentType = 1024

// Entry is one element of a log.
type Entry struct {
	Header
	Payload []byte

	// Proposer is whatever the caller of Append wants to find again in Admit. It is not stored, and nil for an entry
	// that another process proposed.
	Proposer any
}

// Documents are small records under string keys, each with the revision of its last change. Every change is durable
// when the call returns, and seen by every call that starts after that.
type Documents interface {
	// Create stores a document under a key that has none; ErrExists otherwise. Its revision is Created of the result
	// and names its log.
	Create(ctx context.Context, key string, value []byte) (Document, error)

	// Update replaces the value of the document if its revision is still rev: ErrConflict when it has another one,
	// ErrNotFound when it is gone.
	Update(ctx context.Context, key string, value []byte, rev Revision) (Document, error)

	// Delete removes the document if its revision is still rev (any revision when rev is 0), and drops its log with
	// all entries at the same instant: ErrConflict, ErrNotFound as above.
	Delete(ctx context.Context, key string, rev Revision) error

	// Get returns the document; ErrNotFound when there is none.
	Get(ctx context.Context, key string) (Document, error)

	// List returns up to limit documents whose key begins with prefix and is greater than after, in order of keys.
	List(ctx context.Context, prefix, after string, limit int) ([]Document, error)
}

// Revision counts the changes of all documents of a store. It is never used twice and never 0.
type Revision uint64

// Document is one record. Its value is shared: nobody writes into it.
type Document struct {
	Key      string
	Value    []byte
	Created  LogID // the revision at which it was created: the name of its log
	Revision Revision
}

// The bounds of a document.
const (
	MaxKey   = 512
	MaxValue = 1 << 20
)

// Status is the health of a store.
type Status struct {
	State  State
	Reason error // why, when State is not Ready
}

// State says what a store can do.
type State uint8

// The states of a store.
const (
	Ready    State = iota // takes reads and writes
	Full                  // no space: refuses entries, takes deletions; becomes Ready again by itself
	ReadOnly              // a write or sync failed: takes nothing until it is opened anew
	Closed
	Unreachable // the servers that hold it do not answer; becomes Ready again by itself
)

// What rooms above branch on.
var (
	ErrNotFound = errors.New("not found")
	ErrExists   = errors.New("exists already")
	ErrConflict = errors.New("changed meanwhile")
	ErrDropped  = errors.New("the log was dropped")
	ErrClosed   = errors.New("the store is closed")
	ErrFull     = errors.New("no space left in the store")
	ErrReadOnly = errors.New("the store takes no writes since one failed")
	ErrDamaged  = errors.New("damaged data")

	ErrUnavailable = errors.New("the store does not answer")
	ErrBehind      = errors.New("the log went on without us and must be opened again")
)
