// Package engine defines the promises that storage keeps: ordered durable logs and small documents.
// It holds interfaces and the errors that rooms above branch on, and no code. An engine knows
// nothing of duplicates, retention or projects. The Judge that a log was opened with decides about
// each entry, in the one order that the engine keeps.
package engine

import (
	"context"
	"errors"
	"iter"

	"weir"
)

// Engine is one store: documents, and one log per document. All methods may be called from many
// goroutines at once.
type Engine interface {
	Documents

	// Open attaches a judge to the log of the document that was created at revision id, and returns
	// the log. Before it returns, it has called Judge.Restore once with everything that the log
	// holds. A log can be open only once at a time: opening it again before Log.Close is a bug in
	// the caller and panics. If the document does not exist or was deleted, Open returns
	// ErrDropped.
	Open(ctx context.Context, id LogID, judge Judge) (Log, error)

	// Status reports whether the store takes writes now. It never blocks on a disk.
	Status() Status

	// Close waits for the calls in flight, makes their writes durable and closes the store. Later
	// calls on the engine and its logs return ErrClosed. Closing twice does nothing.
	Close() error
}

// LogID names a log: the revision at which its document was created. It is never used twice. A
// document that is deleted and created again under the same key gets a fresh log without the old
// entries.
type LogID uint64

// Log is one ordered log. All methods may be called from many goroutines at once.
type Log interface {
	// Append proposes an entry and waits for the outcome. The engine asks the judge (Judge.Admit)
	// at the entry's position in the log's order, and the judge may complete the entry. When Append
	// returns nil, the entry was either stored or refused. If it was stored, the entry and
	// everything admitted before it in this log are durable and can be read. If the judge refused
	// it, everything admitted before it is durable: a refusal ("a duplicate of that one") is as
	// durable as the entries it is based on.
	//
	// Any number of appends may be in flight, also on one log. None delays another for longer than
	// a sync.
	//
	// Errors, and what they mean for the entry:
	//
	//	ErrFull         not appended: no space was left, and the judge was not asked
	//	ErrDropped      not appended: the log was dropped
	//	ErrClosed       not appended: the log or the store was closed
	//	ErrBehind       not appended; every method returns it from then on, and the log must be
	//	                closed and opened again
	//	ErrReadOnly     unknown: the store takes no more writes, the entry cannot be read now, and
	//	                it may or may not be in the log after a restart
	//	ErrUnavailable  unknown: the store did not answer in time
	//	error of ctx    unknown: ctx ended first, and the entry may still be appended
	//
	// The engine owns e and its payload until Append returns nil or an error that is not from ctx.
	// After an error from ctx the engine owns them for good.
	Append(ctx context.Context, e *Entry) error

	// Read returns the entry with this sequence, payload included, as it was appended. The caller
	// owns it. An entry can be read as soon as its Append returned, and never before it is durable.
	// ErrNotFound: there is no such entry, or it was trimmed. ErrDamaged (wrapped): the entry is
	// there but fails its check. A damaged entry is never served.
	Read(ctx context.Context, seq weir.Seq) (Entry, error)

	// Header is Read without the payload: all fields are set, and nothing but the header is read.
	Header(ctx context.Context, seq weir.Seq) (Header, error)

	// Scan visits the entries whose sequence is from or higher, in increasing order and with their
	// payloads, until visit returns false or there are no more. It sees at least what was durable
	// when it was called. It reads in runs of about run bytes: pass how much the caller expects to
	// take, or 0 for long runs. It holds no lock while visit runs. The payload belongs to the
	// engine and is valid only during the visit. An entry that is trimmed during the scan is left
	// out.
	Scan(ctx context.Context, from weir.Seq, run int, visit func(*Entry) bool) error

	// Headers visits the same entries as Scan without their payloads, from memory: Seq, Time, Kind,
	// Flags and Size are set, and nothing else. It holds the log's lock: visit must be quick and
	// must not call the log.
	Headers(from weir.Seq, visit func(Header) bool)

	// Trim removes every entry whose sequence is below low and stores note. Both are durable
	// together when it returns. The low mark never goes down: a lower value than before changes
	// only the note. Removed entries are never seen again, not even after a restart. The engine
	// frees their space in the background.
	Trim(ctx context.Context, low weir.Seq, note []byte) error

	// CatchUp returns when the judge knows everything that was acknowledged to any client before
	// the call. ErrUnavailable: whether it does is unknown.
	CatchUp(ctx context.Context) error

	// Attend makes the engine report entries of other processes to the judge as soon as they are
	// stored. It stays in effect until Leave has been called as often as Attend. Otherwise the
	// judge hears of such entries only when it must: before an entry of this process is stored
	// behind them, when a caller catches up, and from time to time.
	Attend()
	Leave()

	// Close detaches the judge after the appends in flight have finished. The log can be opened
	// again.
	Close() error
}

// Judge applies rules to the entries of a log, in the log's order. The engine calls Admit for one
// entry at a time per log, and Commit for one group at a time, each in the log's order. Admit and
// Commit may run at the same time, because the engine decides entries while the disk is still busy
// with earlier ones.
type Judge interface {
	// Restore is called once, before any other method, with the note of the last Trim (nil if there
	// was none) and the headers of all entries that the log holds, in increasing order of sequence.
	// Count, ContentType and Publisher are not set.
	Restore(note []byte, entries iter.Seq[Header]) error

	// Admit is asked about every entry, in log order, before the entry becomes part of the log. It
	// may set the entry's sequence, time, flags and count. Returning false keeps the entry out. An
	// answer takes effect only with the Commit that follows it: if the store fails in between, that
	// Commit never comes. Admit must not block and must not call the engine. Two entries of one log
	// must never be admitted under the same sequence.
	Admit(e *Entry) bool

	// Commit reports that of the entries admitted and not yet reported, the first n are durable and
	// can be read. It is called before the Appends of those entries return. It must not block. The
	// only engine method it may call is Log.Headers.
	Commit(n int)

	// Dropped reports that the log's document was deleted and the log with it. No method is called
	// after it.
	Dropped()
}

// Forgetful is a Judge that does not need the keys of old entries, so that an engine can open a log
// without reading them.
type Forgetful interface {
	Judge

	// KeysSince is asked before Restore. The headers of entries that were stored before the time
	// that it returns may come without their Key.
	KeysSince() weir.Time
}

// Follower is a Judge for a log that other processes append to as well. An engine whose store is
// shared needs it as soon as another process appends; an engine that serves a single process never
// uses it. The engine makes these calls between those of Admit and Commit, never at the same time.
type Follower interface {
	Judge

	// Follow reports an entry of another process at its position in the log's order. That process
	// decided the entry; it is durable and can be read. No admitted entry is in flight during the
	// call. Follow must not block. The only engine method it may call is Log.Headers.
	Follow(h Header)

	// Trimmed reports that another process trimmed the log below low. While Trimmed runs,
	// Log.Headers still visits the removed entries; afterwards it does not.
	Trimmed(low weir.Seq)

	// Behind reports that this process can no longer catch up with what other processes appended
	// and removed. The log must be closed and opened again. No method is called after it.
	Behind()

	// Note is asked at the position of a Trim in the log's order. The engine stores what Note
	// returns instead of the arguments of Trim, because other processes may have appended and
	// trimmed since Trim was called. By then the judge knows everything that was committed and
	// followed. It may leave out entries admitted since. Note must not block and must not call the
	// engine.
	Note() (low weir.Seq, note []byte)

	// Rewind takes back everything that was admitted and not yet reported by Commit: another
	// process's entry took its position, or the store refused it. The engine first reports the
	// entries that came first (Follow), and then asks again about those that callers still wait
	// for.
	Rewind()
}

// Kind says what an entry is.
type Kind uint8

// The kinds of entries. Zero is not a kind.
const (
	Batch     Kind = 1 // a batch under its sequence
	GapClosed Kind = 2 // the missing sequences from First to Seq stay missing; it has no payload
)

// Flags are set by the judge and returned in headers. Only the low four bits are kept.
type Flags uint8

// The flags.
const (
	// Late marks a batch that was stored below the cursor of its time.
	Late Flags = 1

	// Lost marks a batch that was stored but could not be read when the store was repaired; it has
	// no payload. On a GapClosed it says that the missing sequences from First to Seq may have been
	// stored: there is no way to tell.
	Lost Flags = 2
)

// Header is an entry without its payload.
type Header struct {
	Kind        Kind
	Flags       Flags
	Seq         weir.Seq // for a GapClosed: the last sequence it closes
	First       weir.Seq // for a GapClosed: the first sequence it closes
	Time        weir.Time
	Count       uint32 // number of events in the batch
	Size        uint32 // size of the payload in bytes
	ContentType string // at most MaxContentType bytes
	Key         string // idempotency key, at most MaxKey bytes
	Publisher   string // name of the publisher, at most weir.MaxPublisher bytes
}

// MaxContentType is the length in bytes of the longest content type that a log stores.
const MaxContentType = 1024

// Entry is one element of a log.
type Entry struct {
	Header
	Payload []byte

	// Proposer carries any value of Append's caller to Admit. It is not stored. It is nil for an
	// entry that another process proposed.
	Proposer any
}

// Placeable is a Proposer that must know when its entry has a place in the order of the log.
type Placeable interface {
	// Placed is called by Append at most once, as soon as the entry has its place: the judge is asked
	// about it before any entry whose Append is called after that. It must not block.
	Placed()
}

// Documents are small records under string keys, each with the revision of its last change. Every
// change is durable when the call returns, and visible to every call that starts after that.
//
// The context of a change bounds the waiting alone. After an error of the context, a change that was
// on its way is made or refused as if its caller still waited, and watchers hear of it.
type Documents interface {
	// Create stores a document under a key that has none; ErrExists otherwise. The new document's
	// revision is also its Created, which names its log.
	Create(ctx context.Context, key string, value []byte) (Document, error)

	// Update replaces the value of the document if its revision is still rev. ErrConflict: it has
	// another revision. ErrNotFound: there is no such document.
	Update(ctx context.Context, key string, value []byte, rev Revision) (Document, error)

	// Delete removes the document if its revision is still rev (any revision if rev is 0), and
	// drops its log with all entries in the same step. ErrConflict and ErrNotFound are as for
	// Update.
	Delete(ctx context.Context, key string, rev Revision) error

	// Get returns the document; ErrNotFound if there is none.
	Get(ctx context.Context, key string) (Document, error)

	// List returns up to limit documents whose key begins with prefix and is greater than after, in
	// order of keys.
	List(ctx context.Context, prefix, after string, limit int) ([]Document, error)

	// Watch calls visit for every document of the store, and then for every change of a document, no
	// matter which process makes it: one call at a time, and in order of revisions. It returns when
	// visit has received everything that was acknowledged to any client before the call. For a
	// change made by this process, visit runs before the call that made it returns, before any call
	// returns that was refused because of it, and before Judge.Dropped. If changes of one document
	// follow each other closely, visit may get only the last one. It must not block, and must not
	// call the engine. It is called until the store is closed.
	Watch(ctx context.Context, visit func(Change)) error

	// CatchUp returns when watchers have received every change of a document that was acknowledged
	// to any client before the call. ErrUnavailable: whether they have is unknown.
	CatchUp(ctx context.Context) error

	// Shared tells whether other processes use the store as well. If not, CatchUp costs nothing, here
	// and on a log, because watchers and judges know everything already.
	Shared() bool
}

// Change is a document as it is now, after it changed or when Watch was called.
type Change struct {
	Document      // Value is nil if it was deleted, and Revision is that of the deletion
	Deleted  bool // Created tells which document it was; 0 if this process did not know it
}

// Revision counts the changes of all documents of a store. It is never used twice and never 0.
type Revision uint64

// Document is one record. Its value is shared: callers must not write into it.
type Document struct {
	Key      string
	Value    []byte
	Created  LogID // the revision at which it was created, which names its log
	Revision Revision
}

// The limits of a document, in bytes.
const (
	MaxKey   = 512
	MaxValue = 1 << 20
)

// Status is the health of a store.
type Status struct {
	State  State
	Reason error // set unless State is Ready
}

// State says what a store can do.
type State uint8

// The states of a store. A store leaves Full and Unreachable by itself.
const (
	Ready       State = iota // takes reads and writes
	Full                     // no space: refuses entries, takes deletions
	ReadOnly                 // a write or sync failed: takes no writes until the store is reopened
	Closed                   // was closed by this process
	Unreachable              // the servers that hold the store do not answer
)

// The errors that rooms above branch on.
var (
	ErrNotFound = errors.New("not found")
	ErrExists   = errors.New("exists already")
	ErrConflict = errors.New("changed in the meantime")
	ErrDropped  = errors.New("the log was dropped")
	ErrClosed   = errors.New("the store is closed")
	ErrFull     = errors.New("no space left in the store")
	ErrReadOnly = errors.New("the store is read-only after a failed write or sync")
	ErrDamaged  = errors.New("damaged data")

	ErrUnavailable = errors.New("the store does not answer")
	ErrBehind      = errors.New("the log fell behind other nodes and must be reopened")
)
