package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Keys in the metadata of the stream of documents. The metadata is written when the store is
// created.
const (
	formatKey = "weir-format"
	shardsKey = "weir-shards"

	format = "1"
)

const (
	// retry is the pause before the engine repeats a request to servers that were not ready.
	retry = 200 * time.Millisecond
	// attempt is the timeout of one request. Without it, the engine would not notice that a request
	// or its answer got lost.
	attempt = 2 * time.Second
	// readWithin is how long a replica may take to answer a read before the engine asks the leader
	// instead. A replica may hang without any other server noticing it.
	readWithin = time.Second
)

// ensureStreams creates missing streams and returns the number of shards. It creates the stream of
// documents first. The metadata of this stream determines the number of shards. If two nodes start
// at the same time, only one of them can create the stream, so both use the same number.
func (e *Engine) ensureStreams(ctx context.Context) (int, error) {
	docs := jetstream.StreamConfig{
		Name: "KV_" + e.opts.Name + "-docs", Description: "documents of weir", Subjects: []string{"$KV." + e.opts.Name + "-docs.>"},
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DenyDelete: true, AllowRollup: true,
		Metadata: map[string]string{formatKey: format, shardsKey: strconv.Itoa(e.opts.Shards)},
	}
	got, err := e.stream(ctx, docs)
	if err != nil {
		return 0, err
	}
	if f := got.Metadata[formatKey]; f != format {
		return 0, fmt.Errorf("stream %s has format %q, this program reads %q", docs.Name, f, format)
	}
	n, err := strconv.Atoi(got.Metadata[shardsKey])
	if err != nil || n < 1 || n > MaxShards {
		return 0, fmt.Errorf("stream %s: invalid number of shards %q in its metadata", docs.Name, got.Metadata[shardsKey])
	}
	for i := range n {
		_, err := e.stream(ctx, jetstream.StreamConfig{
			Name: fmt.Sprintf("%s-log-%d", e.opts.Name, i), Description: "logs of weir",
			Subjects: []string{fmt.Sprintf("%s.log.%d.*", e.opts.Name, i)}, Discard: jetstream.DiscardNew, DenyDelete: true,
			AllowAtomicPublish: true,
		})
		if err != nil {
			return 0, err
		}
	}
	return n, nil
}

// stream creates a JetStream stream, or returns the configuration of the existing one. While a
// cluster is forming, its servers cannot create streams, so it tries again until ctx ends.
func (e *Engine) stream(ctx context.Context, c jetstream.StreamConfig) (jetstream.StreamConfig, error) {
	c.Storage, c.Replicas = jetstream.FileStorage, e.opts.Replicas
	c.AllowDirect, c.AllowMsgTTL = true, true
	for {
		try, cancel := context.WithTimeout(ctx, attempt)
		s, err := e.js.Stream(try, c.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			s, err = e.js.CreateStream(try, c)
		}
		cancel()
		switch {
		case err == nil:
			got := s.CachedInfo().Config
			if got.PersistMode == jetstream.AsyncPersistMode || got.Storage != jetstream.FileStorage {
				return got, fmt.Errorf("stream %s does not sync before it acknowledges: a power cut could undo acknowledged writes", c.Name)
			}
			if err := suits(c, got); err != nil {
				return got, fmt.Errorf("stream %s: %w", c.Name, err)
			}
			return got, nil
		case final(err) || ctx.Err() != nil:
			return c, fmt.Errorf("create stream %s: %w", c.Name, err)
		}
		e.opts.Logger.Debug("servers were not ready", "stream", c.Name, "error", err)
		if pause(ctx, retry) != nil {
			return c, fmt.Errorf("create stream %s: %w", c.Name, err)
		}
	}
}

// suits returns an error that names the setting in which an existing stream differs from the wanted
// one. An operator or another program may have created or changed the stream.
func suits(want, got jetstream.StreamConfig) error {
	switch {
	case got.Replicas < want.Replicas:
		return fmt.Errorf("it has %d replicas, want %d: add replicas (nats stream edit) or configure fewer", got.Replicas, want.Replicas)
	case got.MaxAge > 0:
		return fmt.Errorf("max_age is %v: it would delete entries that were not trimmed", got.MaxAge)
	case got.Discard != want.Discard:
		return errors.New("discard is not new: it would delete entries that were not trimmed")
	case got.MaxMsgs > 0, max(got.MaxMsgsPerSubject, 0) != max(want.MaxMsgsPerSubject, 0):
		return fmt.Errorf("max_msgs is %d and max_msgs_per_subject is %d: it would delete entries that were not trimmed", got.MaxMsgs, got.MaxMsgsPerSubject)
	case got.Retention != want.Retention:
		return errors.New("retention is not limits: it would delete entries that were read")
	case want.AllowAtomicPublish && !got.AllowAtomicPublish:
		return errors.New("allow_atomic is off: several messages cannot be written as one")
	case want.AllowMsgTTL && !got.AllowMsgTTL:
		return errors.New("allow_msg_ttl is off: deletion markers would never expire")
	case want.AllowDirect && !got.AllowDirect:
		return errors.New("allow_direct is off: nothing could be read")
	case got.Sealed, got.DenyPurge:
		return errors.New("it is sealed or denies purges: nothing could be deleted")
	}
	return nil
}

// final reports whether another attempt would fail with the same error.
func final(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return errors.Is(err, jetstream.ErrJetStreamNotEnabled)
	}
	// These errors are temporary: another node created the stream at the same moment, or the
	// cluster is still forming.
	const exists, noPeers, notEnough = 10058, 10005, 10023
	return api.Code == 400 && api.ErrorCode != exists && api.ErrorCode != noPeers && api.ErrorCode != notEnough
}

// pause waits for d, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
