package datadir

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"weir"
	"weir/internal/access"
	"weir/internal/dashboard"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal"
	"weir/internal/hub"
)

// Copied is the progress of a copy: the amounts copied so far.
type Copied struct {
	Documents int
	Streams   int
	Batches   int
	Bytes     int64
}

// CopyInto copies everything that a data directory holds to another store, and verifies the copy.
// No server may be using the directory, and no stream of the store may hold batches. Streams keep
// their batches as they are, with sequences, times, closed gaps and idempotency keys. If a copy was
// interrupted, the next call starts from the beginning. CopyInto calls the function tell with the
// progress.
func CopyInto(ctx context.Context, to engine.Engine, data string, tell func(Copied)) (Copied, error) {
	if !HasJournal(data) {
		return Copied{}, fmt.Errorf("%w: %s is not the data directory of a server that uses the journal engine", ErrNoData, data)
	}
	from, err := journal.Open(disk.OS(Journal(data)), journal.Options{})
	if err != nil {
		return Copied{}, fmt.Errorf("open %s: %w", Journal(data), err)
	}
	defer from.Close()
	t := newTransfer(from, to, tell)
	err = t.run(ctx)
	return t.done, err
}

// transfer is a copy of one store into another. API keys come last, so that no client can publish
// before the copy is complete.
type transfer struct {
	from, to engine.Engine
	tell     func(Copied)

	mu    sync.Mutex
	done  Copied
	room  *sync.Cond // signalled when an entry is no longer in flight
	busy  int        // number of entries in flight
	bytes int        // total size of their payloads
}

func newTransfer(from, to engine.Engine, tell func(Copied)) *transfer {
	t := &transfer{from: from, to: to, tell: tell}
	t.room = sync.NewCond(&t.mu)
	return t
}

// Limits on the logs and entries that are in flight during a copy.
const (
	maxCopyingLogs  = 4
	maxCopying      = 64
	maxCopyingBytes = 32 << 20
)

// claims is the prefix of the keys that ClaimKey returns.
const claims = "claim/"

// ClaimKey returns the key of a claim. A claim is a document with which one of the nodes that share
// a store takes over a piece of work. It concerns only this store, so a copy of the store leaves it
// out.
func ClaimKey(work string) string { return claims + work }

// staysBehind reports whether a document is left out of copies. Claims and the dashboard's sessions
// concern only their own store. Every server creates the figures of its dashboard and its demo stream by itself.
func staysBehind(key string) bool {
	id, _ := hub.StreamOf(key)
	return strings.HasPrefix(key, claims) || strings.HasPrefix(key, dashboard.FiguresPrefix) || strings.HasPrefix(key, dashboard.SessionPrefix) || id == access.DemoStream
}

// documentsToCopy returns the documents to copy, in the order of their creation.
func documentsToCopy(ctx context.Context, e engine.Engine) ([]engine.Document, error) {
	var all []engine.Document
	for after := ""; ; {
		docs, err := e.List(ctx, "", after, 1000)
		if err != nil {
			return nil, err
		}
		if len(docs) == 0 {
			slices.SortFunc(all, func(a, b engine.Document) int { return cmp.Compare(a.Created, b.Created) })
			return all, nil
		}
		for _, d := range docs {
			after = d.Key
			if !staysBehind(d.Key) {
				all = append(all, d)
			}
		}
	}
}

// clear deletes the documents that the target created when it was first started, except the
// dashboard's account. It refuses a target that is in use, which means that one of its streams has
// batches. If the parameter again is true, an earlier copy was interrupted. It may have left
// documents and batches, so clear then refuses nothing and deletes these documents too.
func (t *transfer) clear(ctx context.Context, again bool) error {
	docs, err := documentsToCopy(ctx, t.to)
	if err != nil {
		return err
	}
	for _, d := range docs {
		if id, ok := hub.StreamOf(d.Key); ok && !again {
			l, err := t.to.Open(ctx, d.Created, copyist{})
			if err != nil {
				return err
			}
			used := false
			l.Headers(0, func(engine.Header) bool { used = true; return false })
			if err := l.Close(); err != nil {
				return err
			}
			if used {
				return fmt.Errorf("the cluster is in use: stream %s has batches", id)
			}
		}
	}
	for _, d := range slices.Backward(docs) {
		if d.Key == dashboard.AccountKey {
			continue // the operator must be able to sign in during the copy
		}
		if err := t.to.Delete(ctx, d.Key, 0); err != nil && !errors.Is(err, engine.ErrNotFound) {
			return fmt.Errorf("delete %s from the target: %w", d.Key, err)
		}
	}
	return nil
}

// copyAll copies all documents, and each stream with its log.
func (t *transfer) copyAll(ctx context.Context) error {
	docs, err := documentsToCopy(ctx, t.from)
	if err != nil {
		return err
	}
	made := map[string]engine.Document{}
	create := func(keys bool) error {
		for _, d := range docs {
			if access.IsKeyDocument(d.Key) != keys {
				continue
			}
			if made[d.Key], err = t.create(ctx, d); err != nil {
				return fmt.Errorf("copy %s: %w", d.Key, err)
			}
			t.report(func(c *Copied) { c.Documents++ })
		}
		return nil
	}
	if err := create(false); err != nil {
		return err
	}
	if err := t.copyLogs(ctx, docs, made); err != nil {
		return err
	}
	if err := create(true); err != nil {
		return err
	}
	return t.followChanges(ctx, docs, made)
}

// create creates a copy of a document. If the document is an account of the dashboard, the target
// may already have one, which create then overwrites.
func (t *transfer) create(ctx context.Context, d engine.Document) (engine.Document, error) {
	made, err := t.to.Create(ctx, d.Key, d.Value)
	if errors.Is(err, engine.ErrExists) && d.Key == dashboard.AccountKey {
		made, err = t.to.Get(ctx, d.Key)
		if err == nil {
			made, err = t.to.Update(ctx, d.Key, d.Value, made.Revision)
		}
	}
	return made, err
}

// report changes the progress and passes it to the function tell.
func (t *transfer) report(change func(*Copied)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.done)
	t.tell(t.done)
}

// copyLogs copies the logs of all streams, several at a time.
func (t *transfer) copyLogs(ctx context.Context, docs []engine.Document, made map[string]engine.Document) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	places := make(chan struct{}, maxCopyingLogs)
	for _, d := range docs {
		if _, ok := hub.StreamOf(d.Key); !ok || ctx.Err() != nil {
			continue
		}
		places <- struct{}{}
		work.Go(func() {
			defer func() { <-places }()
			// A stream that was deleted in the meantime is left to followChanges.
			if err := t.copyLog(ctx, d.Created, made[d.Key].Created); err != nil && !errors.Is(err, engine.ErrDropped) {
				cancel(fmt.Errorf("copy %s: %w", d.Key, err))
			}
			t.report(func(c *Copied) { c.Streams++ })
		})
	}
	work.Wait()
	return context.Cause(ctx)
}

// followChanges makes the same changes in the target that were made to the copied documents since
// they were read into docs. It leaves out documents that were created since then.
func (t *transfer) followChanges(ctx context.Context, docs []engine.Document, made map[string]engine.Document) error {
	now, err := documentsToCopy(ctx, t.from)
	if err != nil {
		return err
	}
	current := map[string]engine.Document{}
	for _, d := range now {
		current[d.Key] = d
	}
	for _, d := range docs {
		switch c, ok := current[d.Key]; {
		case !ok || c.Created != d.Created:
			err = t.to.Delete(ctx, d.Key, made[d.Key].Revision)
		case c.Revision != d.Revision:
			// The new document may say that the content of the stream is complete. So the copy must
			// have the batches that were stored before this document.
			if _, ok := hub.StreamOf(d.Key); ok {
				if err := t.copyLog(ctx, d.Created, made[d.Key].Created); err != nil && !errors.Is(err, engine.ErrDropped) {
					return fmt.Errorf("copy %s: %w", d.Key, err)
				}
			}
			_, err = t.to.Update(ctx, d.Key, c.Value, made[d.Key].Revision)
		}
		if err != nil {
			return fmt.Errorf("copy a change of %s: %w", d.Key, err)
		}
	}
	return nil
}

// maxRounds is the maximum number of times that copyLog reads a log. The second round has to copy
// only the entries that were stored during the first. So a log needs many rounds only if its stream
// evicts batches almost as fast as they are copied.
const maxRounds = 30

// copyLog copies a log and verifies the copy. Servers may go on appending to the source and
// trimming it. The copy has all entries that the source had when copyLog was called, except those
// that were trimmed since. It may also have later entries.
func (t *transfer) copyLog(ctx context.Context, from, to engine.LogID) error {
	out, err := t.to.Open(ctx, to, copyist{})
	if err != nil {
		return err
	}
	defer out.Close()
	have := outlines(out) // not empty if an earlier call of copyLog has copied entries
	for range maxRounds {
		want, err := t.copyRound(ctx, from, out, have)
		if err != nil {
			return err
		}
		if have = outlines(out); want != nil && slices.Equal(want, have) {
			return nil
		}
	}
	return fmt.Errorf("verify copy: after %d attempts it still differs from the source, which may evict batches faster than they can be copied", maxRounds)
}

// outline is the part of a header that Log.Headers returns. An engine.Header takes six times as much
// memory, which matters for a log of millions of entries.
type outline struct {
	seq     weir.Seq
	time    weir.Time
	size    uint32
	keySize uint16
	kind    engine.Kind
	flags   engine.Flags
}

func outlineOf(h engine.Header) outline {
	return outline{h.Seq, h.Time, h.Size, h.KeySize, h.Kind, h.Flags}
}

// outlines returns the outlines of all entries of a log, in order of their sequences.
func outlines(l engine.Log) []outline {
	all := []outline{}
	l.Headers(0, func(h engine.Header) bool { all = append(all, outlineOf(h)); return true })
	return all
}

// copyRound opens the source and copies all entries that the target does not have. The parameter
// have lists the entries of the target. If entries were trimmed from the source before copyRound
// could read them, the target lacks these entries afterwards. copyRound returns the entries that
// the target should have, or nil if the source must be opened again to know them.
func (t *transfer) copyRound(ctx context.Context, from engine.LogID, out engine.Log, have []outline) ([]outline, error) {
	source := &original{}
	in, err := t.from.Open(ctx, from, source)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	want := outlines(in)
	if source.trimmed.Load() {
		return nil, nil // another process has just trimmed the log, so source.note may be older than the entries in want
	}
	if source.note != nil {
		low, err := hub.LowOf(source.note)
		if err == nil {
			err = out.Trim(ctx, low, source.note)
		}
		if err != nil {
			return nil, err
		}
	}
	err = t.copyEntries(ctx, in, out, missing(want, have))
	if errors.Is(err, engine.ErrBehind) || errors.Is(err, engine.ErrNotFound) {
		return nil, nil
	}
	return want, err
}

// missing returns the entries of want whose sequences are not in have. Both are in order of their
// sequences.
func missing(want, have []outline) []outline {
	if len(have) == 0 {
		return want
	}
	var all []outline
	for _, w := range want {
		for len(have) > 0 && have[0].seq < w.seq {
			have = have[1:]
		}
		if len(have) == 0 || have[0].seq != w.seq {
			all = append(all, w)
		}
	}
	return all
}

// copyEntries appends the wanted entries of one log to another, many at a time. Each entry carries
// its sequence, so the order in which the entries are stored does not matter.
func (t *transfer) copyEntries(ctx context.Context, in, out engine.Log, wanted []outline) error {
	if len(wanted) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	err := in.Scan(ctx, wanted[0].seq, 0, func(e *engine.Entry) bool {
		for len(wanted) > 0 && wanted[0].seq < e.Seq {
			wanted = wanted[1:]
		}
		if len(wanted) == 0 || wanted[0].seq != e.Seq {
			return len(wanted) > 0
		}
		size := len(e.Payload)
		t.begin(size)
		entry := &engine.Entry{Header: e.Header, Payload: slices.Clone(e.Payload)}
		isBatch := e.Kind == engine.Batch
		work.Go(func() {
			err := out.Append(ctx, entry)
			if err != nil {
				cancel(err)
			}
			t.end(size, isBatch && err == nil)
		})
		return ctx.Err() == nil
	})
	work.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// begin waits until there is room in flight for an entry of this size.
func (t *transfer) begin(size int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.busy > 0 && (t.busy >= maxCopying || t.bytes+size > maxCopyingBytes) {
		t.room.Wait()
	}
	t.busy, t.bytes = t.busy+1, t.bytes+size
}

// end records that an entry is no longer in flight, and counts the entry if it is a batch that was
// stored.
func (t *transfer) end(size int, storedBatch bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy, t.bytes = t.busy-1, t.bytes-size
	if storedBatch {
		t.done.Batches++
		t.done.Bytes += int64(size)
	}
	t.room.Broadcast()
}

// copyist is the engine.Judge of the target's logs during a copy. A judge decides which entries a
// log admits. A copyist admits every entry, because the judge of the source has already admitted it.
type copyist struct{}

// Restore implements engine.Judge.
func (copyist) Restore([]byte, iter.Seq[*engine.Header]) error { return nil }

// Admit implements engine.Judge.
func (copyist) Admit(*engine.Entry) bool { return true }

// Commit implements engine.Judge.
func (copyist) Commit(int) {}

// Dropped implements engine.Judge.
func (copyist) Dropped() {}

// original is the engine.Follower of a log that is copied: a judge that also learns what other
// processes do with the log. It admits nothing. It ignores the entries that other processes append,
// because only the entries that the log held when it was opened are copied.
type original struct {
	copyist
	note    []byte      // the note that the last Trim of the log stored; nil if there was none
	trimmed atomic.Bool // another process has trimmed the log since it was opened
}

// Restore implements engine.Judge. It visits all entries, because a journal learns the sizes of their
// keys only then.
func (o *original) Restore(note []byte, entries iter.Seq[*engine.Header]) error {
	o.note = slices.Clone(note)
	for range entries {
	}
	return nil
}

// Admit implements engine.Judge.
func (*original) Admit(*engine.Entry) bool { return false }

// Follow implements engine.Follower.
func (*original) Follow(engine.Header) {}

// Trimmed implements engine.Follower.
func (o *original) Trimmed(weir.Seq) { o.trimmed.Store(true) }

// Behind implements engine.Follower.
func (*original) Behind() {}

// Note implements engine.Follower.
func (o *original) Note() (weir.Seq, []byte) { return 0, o.note }

// Rewind implements engine.Follower.
func (*original) Rewind() {}

// copying is the key of a document in the target. The document exists from the beginning of a copy
// until the copy is complete.
var copying = ClaimKey("migration")

// mark creates the document with the key copying. It reports whether the document existed, which
// means that an earlier copy was not completed.
func (t *transfer) mark(ctx context.Context) (again bool, err error) {
	_, err = t.to.Create(ctx, copying, json.RawMessage(`{}`))
	if errors.Is(err, engine.ErrExists) {
		return true, nil
	}
	return false, err
}

func (t *transfer) run(ctx context.Context) error {
	again, err := t.mark(ctx)
	if err != nil {
		return err
	}
	if err := t.clear(ctx, again); err != nil {
		if !again {
			t.to.Delete(ctx, copying, 0)
		}
		return err
	}
	if err := t.copyAll(ctx); err != nil {
		return err
	}
	return t.to.Delete(ctx, copying, 0)
}
