package hub

import (
	"context"
	"errors"
	"fmt"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// Object returns the current stream object. On a shared store the object includes every batch that
// any node acknowledged before the call.
func (s *Stream) Object(ctx context.Context) (weir.Stream, error) {
	r, err := s.current(ctx)
	return s.object(r), err
}

// Cursor returns the current cursor, with the same guarantee as Object.
func (s *Stream) Cursor(ctx context.Context) (weir.Cursor, error) {
	r, err := s.current(ctx)
	return r.cursor, err
}

// current returns the cursor and size of the stream. If the stream is not in use, current takes
// both from the summary that was made when the log was closed, and does not open the log. It opens
// the log in two cases: a batch may have expired since then, or the store is shared, so that other
// nodes may have changed the stream.
func (s *Stream) current(ctx context.Context) (summary, error) {
	now := s.hub.now()
	s.mu.Lock()
	if r := s.summary; s.traffic.open() == nil && !s.deleted && now < r.until && !s.hub.shared {
		s.mu.Unlock()
		return r, nil
	}
	s.mu.Unlock()
	f, err := s.acquire(ctx)
	if err != nil {
		return summary{}, err
	}
	defer f.release()
	if err := f.catchUp(ctx); err != nil {
		return summary{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if isGone(f) {
		return summary{}, notFound(s.ID)
	}
	f.evict(now)
	return f.summarize(), nil
}

// Batch reads one batch. If there is no such batch, the error is StreamNotFound, and its message
// says whether the batch was evicted, lost or never stored (D12).
func (s *Stream) Batch(ctx context.Context, seq weir.Seq) (weir.Batch, error) {
	f, err := s.acquire(ctx)
	if err != nil {
		return weir.Batch{}, err
	}
	defer f.release()
	s.use(ctx)
	presence, dropped := f.lookup(seq)
	if presence == stream.Unknown { // another node may have just stored the batch
		if err := f.catchUp(ctx); err != nil {
			return weir.Batch{}, err
		}
		presence, dropped = f.lookup(seq)
	}
	switch {
	case dropped:
		return weir.Batch{}, notFound(s.ID)
	case presence == stream.Unknown:
		return weir.Batch{}, weir.Errorf(weir.StreamNotFound, "batch %d was never stored in stream %s", seq, s.ID)
	case presence == stream.Evicted:
		return weir.Batch{}, evicted(s.ID, seq)
	case presence == stream.Lost:
		return weir.Batch{}, weir.Errorf(weir.StreamNotFound, "batch %d of stream %s is lost: the store was damaged", seq, s.ID)
	}
	e, err := f.log.Read(ctx, seq)
	if errors.Is(err, engine.ErrNotFound) {
		return weir.Batch{}, evicted(s.ID, seq) // the batch was evicted between lookup and Read
	}
	if err != nil {
		if known := clientError(s.ID, err); known != err {
			return weir.Batch{}, known
		}
		return weir.Batch{}, fmt.Errorf("read batch %d of stream %s: %w", seq, s.ID, err)
	}
	if presence, _ := f.lookup(seq); presence == stream.Evicted {
		// During Read this node may have learned of another node's batches, which evict this one.
		return weir.Batch{}, evicted(s.ID, seq)
	}
	return batch(&e), nil
}

// lookup returns whether the batch can be read, or why it cannot. The result dropped says whether
// the stream was deleted.
func (f *feed) lookup(seq weir.Seq) (p stream.Presence, dropped bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.evict(f.hub.now())
	return f.state.Lookup(seq), isGone(f)
}

// evictedFrom reports whether batches from the sequence first upwards were evicted. A caller must
// ask this after it has scanned the log from there: a scan leaves out the batches that were trimmed
// before it reached them, so its result may have a hole. evictedFrom fails with StreamNotFound if
// the stream was deleted.
func (f *feed) evictedFrom(first weir.Seq) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if isGone(f) {
		return false, notFound(f.s.ID)
	}
	f.evict(f.hub.now())
	return f.state.Low() > first, nil
}

// SizeOf returns the payload size of a batch, or 0 if no such batch is known. It does not read the
// payload.
func (s *Stream) SizeOf(ctx context.Context, seq weir.Seq) int {
	f, err := s.acquire(ctx)
	if err != nil {
		return 0
	}
	defer f.release()
	if presence, _ := f.lookup(seq); presence == stream.Unknown {
		f.refresh(ctx) // another node may have just stored the batch
	}
	return f.sizeOf(seq)
}

func (f *feed) sizeOf(seq weir.Seq) (size int) {
	f.log.Headers(seq, func(h engine.Header) bool {
		if h.Seq == seq && h.Kind == engine.Batch {
			size = int(h.Size)
		}
		return h.Seq < seq
	})
	return size
}

func evicted(id weir.StreamID, seq weir.Seq) *weir.Error {
	return weir.Errorf(weir.StreamNotFound, "batch %d of stream %s was evicted", seq, id)
}

func batch(e *engine.Entry) weir.Batch {
	return weir.Batch{Seq: e.Seq, Time: e.Time, Events: e.Count, ContentType: e.ContentType, Payload: e.Payload}
}
