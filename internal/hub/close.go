package hub

import (
	"context"
	"fmt"

	"weir"
	"weir/internal/engine"
)

// closing is the Proposer of the entry that closes a stream.
type closing struct{}

// Close closes the stream for good (D37) and returns the stream object. Closing is an entry of the
// log like any other, so the order of publishes and Close is the same for all readers and after
// every restart. Gaps that are open are closed with the same entry. Closing a closed stream changes
// nothing. Close fails with StreamNotFound or StorageUnavailable. If ctx ends first, the stream may
// still be closed.
func (s *Stream) Close(ctx context.Context) (weir.Stream, error) {
	f, err := s.acquire(ctx)
	if err != nil {
		return weir.Stream{}, err
	}
	defer f.release()
	err = f.log.Append(ctx, &engine.Entry{Header: engine.Header{Kind: engine.GapClosed}, Proposer: closing{}})
	if err != nil {
		if known := clientError(s.ID, err); known != err || ctx.Err() != nil {
			f.writeFailed(known)
			return weir.Stream{}, known
		}
		return weir.Stream{}, fmt.Errorf("close stream %s: %w", s.ID, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dropped {
		return weir.Stream{}, notFound(s.ID)
	}
	f.evict(s.hub.now())
	return s.object(f.summarize()), nil
}
