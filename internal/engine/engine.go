// Package engine defines the promises that storage keeps: ordered durable logs and small documents.
// It contains interfaces, and the errors that callers distinguish. An engine knows nothing of
// duplicates, retention or projects. Each open log has a Judge, which decides about the entries in
// the order in which the engine stores them.
package engine

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"slices"
	"strings"

	"weir"
)

// Engine is one store: documents, and one log per document. All methods may be called from many
// goroutines at once.
type Engine interface {
	Documents

	// Open attaches a judge to the log of a document and returns the log. The id of the log is the
	// field Created of the document. Before Open returns, it calls the judge once: either
	// Returning.Resume, or Judge.Restore with everything that the log holds. A log can be open only
	// once at a time: opening it again before Log.Close is a bug in the caller and panics. If the
	// document does not exist or was deleted, Open returns ErrDropped.
	Open(ctx context.Context, id LogID, judge Judge) (Log, error)

	// Held returns about how many bytes of memory this process uses for the entries of a log and
	// for the note of its last Trim. A log that is not open may use none. A log that was dropped,
	// or that holds no entry and was never trimmed, uses none. Held never blocks on a disk.
	Held(id LogID) int64

	// Outline describes the entries of a log that is not open. If the second result is false, only
	// Memory is set, and the log must be opened to learn the rest. Outline never blocks on a disk.
	Outline(id LogID) (Outline, bool)

	// Status reports whether the store takes writes now. It never blocks on a disk.
	Status() Status

	// Close waits for the calls in flight, makes their writes durable and closes the store. Later
	// calls on the engine and its logs return ErrClosed. Closing twice does nothing.
	Close() error
}

// Flusher is an engine to which a caller can propose many entries before the engine starts to store
// them. The engine then writes these entries together.
type Flusher interface {
	Engine

	// Flush makes the engine start to store all deferred entries (see Entry.Deferred) that any
	// goroutine proposed before the call. It may report their outcomes before it returns. To save
	// wake-ups, Flush may wait for a disk that takes a fraction of a millisecond, but not for one
	// that is slower or full.
	Flush()

	// OpenNow does the same as Open, but only if that needs no disk and succeeds. Otherwise it
	// returns nil and has not changed anything, except that it may have called Judge.Restore.
	OpenNow(id LogID, judge Judge) Log
}

// Sized is a Log with a method that returns the same as Engine.Held, whether the log is open or not.
type Sized interface{ Held() int64 }

// LogID names a log: the revision at which its document was created. It is never used twice. A
// document that is deleted and created again under the same key gets a fresh log without the old
// entries.
type LogID uint64

// Outline describes the entries of a log. If Entries is 0, only Memory and Low may be set.
type Outline struct {
	Memory      int64 // what Held returns
	Entries     int
	Low         weir.Seq  // all entries below this sequence were trimmed; 0 if the log was never trimmed
	First, Last weir.Seq  // the lowest and the highest sequence of an entry
	Oldest      weir.Time // the earliest time of an entry
	Newest      weir.Time // the time of the entry with sequence Last
	Batches     int       // number of batches that are not lost; the other entries are lost batches and closed gaps
	Bytes       int64     // sum of the sizes of all payloads
	Ended       bool      // the entry with sequence Last has the flag Ends
}

// Log is one ordered log. All methods may be called from many goroutines at once.
type Log interface {
	// Append proposes an entry and waits for the outcome. The engine asks the judge (Judge.Admit)
	// at the entry's position in the log's order, and the judge may complete the entry. When Append
	// returns nil, the entry was either stored or refused. If it was stored, the entry and
	// everything admitted before it in this log are durable and can be read. If the judge refused
	// it, everything admitted before it is durable: a refusal, such as "duplicate of entry 7", is
	// as durable as the entries it is based on.
	//
	// Any number of appends may be in flight, also on one log. No append delays another for longer
	// than one sync.
	//
	// Errors, and what they mean for the entry:
	//
	//	ErrFull         not appended: no space was left, and the judge was not asked
	//	ErrClock        not appended: the clock of this node is wrong, and the judge was not asked
	//	ErrOlder        not appended: another node runs an older version that could not read it
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

	// Propose does the same as Append, but does not wait. It reports the outcome by calling the
	// function done exactly once, from any goroutine: with nil, or with one of the errors of Append,
	// except those of a context. Propose may call done before it returns. If a goroutine proposes two
	// entries to one log, one after the other, the judge is asked about them in this order.
	//
	// The engine owns e and its payload until it calls done. It holds no lock during that call, so
	// the function done may propose another entry. The function done must not block.
	Propose(e *Entry, done func(error))

	// Read returns the entry with this sequence, payload included, as it was appended. The caller
	// owns it. An entry can be read as soon as its Append returned, and never before it is durable.
	// ErrNotFound: there is no such entry, or it was trimmed. ErrDamaged (wrapped): the entry is
	// there but fails its check. A damaged entry is never served.
	Read(ctx context.Context, seq weir.Seq) (Entry, error)

	// Header returns the entry without its payload. All fields are set, except KeySize and
	// KeyDigest.
	Header(ctx context.Context, seq weir.Seq) (Header, error)

	// Scan calls the function visit for the entries with a sequence of at least start, in
	// increasing order and with their payloads, until visit returns false or there are no more
	// entries. It visits at least the entries that were durable when Scan was called. It reads
	// about runBytes at a time, or large pieces if runBytes is 0. Scan holds no lock while visit
	// runs. The payload belongs to the engine and is valid only until visit returns. An entry that
	// is trimmed before the scan reaches it is left out.
	Scan(ctx context.Context, start weir.Seq, runBytes int, visit func(*Entry) bool) error

	// Headers visits the same entries as Scan without their payloads, from memory: Seq, Time, Kind,
	// Flags, Size and KeySize are set, and nothing else. It holds the log's lock, so the function
	// visit must be quick and must not call the log.
	Headers(start weir.Seq, visit func(Header) bool)

	// Trim removes every entry whose sequence is below low, and stores the note. The removal and
	// the note become durable together, before Trim returns. If low is not higher than in an
	// earlier Trim, only the note changes. Removed entries are never seen again, not even after a
	// restart. The engine frees their space in the background. A note has at most MaxNote bytes.
	Trim(ctx context.Context, low weir.Seq, note []byte) error

	// CatchUp returns when the judge knows everything that was acknowledged to any client before
	// the call. ErrUnavailable: the judge may not know everything.
	CatchUp(ctx context.Context) error

	// Attend makes the engine report entries of other processes to the judge as soon as they are
	// stored. It stays in effect until Leave has been called as often as Attend. Without Attend,
	// the engine reports entries of other processes later: from time to time, when a caller catches
	// up, and before it stores an entry of this process that comes after them.
	Attend()
	Leave()

	// Close detaches the judge after the appends in flight have finished. The log can be opened
	// again.
	Close() error
}

// Judge applies rules to the entries of a log, in the log's order. The engine calls Admit for one
// entry at a time per log, and Commit for one group at a time, each in the log's order. Admit and
// Commit may run at the same time, because the engine asks about new entries while the disk is
// still busy with earlier ones.
type Judge interface {
	// Restore is called once, before any other method, with the note of the last Trim (nil if there
	// was none) and the headers of all entries that the log holds, in increasing order of sequence.
	// ContentType and Publisher are not set; Tag is set. The header of an entry with a key has
	// Count, KeySize and KeyDigest, but not Key. Restore must not keep the pointers: the engine may
	// use the same memory for the next header.
	Restore(note []byte, entries iter.Seq[*Header]) error

	// The engine calls Admit for every entry, in log order, before the entry becomes part of the
	// log. Admit may set the entry's sequence, time, flags and count. If Admit returns false, the
	// entry is not stored. If the store fails before it has stored an admitted entry, Commit never
	// reports that entry. Admit must not block and must not call the engine. Two entries of one log
	// must never be admitted under the same sequence.
	Admit(e *Entry) bool

	// Commit reports that n more entries are durable and can be read: the first n of the admitted
	// entries that no earlier Commit reported. It is called before the Appends of those entries
	// return. It must not block. The only engine method it may call is Log.Headers.
	Commit(n int)

	// Dropped reports that the log's document was deleted and the log with it. No method is called
	// after it.
	Dropped()
}

// Forgetful is a Judge that does not need the keys of old entries, so that an engine can open a log
// without reading these keys.
type Forgetful interface {
	Judge

	// The engine calls KeysSince before Restore. Headers of entries that were stored before the
	// returned time may come without their KeyDigest and Count.
	KeysSince() weir.Time
}

// Follower is a Judge for a log that other processes append to as well. An engine whose store is
// shared needs a Follower as soon as another process appends; an engine that serves a single
// process never calls the methods below. The engine never calls them while Admit or Commit runs.
type Follower interface {
	Judge

	// Follow reports an entry of another process at its position in the log's order. That process
	// has already decided about the entry, which is durable and can be read. During the call, no
	// entry that this judge admitted is in flight. Follow must not block. The only engine method it
	// may call is Log.Headers.
	Follow(h Header)

	// Trimmed reports that another process trimmed the log below low. While Trimmed runs,
	// Log.Headers still visits the removed entries; afterwards it does not.
	Trimmed(low weir.Seq)

	// Behind reports that this process can no longer catch up with what other processes appended
	// and removed. The log must be closed and opened again. No method is called after it.
	Behind()

	// The engine calls Note as soon as a Trim has its position in the log's order. The engine
	// stores the results of Note instead of the arguments of Trim, because other processes may have
	// appended and trimmed since Trim was called. When Note is called, the judge knows everything
	// that was committed and followed before that position. The note need not take account of
	// entries that were admitted but not committed. Note must not block and must not call the
	// engine.
	Note() (low weir.Seq, note []byte)

	// Rewind tells the judge to forget every entry that it admitted and that Commit has not
	// reported. The reason is that an entry of another process was stored first, or that the store
	// refused an entry. After Rewind, the engine reports the entries that came first (Follow). Then
	// it asks again (Admit) about the entries whose callers still wait.
	Rewind()
}

// Returning is a Follower that may continue with the state that an earlier judge of the same log
// had when the log was closed. An engine whose store is shared then reads only what was stored
// since then; other engines need not call the methods below.
type Returning interface {
	Follower

	// The engine calls Left before Restore. Left returns the closed log of the earlier judge, or
	// nil if there is no state to continue with. A log can be continued only once.
	Left() Log

	// The engine calls Resume instead of Restore if it can report everything that was stored since
	// the earlier log was closed. It makes these reports (Follow, Trimmed) after Resume and before
	// Open returns. The argument is the log that Open returns. If the engine calls Restore instead,
	// the earlier state is outdated and must not be used.
	Resume(Log)
}

// Kind says what an entry is.
type Kind uint8

// The kinds of entries. Zero is not a kind.
const (
	Batch     Kind = 1 // a batch
	GapClosed Kind = 2 // a closed gap: no batch will ever have one of the missing sequences from First to Seq; it has no payload
)

// Flags are set by the judge and returned in headers. Only the low four bits are kept.
type Flags uint8

// The flags.
const (
	// Late marks a batch whose sequence was below the cursor of the stream when the batch was
	// stored.
	Late Flags = 1

	// Lost marks a batch that was stored but could not be read when the store was repaired; it has
	// no payload. On a GapClosed it says that the missing sequences from First to Seq may have been
	// stored: there is no way to tell.
	Lost Flags = 2

	// Ends marks the last entry of a log. On a Batch it says that the stream was closed together
	// with this batch. On a GapClosed it says that the stream was closed, and Seq is the sequence
	// that the next batch would have got.
	Ends Flags = 4
)

// Header is an entry without its payload.
type Header struct {
	Kind        Kind
	Flags       Flags
	Seq         weir.Seq // for a GapClosed: the last sequence it closes
	First       weir.Seq // for a GapClosed: the first sequence it closes
	Time        weir.Time
	Count       uint32         // number of events in the batch
	Size        uint32         // size of the payload in bytes
	ContentType string         // at most MaxContentType bytes
	Key         string         // idempotency key, at most MaxKey bytes
	KeySize     uint16         // size of the key in bytes; only set by Log.Headers and for Judge.Restore
	KeyDigest   weir.KeyDigest // digest of the key; only set for Judge.Restore
	Publisher   string         // name of the publisher, at most weir.MaxPublisher bytes
	Tag         string         // bytes that the judge needs at Restore, at most MaxTag
}

// Restored returns the header of a stored entry in the form that Judge.Restore receives. If the
// header has the digest of its key already, it is not computed again.
func (h Header) Restored() Header {
	h.ContentType, h.Publisher = "", ""
	if h.Key == "" {
		h.Count = 0
		return h
	}
	if h.KeyDigest == (weir.KeyDigest{}) {
		h.KeyDigest = weir.DigestKey(h.Key)
	}
	h.KeySize, h.Key = uint16(len(h.Key)), ""
	return h
}

// MaxContentType is the length in bytes of the longest content type that a log stores.
const MaxContentType = 1024

// MaxTag is the length in bytes of the longest tag that a log stores with an entry.
const MaxTag = 1024

// MaxNote is the size in bytes of the longest note that a log stores with a trim.
const MaxNote = 4 << 20

// Entry is one element of a log.
type Entry struct {
	Header
	Payload []byte

	// Proposer carries any value of Append's caller to Admit. It is not stored. It is nil for an
	// entry that another process proposed.
	Proposer any

	// Deferred says that the caller of Propose calls Flusher.Flush soon. Until then the engine need
	// not start to store the entry. Append ignores this field, and so does an engine that is no
	// Flusher.
	Deferred bool

	// Room is for the engine, which may keep memory there for the next Append or Propose of the same
	// Entry. A caller that uses an Entry again leaves Room as it is.
	Room any
}

// Placeable is a Proposer that must know when its entry has a place in the order of the log.
type Placeable interface {
	// Append and Propose call Placed at most once, as soon as the entry has its place and before
	// the outcome is reported. If another Append is called after Placed, the judge is asked about
	// this entry first. Placed must not block and must not call the engine.
	Placed()
}

// Documents are small records under string keys, each with the revision of its last change. Every
// change is durable when the call returns, and visible to every call that starts after that.
//
// The context of a change limits only how long the caller waits. If the context ends while the
// change is in flight, the change is still made or refused as if the caller were waiting, and
// watchers receive it.
type Documents interface {
	// Create stores a document under a key that has none; ErrExists otherwise. The new document's
	// revision is also the value of its field Created, which is the id of its log.
	Create(ctx context.Context, key string, value []byte) (Document, error)

	// CreateLater does the same as Create, but does not wait. It reports the outcome by calling the
	// function done exactly once, from any goroutine, with the error that Create would return.
	// CreateLater may call done before it returns. It holds no lock during that call. The function
	// done must not block. The caller must not change value afterwards.
	CreateLater(key string, value []byte, done func(error))

	// Update replaces the value of the document if its revision is still rev. ErrConflict: it has
	// another revision. ErrNotFound: there is no such document.
	Update(ctx context.Context, key string, value []byte, rev Revision) (Document, error)

	// Delete removes the document if its revision is still rev (any revision if rev is 0), and
	// drops its log with all entries in the same step. ErrConflict and ErrNotFound are as for
	// Update.
	Delete(ctx context.Context, key string, rev Revision) error

	// Expire does the same as Delete. In the Change that watchers receive, it sets the field
	// Expired.
	Expire(ctx context.Context, key string, rev Revision) error

	// Get returns the document; ErrNotFound if there is none.
	Get(ctx context.Context, key string) (Document, error)

	// List returns up to limit documents whose key begins with prefix and is greater than afterKey,
	// in order of keys.
	List(ctx context.Context, prefix, afterKey string, limit int) ([]Document, error)

	// Watch calls the function visit for every document that the prefixes select, and then for
	// every change of such a document, no matter which process makes it: one call at a time, and in
	// order of revisions. Watch returns when visit has received everything that was acknowledged to
	// any client before the call. If this process makes a change, visit receives it before any of
	// three things happens: the method that makes the change returns, another method is refused
	// because of the change, or Judge.Dropped is called. If changes of one document follow each
	// other closely, visit may get only the last one. The function visit must not block, and must
	// not call the engine. It is called until the store is closed.
	Watch(ctx context.Context, of Prefixes, visit func(Change)) error

	// CatchUp returns when watchers have received every change of a document that was acknowledged
	// to any client before the call. ErrUnavailable: the watchers may not have received every
	// change.
	CatchUp(ctx context.Context) error

	// Shared tells whether other processes use the store as well. If Shared returns false, both
	// CatchUp of Documents and CatchUp of a Log cost nothing, because watchers and judges know
	// everything already.
	Shared() bool
}

// Change is the state of a document after a change, or at the time when Watch was called.
type Change struct {
	Document      // after a deletion, Value is nil and Revision is the revision of the deletion
	Deleted  bool // the document was deleted; Created is the id of its log, or 0 if this process did not know the document
	Expired  bool // the document was deleted by Expire
}

// Prefixes select the documents whose key begins with one of them. A store may have a million
// streams, so a caller that needs only a few documents must not visit them all.
type Prefixes []string

// Everything selects all documents.
var Everything = Prefixes{""}

// Match reports whether the prefixes select the document with this key.
func (p Prefixes) Match(key string) bool {
	return slices.ContainsFunc(p, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// Only returns a function that calls visit for the changes of the documents that the prefixes
// select.
func (p Prefixes) Only(visit func(Change)) func(Change) {
	return func(c Change) {
		if p.Match(c.Key) {
			visit(c)
		}
	}
}

// Revision counts the changes of all documents of a store. It is never used twice and never 0.
type Revision uint64

// Document is one record. Its value is shared: callers must not write into it.
type Document struct {
	Key      string
	Value    []byte
	Created  LogID // the revision at which the document was created, which is also the id of its log
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

// The states of a store. A store leaves Full, Unreachable and Skewed by itself.
const (
	Ready       State = iota // takes reads and writes
	Full                     // no space: refuses entries, takes deletions
	ReadOnly                 // a write or sync failed: takes no writes until the store is reopened
	Closed                   // was closed by this process
	Unreachable              // the servers that hold the store do not answer
	Skewed                   // the clock of this node is wrong: takes no entries and no trims, only documents
)

// The errors that callers distinguish.
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
	ErrClock       = errors.New("the clock of this node is wrong")
	ErrOlder       = errors.New("another node runs an older version of Weir")
	ErrTooNew      = errors.New("too new: written by a newer version of Weir")
	ErrBehind      = errors.New("the log fell behind other nodes and must be reopened")
)

// Yield lets goroutines run that are ready, so that an engine can store the entries of several
// callers together. Simulations replace it: in which order goroutines run after a call of
// runtime.Gosched depends on how many switches between goroutines the process has made.
var Yield = runtime.Gosched
