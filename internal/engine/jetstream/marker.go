package jetstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
)

// Every stream of a store holds a marker: a message that stays there for as long as the stream
// exists. A stream that an operator deleted and created again has no marker, even if it has the
// settings and the metadata of the old one, and neither has a stream that was purged as a whole.
// Such a stream must not be used: it would look as if no data had ever been stored, and sequences
// and ids of logs would be used twice. A stream that was restored from a backup has its marker.
const (
	// markedKey is the key in the metadata of the stream of documents which says that all streams
	// of the store have a marker.
	markedKey = "weir-marked"
	// markerName is the last part of the subject of a marker. It is neither the id of a log nor the
	// key of a document.
	markerName = "~marker"
)

// ensureMarkers returns an error if a stream of the store lacks its marker. It writes the markers
// of a new store, and of a store that an earlier version created.
func (e *Engine) ensureMarkers(ctx context.Context, shards int) error {
	for { // tries again while the servers do not answer, because other nodes may still be starting
		err := e.tryMarkers(ctx, shards)
		if !errors.Is(err, engine.ErrUnavailable) || e.pause(ctx, retry) != nil {
			return err
		}
	}
}

func (e *Engine) tryMarkers(ctx context.Context, shards int) error {
	docs := e.docsStream()
	s, err := withRetry(ctx, e, func(ctx context.Context) (*jetstream.StreamInfo, error) { return e.servers.Stream(ctx, docs) })
	if err != nil {
		return fmt.Errorf("read the settings of stream %s: %w", docs, err)
	}
	settings := s.Config
	visit := e.writeMarker
	isMarked := settings.Metadata[markedKey] != ""
	if isMarked {
		visit = e.findMarker
	}
	// The stream of documents comes last. Once it has had a message, a missing shard is not created
	// any more: see ensureStreams.
	for i := range shards {
		stream := e.logStream(i)
		if err := visit(ctx, stream, e.logPrefix(i)+markerName); err != nil {
			return fmt.Errorf("stream %s: %w", stream, err)
		}
	}
	if err := visit(ctx, docs, e.docsSubject()+markerName); err != nil {
		return fmt.Errorf("stream %s: %w", docs, err)
	}
	if isMarked {
		return nil
	}
	settings.Metadata[markedKey] = "1"
	return e.mark(ctx, settings)
}

// writeMarker stores a marker. Nodes that start at the same time may store several.
func (e *Engine) writeMarker(ctx context.Context, _, subject string) error {
	m := &nats.Msg{Subject: subject, Header: nats.Header{writerID: {writerName()}}}
	_, err := withRetry(ctx, e, func(ctx context.Context) (uint64, error) { return e.publish(ctx, []*nats.Msg{m}) })
	if err != nil {
		return fmt.Errorf("write the marker: %w", err)
	}
	return nil
}

var errUnmarked = errors.New("it was created again or purged, and is not the stream that the store used: restore it from a backup")

// intact returns ErrDamaged if the shard has lost its marker while this process was running. It is
// called when a log turns out to be empty: the log is new, or all logs of the shard were lost.
func (s *shard) intact(ctx context.Context) error {
	if !s.e.marked {
		return nil
	}
	err := s.e.findMarker(ctx, s.stream, s.prefix+markerName)
	if errors.Is(err, errUnmarked) {
		return fmt.Errorf("%w: stream %s: %w", engine.ErrDamaged, s.stream, err)
	}
	return err
}

// findMarker returns an error if a stream has no marker. A server that has just started may not
// know all messages, so findMarker asks for missingFor.
func (e *Engine) findMarker(ctx context.Context, stream, subject string) error {
	for late := time.Now().Add(missingFor); ; {
		_, err := e.askLeader(ctx, stream, Query{LastFor: subject})
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, engine.ErrNotFound):
			return fmt.Errorf("look for the marker: %w", err)
		case time.Now().After(late):
			return errUnmarked
		}
		if err := e.pause(ctx, retry); err != nil {
			return err
		}
	}
}
