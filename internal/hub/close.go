package hub

import (
	"context"
	"fmt"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// closing is the Proposer of the entry that closes a stream, or only its open gaps.
type closing struct {
	gaps    bool  // close only the open gaps, and not the stream
	life    *life // end the stream because its lifetime has ended; otherwise nil
	writer  *Writer
	verdict stream.Verdict // set by Admit
}

// Close closes the stream for good (D37) and returns the stream object. Closing is an entry of the
// log like any other, so the order of publishes and Close is the same for all readers and after
// every restart. Gaps that are open are closed with the same entry. Closing a closed stream changes
// nothing. Close fails with StreamNotFound or StorageUnavailable. If ctx ends first, the stream may
// still be closed.
func (s *Stream) Close(ctx context.Context) (weir.Stream, error) {
	o, _, err := s.CloseBy(ctx, nil)
	return o, err
}

// CloseBy does the same as Close for a writer (a client that numbers what it writes). It also
// returns what the stream knows about the writer. It fails with StreamClosed if the stream was
// closed by another request, and with InvalidSequence if the numbers of the writer conflict with
// what the stream knows about the writer.
func (s *Stream) CloseBy(ctx context.Context, w *Writer) (weir.Stream, WriterStanding, error) {
	f, err := s.acquire(ctx)
	if err != nil {
		return weir.Stream{}, WriterStanding{}, err
	}
	defer f.release()
	v, err := s.end(ctx, f, w)
	if err == nil && v.Outcome == stream.Refused && s.hub.shared { // the refusal may be based on an outdated state, so catch up and try again
		if err = f.catchUp(ctx); err == nil {
			v, err = s.end(ctx, f, w)
		}
	}
	if err == nil && v.Outcome == stream.Refused {
		err = v.Err
	}
	if err != nil {
		return weir.Stream{}, v.Writer, err
	}
	s.use(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if isGone(f) {
		return weir.Stream{}, v.Writer, notFound(s.ID)
	}
	f.evict(s.hub.now())
	return s.object(f.summarize()), v.Writer, nil
}

// end proposes the entry that closes the stream.
func (s *Stream) end(ctx context.Context, f *feed, w *Writer) (stream.Verdict, error) {
	c := &closing{writer: w}
	err := f.log.Append(ctx, &engine.Entry{Header: engine.Header{Kind: engine.GapClosed, Tag: w.Tag()}, Proposer: c})
	if err == nil {
		return c.verdict, nil
	}
	if known := changeError(s.ID, err); known != err || ctx.Err() != nil {
		f.writeFailed(known)
		return stream.Verdict{}, known
	}
	return stream.Verdict{}, fmt.Errorf("close stream %s: %w", s.ID, err)
}
