package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// What the stream of documents remembers of the store, since its first start.
const (
	formatKey = "weir-format"
	shardsKey = "weir-shards"

	format = "1"
)

const (
	// retry is how soon something is tried again that servers could not do yet.
	retry = 200 * time.Millisecond
	// attempt is how long one answer is waited for: that a question or its answer was lost is not noticed otherwise.
	attempt = 2 * time.Second
	// readWithin is how long any replica may take to answer, which may stand still without anybody knowing, before the leader
	// is asked.
	readWithin = time.Second
)

// furnish makes the streams that are missing and returns the number of shards. The stream of documents comes first, and
// what it says holds: two processes that start at once agree on it, because only one of them makes it.
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
		return 0, fmt.Errorf("stream %s has the format %q, this program reads %q", docs.Name, f, format)
	}
	n, err := strconv.Atoi(got.Metadata[shardsKey])
	if err != nil || n < 1 || n > MaxShards {
		return 0, fmt.Errorf("stream %s says that there are %q shards", docs.Name, got.Metadata[shardsKey])
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

// stream makes a stream, or returns the configuration of the one that there is. While a cluster forms, its servers cannot
// do it yet: it is tried again until the context ends.
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
				return got, fmt.Errorf("stream %s is not kept on disk at once: it would acknowledge what a power cut undoes", c.Name)
			}
			if err := suits(c, got); err != nil {
				return got, fmt.Errorf("stream %s: %w", c.Name, err)
			}
			return got, nil
		case final(err) || ctx.Err() != nil:
			return c, fmt.Errorf("make stream %s: %w", c.Name, err)
		}
		e.opts.Logger.Debug("servers are not ready yet", "stream", c.Name, "error", err)
		if pause(ctx, retry) != nil {
			return c, fmt.Errorf("make stream %s: %w", c.Name, err)
		}
	}
}

// suits tells what a stream lacks of what is wanted: somebody else may have made it, or changed it since.
func suits(want, got jetstream.StreamConfig) error {
	switch {
	case got.Replicas < want.Replicas:
		return fmt.Errorf("it has %d replicas, and %d are wanted: add some (nats stream edit), or ask for as many as there are", got.Replicas, want.Replicas)
	case got.MaxAge > 0:
		return fmt.Errorf("max_age is %v: it would forget what nobody trimmed", got.MaxAge)
	case got.Discard != want.Discard:
		return errors.New("discard is not new: it would forget what nobody trimmed")
	case got.MaxMsgs > 0, max(got.MaxMsgsPerSubject, 0) != max(want.MaxMsgsPerSubject, 0):
		return fmt.Errorf("max_msgs is %d and max_msgs_per_subject %d: it would forget what nobody trimmed", got.MaxMsgs, got.MaxMsgsPerSubject)
	case got.Retention != want.Retention:
		return errors.New("retention is not limits: it would forget what was read")
	case want.AllowAtomicPublish && !got.AllowAtomicPublish:
		return errors.New("allow_atomic is off: batches cannot be written as one")
	case want.AllowMsgTTL && !got.AllowMsgTTL:
		return errors.New("allow_msg_ttl is off: marks of deletions would stay for good")
	case want.AllowDirect && !got.AllowDirect:
		return errors.New("allow_direct is off: nothing could be read")
	case got.Sealed, got.DenyPurge:
		return errors.New("it is sealed, or denies purges: nothing could be given up")
	}
	return nil
}

// final tells whether trying again cannot help.
func final(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return errors.Is(err, jetstream.ErrJetStreamNotEnabled)
	}
	const exists, noPeers, notEnough = 10058, 10005, 10023
	return api.Code == 400 && api.ErrorCode != exists && api.ErrorCode != noPeers && api.ErrorCode != notEnough
}

// pause waits, unless the context ends first.
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
