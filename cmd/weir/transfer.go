package main

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
	"weir/internal/engine"
)

// transferred is how far a transfer is.
type transferred struct {
	Documents int   `json:"documents"`
	Streams   int   `json:"streams"`
	Batches   int   `json:"batches"`
	Bytes     int64 `json:"bytes"`
}

// transfer copies everything that one store keeps into another, streams with their batches as they are: sequences, times,
// closed gaps, idempotency keys. Keys come last, so that nobody can publish before all is there.
type transfer struct {
	from, to engine.Engine
	tell     func(transferred)
	done     transferred
}

const (
	streamKeys  = "stream/"
	projectKeys = "project/"
	keyKeys     = "key/"
	accountKey  = "dashboard/account"

	transferAtOnce = 64       // entries on their way
	transferBytes  = 32 << 20 // of them
)

// passedOver is what belongs to a store, or is of no use elsewhere.
func passedOver(key string) bool {
	return strings.HasPrefix(key, claims) || strings.HasPrefix(key, "figures/") || key == streamKeys+string(access.DemoStream)
}

// everything lists the documents of a store, in the order of their creation.
func everything(ctx context.Context, e engine.Engine) ([]engine.Document, error) {
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
			if !passedOver(d.Key) {
				all = append(all, d)
			}
		}
	}
}

// clear takes away what the first start of a store made, and refuses one that is in use: a stream has batches. Again says that
// an earlier transfer was cut off, and what it left is taken away too.
func (t *transfer) clear(ctx context.Context, again bool) error {
	docs, err := everything(ctx, t.to)
	if err != nil {
		return err
	}
	for _, d := range docs {
		if strings.HasPrefix(d.Key, streamKeys) && !again {
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
				return fmt.Errorf("the cluster is in use: stream %s has batches", strings.TrimPrefix(d.Key, streamKeys))
			}
		}
	}
	for _, d := range slices.Backward(docs) {
		if d.Key == accountKey {
			continue // nobody could sign in meanwhile
		}
		if err := t.to.Delete(ctx, d.Key, 0); err != nil && !errors.Is(err, engine.ErrNotFound) {
			return fmt.Errorf("take %s away: %w", d.Key, err)
		}
	}
	return nil
}

// copyAll copies.
func (t *transfer) copyAll(ctx context.Context) error {
	docs, err := everything(ctx, t.from)
	if err != nil {
		return err
	}
	late := func(key string) int {
		if strings.HasPrefix(key, keyKeys) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(docs, func(a, b engine.Document) int { return cmp.Compare(late(a.Key), late(b.Key)) })
	for _, d := range docs {
		made, err := t.to.Create(ctx, d.Key, d.Value)
		if errors.Is(err, engine.ErrExists) && d.Key == accountKey {
			made, err = t.to.Get(ctx, d.Key)
			if err == nil {
				made, err = t.to.Update(ctx, d.Key, d.Value, made.Revision)
			}
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", d.Key, err)
		}
		t.done.Documents++
		if strings.HasPrefix(d.Key, streamKeys) {
			if err := t.copyLog(ctx, d.Created, made.Created); err != nil {
				return fmt.Errorf("copy %s: %w", d.Key, err)
			}
			t.done.Streams++
		}
		t.tell(t.done)
	}
	return nil
}

// copyLog copies a log, and sees that all of it is there.
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
		return fmt.Errorf("of %d entries %d are there, or they are others", len(want), len(got))
	}
	return nil
}

// copyEntries appends the entries of one log to another, many at once: the order in which they are stored does not matter.
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
		for busy > 0 && (busy >= transferAtOnce || bytes+size > transferBytes) {
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

// copyist is a judge without an opinion: what it is asked about was decided elsewhere.
type copyist struct {
	note []byte
	low  weir.Seq
}

// Restore implements engine.Judge.
func (c *copyist) Restore(note []byte, entries iter.Seq[engine.Header]) error {
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

// migrating is the document that says that a transfer into this store is not over.
const migrating = claims + "migration"

// begun marks that a transfer began, and tells whether one began before and did not end.
func (t *transfer) begun(ctx context.Context) (again bool, err error) {
	_, err = t.to.Create(ctx, migrating, json.RawMessage(`{}`))
	if errors.Is(err, engine.ErrExists) {
		return true, nil
	}
	return false, err
}

// run copies everything.
func (t *transfer) run(ctx context.Context) error {
	again, err := t.begun(ctx)
	if err != nil {
		return err
	}
	if err := t.clear(ctx, again); err != nil {
		if !again {
			t.to.Delete(ctx, migrating, 0)
		}
		return err
	}
	if err := t.copyAll(ctx); err != nil {
		return err
	}
	return t.to.Delete(ctx, migrating, 0)
}
