package jetstream

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
)

// Keys in the metadata of JetStream streams. The format and the number of shards are in the metadata
// of the stream of documents, and are written when the store is created. The identity of the store is
// in the metadata of all its streams. A store whose number of shards has grown since has the format
// grown: see generations.go.
const (
	formatKey = "weir-format"
	shardsKey = "weir-shards"
	storeKey  = "weir-store"

	format = 1
	grown  = 2
)

const (
	// retry is the pause before the engine repeats a request to servers that were not ready.
	retry = 200 * time.Millisecond
	// attempt is the timeout of one request. Without it, the engine would not notice that a request
	// or its answer got lost.
	attempt = 2 * time.Second
	// missingFor is how long servers must say that a stream of the store does not exist before the
	// engine believes it. While a cluster is forming, a server may not know all streams.
	missingFor = 3 * time.Second
	// readWithin is how long a replica may take to answer a read before the engine asks the leader
	// instead. A replica may hang without any other server noticing it.
	readWithin = time.Second
)

// docsStream returns the name of the stream of documents, and docsSubject the prefix of its subjects.
func (e *Engine) docsStream() string  { return "KV_" + e.opts.Name + "-docs" }
func (e *Engine) docsSubject() string { return "$KV." + e.opts.Name + "-docs." }

// logStream returns the name of the stream of a shard, and logPrefix the prefix of its subjects.
func (e *Engine) logStream(i int) string { return fmt.Sprintf("%s-log-%d", e.opts.Name, i) }
func (e *Engine) logPrefix(i int) string { return fmt.Sprintf("%s.log.%d.", e.opts.Name, i) }

// ensureStreams creates missing streams and returns the layout, without the shards. It creates the
// stream of documents first. The metadata of this stream determines the first number of shards. If
// two nodes start at the same time, only one of them can create the stream, so both use the same
// number.
//
// A missing stream of a store that was in use is never created again, because an empty stream would
// look as if no data had ever been stored: sequences and ids of logs would be used twice. The
// stream of documents must not be created while a shard exists. A node that opens the store first
// makes sure that all shards exist, and then stores a fence (an empty message) in the stream of
// documents. So once that stream has had a message, a missing shard must not be created: it existed
// and was lost.
func (e *Engine) ensureStreams(ctx context.Context) (*layout, error) {
	docs := jetstream.StreamConfig{
		Name: e.docsStream(), Description: "documents of weir", Subjects: []string{e.docsSubject() + ">"},
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DenyDelete: true, AllowRollup: true,
		Metadata: map[string]string{formatKey: strconv.Itoa(format), shardsKey: strconv.Itoa(e.opts.Shards), storeKey: rand.Text()},
	}
	info, err := e.stream(ctx, docs, e.hasShards)
	if err != nil {
		return nil, err
	}
	got := info.Config
	all, err := e.readFormat(ctx, got)
	if err != nil {
		return nil, err
	}
	adopt := got.Metadata[storeKey] == ""
	if adopt {
		got.Metadata[storeKey] = adopted(info)
	}
	for i := range all.count() {
		part, err := e.stream(ctx, e.shardConfig(i, got.Metadata[storeKey]), func(context.Context) error {
			if info.State.LastSeq > 0 {
				return fmt.Errorf("it belongs to the store %s, which was in use: restore the stream from a backup", e.opts.Name)
			}
			return nil
		})
		if err == nil {
			err = e.identify(ctx, part.Config, got.Metadata[storeKey], adopt)
		}
		if err != nil {
			return nil, err
		}
	}
	if adopt {
		if err := e.mark(ctx, got); err != nil {
			return nil, err
		}
		e.opts.Logger.Info("the store got an identity", "store", e.opts.Name, "identity", got.Metadata[storeKey])
	}
	return all, nil
}

// readFormat returns the layout of an existing store, without the shards. The parameter docs is the
// settings of the stream of documents.
func (e *Engine) readFormat(ctx context.Context, docs jetstream.StreamConfig) (*layout, error) {
	f, err := strconv.Atoi(docs.Metadata[formatKey])
	switch {
	case err != nil || f < format:
		return nil, fmt.Errorf("stream %s has format %q, this program reads formats up to %d", docs.Name, docs.Metadata[formatKey], e.opts.format)
	case f > int(e.opts.format):
		return nil, fmt.Errorf("%w: stream %s has format %d, this program reads formats up to %d", engine.ErrTooNew, docs.Name, f, e.opts.format)
	}
	n, err := strconv.Atoi(docs.Metadata[shardsKey])
	if err != nil || n < 1 || n > MaxShards {
		return nil, fmt.Errorf("stream %s: invalid number of shards %q in its metadata", docs.Name, docs.Metadata[shardsKey])
	}
	if f < grown {
		return &layout{generations: []generation{{0, n}}}, nil
	}
	return e.readGenerations(ctx, n)
}

// shardConfig returns the settings of the stream of a shard.
func (e *Engine) shardConfig(i int, identity string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: e.logStream(i), Description: "logs of weir", Subjects: []string{e.logPrefix(i) + "*"}, Discard: jetstream.DiscardNew, DenyDelete: true,
		AllowAtomicPublish: true, Metadata: map[string]string{storeKey: identity},
	}
}

// adopted returns the identity for a store that an earlier version created without an identity. It
// depends only on the stream of documents, so nodes that start at the same time choose the same
// identity.
func adopted(docs *jetstream.StreamInfo) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", docs.Config.Name, docs.Created.UnixNano()))
	return hex.EncodeToString(sum[:13])
}

// identify checks that a shard belongs to the store with this identity. If adopt is true (an
// earlier version created the store without an identity), and the shard has no identity yet,
// identify writes the identity to the shard.
func (e *Engine) identify(ctx context.Context, shard jetstream.StreamConfig, identity string, adopt bool) error {
	switch has := shard.Metadata[storeKey]; {
	case has == identity:
		return nil
	case has != "" || !adopt:
		return fmt.Errorf("stream %s belongs to another store: its identity is %q, that of the documents is %q", shard.Name, has, identity)
	}
	if shard.Metadata == nil {
		shard.Metadata = map[string]string{}
	}
	shard.Metadata[storeKey] = identity
	return e.mark(ctx, shard)
}

// mark stores the changed metadata of a stream.
func (e *Engine) mark(ctx context.Context, c jetstream.StreamConfig) error {
	_, err := withRetry(ctx, e, func(ctx context.Context) (bool, error) { return true, e.servers.Update(ctx, c) })
	if err != nil {
		return fmt.Errorf("write the identity of the store into stream %s: %w", c.Name, err)
	}
	return nil
}

// hasShards returns an error if a shard exists.
func (e *Engine) hasShards(ctx context.Context) error {
	names, err := e.servers.Names(ctx, e.opts.Name+".log.>")
	if len(names) > 0 {
		return fmt.Errorf("it holds the documents of the store %s, which is not new, because its stream %s exists: restore the missing stream from a backup", e.opts.Name, names[0])
	}
	return err
}

// stream creates a JetStream stream, or returns the existing one. While a cluster is forming, its
// servers cannot create streams, so the method tries again until ctx ends. Before it creates the
// stream, it calls mayCreate, which returns an error if the stream must exist already.
func (e *Engine) stream(ctx context.Context, c jetstream.StreamConfig, mayCreate func(context.Context) error) (*jetstream.StreamInfo, error) {
	c.Storage, c.Replicas = jetstream.FileStorage, e.opts.Replicas
	c.AllowDirect, c.AllowMsgTTL = true, true
	var missing time.Time // when a server first said that the stream, which must exist, is missing
	for {
		try, cancel := context.WithTimeout(ctx, e.apart(attempt))
		info, err := e.servers.Stream(try, c.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			if err = mayCreate(try); err == nil {
				info, err = e.servers.Create(try, c)
			} else if missing.IsZero() {
				missing = time.Now()
			}
		}
		cancel()
		switch {
		case err != nil && !missing.IsZero() && time.Since(missing) > missingFor:
			return nil, fmt.Errorf("stream %s is missing: %w", c.Name, err)
		case err == nil:
			got := info.Config
			if got.PersistMode == jetstream.AsyncPersistMode || got.Storage != jetstream.FileStorage {
				return nil, fmt.Errorf("stream %s does not sync before it acknowledges: a power cut could undo acknowledged writes", c.Name)
			}
			if err := suits(c, got); err != nil {
				return nil, fmt.Errorf("stream %s: %w", c.Name, err)
			}
			return info, nil
		case final(err) || ctx.Err() != nil:
			return nil, fmt.Errorf("create stream %s: %w", c.Name, err)
		}
		e.opts.Logger.Debug("servers were not ready", "stream", c.Name, "error", err)
		if e.pause(ctx, retry) != nil {
			return nil, fmt.Errorf("create stream %s: %w", c.Name, err)
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
		return errors.New(`discard must be "new": otherwise the stream would delete entries that were not trimmed`)
	case got.MaxMsgs > 0, max(got.MaxMsgsPerSubject, 0) != max(want.MaxMsgsPerSubject, 0):
		return fmt.Errorf("max_msgs is %d and max_msgs_per_subject is %d: it would delete entries that were not trimmed", got.MaxMsgs, got.MaxMsgsPerSubject)
	case got.Retention != want.Retention:
		return errors.New(`retention must be "limits": otherwise the stream would delete entries after they were read`)
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

// apart returns a duration that is up to a millisecond longer than d, and differs from the results of
// the calls before. Goroutines that fail together then do not all try again at the same time.
func (e *Engine) apart(d time.Duration) time.Duration {
	return d + time.Duration(e.waits.Add(1)%1021)*time.Microsecond
}

// patience returns Patience, or up to a millisecond less, so that goroutines that wait for the same
// thing do not all give up at the same time.
func (e *Engine) patience() time.Duration {
	return e.opts.Patience - time.Duration(e.waits.Add(1)%1021)*time.Microsecond
}

// pause waits for about d, unless ctx ends first.
func (e *Engine) pause(ctx context.Context, d time.Duration) error { return pause(ctx, e.apart(d)) }

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
