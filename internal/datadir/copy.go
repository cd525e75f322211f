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
	t := &transfer{from: from, to: to, tell: tell}
	err = t.run(ctx)
	return t.done, err
}

// transfer is a copy of one store into another. API keys come last, so that no client can publish
// before the copy is complete.
type transfer struct {
	from, to engine.Engine
	tell     func(Copied)
	done     Copied
}

// Limits on the entries that are in flight during a copy.
const (
	maxCopying      = 64
	maxCopyingBytes = 32 << 20
)

// claims is the prefix of the keys that ClaimKey returns.
const claims = "claim/"

// ClaimKey returns the key of a claim. A claim is a document with which one of the nodes that share
// a store takes over a piece of work. It concerns only this store, so a copy of the store leaves it
// out.
func ClaimKey(work string) string { return claims + work }

// staysBehind reports whether a document is left out of copies. Claims concern only their own
// store, and every server creates its own figures and demo stream.
func staysBehind(key string) bool {
	id, _ := hub.StreamOf(key)
	return strings.HasPrefix(key, claims) || strings.HasPrefix(key, dashboard.FiguresPrefix) || id == access.DemoStream
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

// clear deletes the documents that the first start of the target created. It refuses a target that
// is in use, which means that one of its streams has batches. If the parameter again is true, an
// earlier copy was interrupted and may have left batches. Then clear refuses nothing.
func (t *transfer) clear(ctx context.Context, again bool) error {
	docs, err := documentsToCopy(ctx, t.to)
	if err != nil {
		return err
	}
	for _, d := range docs {
		if id, ok := hub.StreamOf(d.Key); ok && !again {
			l, err := t.to.Open(ctx, d.Created, &copyist{})
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
	late := func(key string) int {
		if access.IsKeyDocument(key) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(docs, func(a, b engine.Document) int { return cmp.Compare(late(a.Key), late(b.Key)) })
	for _, d := range docs {
		made, err := t.to.Create(ctx, d.Key, d.Value)
		if errors.Is(err, engine.ErrExists) && d.Key == dashboard.AccountKey {
			made, err = t.to.Get(ctx, d.Key)
			if err == nil {
				made, err = t.to.Update(ctx, d.Key, d.Value, made.Revision)
			}
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", d.Key, err)
		}
		t.done.Documents++
		if _, ok := hub.StreamOf(d.Key); ok {
			if err := t.copyLog(ctx, d.Created, made.Created); err != nil {
				return fmt.Errorf("copy %s: %w", d.Key, err)
			}
			t.done.Streams++
		}
		t.tell(t.done)
	}
	return nil
}

// copyLog copies a log and verifies the copy.
func (t *transfer) copyLog(ctx context.Context, from, to engine.LogID) error {
	source, target := &copyist{}, &copyist{}
	in, err := t.from.Open(ctx, from, source)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := t.to.Open(ctx, to, target)
	if err != nil {
		return err
	}
	defer out.Close()
	if source.note != nil {
		if err := out.Trim(ctx, source.low, source.note); err != nil {
			return err
		}
	}
	if err := t.copyEntries(ctx, in, out); err != nil {
		return err
	}
	var want, got []engine.Header
	in.Headers(0, func(h engine.Header) bool { want = append(want, h); return true })
	out.Headers(0, func(h engine.Header) bool { got = append(got, h); return true })
	if !slices.Equal(want, got) {
		return fmt.Errorf("verify copy: source has %d entries, copy has %d, or their contents differ", len(want), len(got))
	}
	return nil
}

// copyEntries appends the entries of one log to another, many at a time. Each entry carries its
// sequence, so the order in which the entries are stored does not matter.
func (t *transfer) copyEntries(ctx context.Context, in, out engine.Log) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var work sync.WaitGroup
	var mu sync.Mutex
	room := sync.NewCond(&mu)
	busy, bytes := 0, 0
	err := in.Scan(ctx, 0, 0, func(e *engine.Entry) bool {
		size := len(e.Payload)
		mu.Lock()
		for busy > 0 && (busy >= maxCopying || bytes+size > maxCopyingBytes) {
			room.Wait()
		}
		busy, bytes = busy+1, bytes+size
		mu.Unlock()
		entry := &engine.Entry{Header: e.Header, Payload: slices.Clone(e.Payload)}
		isBatch := e.Kind == engine.Batch
		work.Go(func() {
			if err := out.Append(ctx, entry); err != nil {
				cancel(err)
			}
			mu.Lock()
			defer mu.Unlock()
			busy, bytes = busy-1, bytes-size
			if isBatch {
				t.done.Batches++
				t.done.Bytes += int64(size)
			}
			room.Signal()
		})
		return ctx.Err() == nil
	})
	work.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// copyist is the engine.Judge of both logs during a copy. A judge decides which entries a log
// admits. A copyist admits every entry, because the judge of the source has already admitted it.
type copyist struct {
	note []byte   // the note that the last Trim of the log stored
	low  weir.Seq // sequence of the first entry
}

// Restore implements engine.Judge.
func (c *copyist) Restore(note []byte, entries iter.Seq[*engine.Header]) error {
	c.note = slices.Clone(note)
	if note != nil && c.note == nil {
		c.note = []byte{}
	}
	for h := range entries {
		c.low = h.Seq
		break
	}
	return nil
}

// Admit implements engine.Judge.
func (c *copyist) Admit(*engine.Entry) bool { return true }

// Commit implements engine.Judge.
func (c *copyist) Commit(int) {}

// Dropped implements engine.Judge.
func (c *copyist) Dropped() {}

// copying is the key of a document in the target. The document exists from the beginning of a copy
// until the copy is complete.
var copying = ClaimKey("migration")

// begin marks that a copy has begun. It reports whether an earlier copy began and was not
// completed.
func (t *transfer) begin(ctx context.Context) (again bool, err error) {
	_, err = t.to.Create(ctx, copying, json.RawMessage(`{}`))
	if errors.Is(err, engine.ErrExists) {
		return true, nil
	}
	return false, err
}

func (t *transfer) run(ctx context.Context) error {
	again, err := t.begin(ctx)
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
