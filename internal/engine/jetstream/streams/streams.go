// Package streams manages the JetStream streams of a store: their names and settings, the number of
// shards, and the identity and markers that prove that a stream belongs to the store and was not
// created anew.
package streams

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/wire"
)

// Keys in the metadata of JetStream streams. The format and the number of shards are in the metadata
// of the stream of documents, and are written when the store is created. The identity of the store is
// in the metadata of all its streams. A store whose number of shards has grown since has the format
// Grown: see generations.go.
const (
	formatKey = "weir-format"
	shardsKey = "weir-shards"
	storeKey  = "weir-store"

	format = 1
	Grown  = 2
)

// A shard is a JetStream stream that holds a share of the logs. DefaultShards is small on purpose:
// writes to the same shard are synced together, and every shard costs something on its replicas and
// on every node. A cluster of many servers needs more shards, at most MaxShards.
const (
	DefaultShards = 4
	MaxShards     = 1024
)

// missingFor is how long servers must say that a stream of the store does not exist before the
// engine believes it. While a cluster is forming, a server may not know all streams.
const missingFor = 3 * time.Second

// Options describe a store.
type Options struct {
	Name     string // prefix of the streams and subjects
	Replicas int    // number of copies of each stream that is created
	Shards   int    // number of shards of a store that is created
	Format   uint32 // newest format of a store that this program reads
	Logger   *slog.Logger
}

// Streams are the JetStream streams of a store.
type Streams struct {
	Options
	client *wire.Client
}

// New returns the streams of a store. It asks the servers nothing.
func New(c *wire.Client, o Options) *Streams { return &Streams{o, c} }

// Docs returns the name of the stream of documents, and the prefix of its subjects.
func (s *Streams) Docs() (stream, prefix string) {
	return "KV_" + s.Name + "-docs", "$KV." + s.Name + "-docs."
}

// Shard returns the name of the stream of a shard, and the prefix of its subjects.
func (s *Streams) Shard(i int) (stream, prefix string) {
	return fmt.Sprintf("%s-log-%d", s.Name, i), fmt.Sprintf("%s.log.%d.", s.Name, i)
}

// Ensure creates missing streams and returns the generations of shards. It creates the stream of
// documents first. The metadata of this stream determines the initial number of shards. If
// two nodes start at the same time, only one of them can create the stream, so both use the same
// number.
//
// A missing stream of a store that was in use is never created again, because an empty stream would
// look as if no data had ever been stored: sequences and ids of logs would be used twice. The
// stream of documents must not be created while a shard exists. To open the store, a node makes
// sure that all shards exist, and only then stores a fence (an empty message) in the stream of
// documents. So once that stream has had a message, a missing shard must not be created: it existed
// and was lost.
func (s *Streams) Ensure(ctx context.Context) (*Generations, error) {
	stream, prefix := s.Docs()
	docs := jetstream.StreamConfig{
		Name: stream, Description: "documents of weir", Subjects: []string{prefix + ">"},
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DenyDelete: true, AllowRollup: true,
		Metadata: map[string]string{formatKey: strconv.Itoa(format), shardsKey: strconv.Itoa(s.Shards), storeKey: rand.Text()},
	}
	info, err := s.stream(ctx, docs, s.hasShards)
	if err != nil {
		return nil, err
	}
	got := info.Config
	all, err := s.readFormat(ctx, got)
	if err != nil {
		return nil, err
	}
	adopt := got.Metadata[storeKey] == ""
	if adopt {
		got.Metadata[storeKey] = adopted(info)
	}
	for i := range all.Count() {
		part, err := s.stream(ctx, s.shardConfig(i, got.Metadata[storeKey]), func(context.Context) error {
			if info.State.LastSeq > 0 {
				return fmt.Errorf("it belongs to the store %s, which was in use: restore the stream from a backup", s.Name)
			}
			return nil
		})
		if err == nil {
			err = s.identify(ctx, part.Config, got.Metadata[storeKey], adopt)
		}
		if err != nil {
			return nil, err
		}
	}
	if adopt {
		if err := s.mark(ctx, got); err != nil {
			return nil, err
		}
		s.Logger.Info("the store got an identity", "store", s.Name, "identity", got.Metadata[storeKey])
	}
	return all, nil
}

// readFormat returns the generations of an existing store. The parameter docs is the settings of the
// stream of documents.
func (s *Streams) readFormat(ctx context.Context, docs jetstream.StreamConfig) (*Generations, error) {
	f, err := strconv.Atoi(docs.Metadata[formatKey])
	switch {
	case err != nil || f < format:
		return nil, fmt.Errorf("stream %s has format %q, this program reads formats up to %d", docs.Name, docs.Metadata[formatKey], s.Format)
	case f > int(s.Format):
		return nil, fmt.Errorf("%w: stream %s has format %d, this program reads formats up to %d", engine.ErrTooNew, docs.Name, f, s.Format)
	}
	n, err := strconv.Atoi(docs.Metadata[shardsKey])
	if err != nil || n < 1 || n > MaxShards {
		return nil, fmt.Errorf("stream %s: invalid number of shards %q in its metadata", docs.Name, docs.Metadata[shardsKey])
	}
	if f < Grown {
		return &Generations{all: []generation{{0, n}}}, nil
	}
	return s.readGenerations(ctx, n)
}

// shardConfig returns the settings of the stream of a shard.
func (s *Streams) shardConfig(i int, identity string) jetstream.StreamConfig {
	stream, prefix := s.Shard(i)
	return jetstream.StreamConfig{
		Name: stream, Description: "logs of weir", Subjects: []string{prefix + "*"}, Discard: jetstream.DiscardNew, DenyDelete: true,
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
func (s *Streams) identify(ctx context.Context, shard jetstream.StreamConfig, identity string, adopt bool) error {
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
	return s.mark(ctx, shard)
}

// mark stores the changed metadata of a stream.
func (s *Streams) mark(ctx context.Context, c jetstream.StreamConfig) error {
	_, err := wire.Ask(ctx, s.client, func(ctx context.Context) (bool, error) { return true, s.client.Update(ctx, c) })
	if err != nil {
		return fmt.Errorf("write the identity of the store into stream %s: %w", c.Name, err)
	}
	return nil
}

// hasShards returns an error if a shard exists.
func (s *Streams) hasShards(ctx context.Context) error {
	names, err := s.client.Names(ctx, s.Name+".log.>")
	if len(names) > 0 {
		return fmt.Errorf("it held the documents of the store %s, whose stream %s still exists: restore the missing stream from a backup", s.Name, names[0])
	}
	return err
}

// stream creates a JetStream stream, or returns the existing one. While a cluster is forming, its
// servers cannot create streams, so the method tries again until ctx ends. Before it creates the
// stream, it calls mayCreate, which returns an error if the stream must exist already.
func (s *Streams) stream(ctx context.Context, c jetstream.StreamConfig, mayCreate func(context.Context) error) (*jetstream.StreamInfo, error) {
	c.Storage, c.Replicas = jetstream.FileStorage, s.Replicas
	c.AllowDirect, c.AllowMsgTTL = true, true
	var missing time.Time // when a server first said that the stream, which must exist, is missing
	for {
		try, cancel := context.WithTimeout(ctx, s.client.Apart(wire.Timeout))
		info, err := s.client.Stream(try, c.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			if err = mayCreate(try); err == nil {
				info, err = s.client.Create(try, c)
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
		s.Logger.Debug("servers were not ready", "stream", c.Name, "error", err)
		if s.client.Pause(ctx, wire.Retry) != nil {
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
