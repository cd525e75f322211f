package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/wire"
)

// Every stream of a store holds a marker: a message that stays there for as long as the stream
// exists. A stream loses its marker if it is purged as a whole, or if an operator deletes it and
// creates it again, even with the same settings and metadata. Such a stream must not be used: it
// would look as if no data had ever been stored, and sequences and ids of logs would be used twice.
// A stream that was restored from a backup has its marker.
const (
	// markedKey is the key in the metadata of the stream of documents which says that all streams
	// of the store have a marker.
	markedKey = "weir-marked"
	// markerName is the last part of the subject of a marker. It is neither the id of a log nor the
	// key of a document.
	markerName = "~marker"
)

// EnsureMarkers returns an error if a stream of the store lacks its marker. It writes the markers
// of a new store, and of a store that an earlier version created.
func (s *Streams) EnsureMarkers(ctx context.Context, shards int) error {
	for { // tries again while the servers do not answer, because other nodes may still be starting
		err := s.tryMarkers(ctx, shards)
		if !errors.Is(err, engine.ErrUnavailable) || s.client.Pause(ctx, wire.Retry) != nil {
			return err
		}
	}
}

func (s *Streams) tryMarkers(ctx context.Context, shards int) error {
	docs, prefix := s.Docs()
	info, err := s.client.Info(ctx, docs)
	if err != nil {
		return err
	}
	settings := info.Config
	visit := s.writeMarker
	isMarked := settings.Metadata[markedKey] != ""
	if isMarked {
		visit = s.findMarker
	}
	// The stream of documents comes last. Once it has had a message, a missing shard is not created
	// any more: see Ensure.
	for i := range shards {
		stream, prefix := s.Shard(i)
		if err := visit(ctx, stream, prefix); err != nil {
			return fmt.Errorf("stream %s: %w", stream, err)
		}
	}
	if err := visit(ctx, docs, prefix); err != nil {
		return fmt.Errorf("stream %s: %w", docs, err)
	}
	if isMarked {
		return nil
	}
	settings.Metadata[markedKey] = "1"
	return s.mark(ctx, settings)
}

// writeMarker stores a marker. Nodes that start at the same time may store several.
func (s *Streams) writeMarker(ctx context.Context, _, prefix string) error {
	m := wire.Signed(wire.Name(), prefix+markerName, nil)
	_, err := wire.Ask(ctx, s.client, func(ctx context.Context) (uint64, error) { return s.client.Publish(ctx, []*nats.Msg{m}) })
	if err != nil {
		return fmt.Errorf("write the marker: %w", err)
	}
	return nil
}

var errUnmarked = errors.New("it was created again or purged, and is not the stream that the store used: restore it from a backup")

// Intact returns ErrDamaged if a shard has lost its marker while this process was running. It is
// called when a log turns out to be empty, because then either the log is new, or all logs of the
// shard were lost.
func (s *Streams) Intact(ctx context.Context, shard int) error {
	stream, prefix := s.Shard(shard)
	err := s.findMarker(ctx, stream, prefix)
	if errors.Is(err, errUnmarked) {
		return fmt.Errorf("%w: stream %s: %w", engine.ErrDamaged, stream, err)
	}
	return err
}

// findMarker returns an error if a stream has no marker. A server that has just started may not
// know all messages, so findMarker asks again until servers have said for missingFor that the marker
// is missing.
func (s *Streams) findMarker(ctx context.Context, stream, prefix string) error {
	for missing := (time.Time{}); ; {
		_, err := s.client.Leader(ctx, stream, wire.Query{LastFor: prefix + markerName})
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, engine.ErrNotFound):
			return fmt.Errorf("look for the marker: %w", err)
		case missing.IsZero():
			missing = time.Now()
		case time.Since(missing) > missingFor:
			return errUnmarked
		}
		if err := s.client.Pause(ctx, wire.Retry); err != nil {
			return err
		}
	}
}
