package jetstream

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/embedded"
	"weir/internal/engine/jetstream/record"
	"weir/internal/engine/jetstream/streams"
	"weir/internal/engine/jetstream/wire"
)

// createFilled creates a store with one log of three entries, and closes it.
func createFilled(t *testing.T, s *embedded.Server, name string) engine.LogID {
	t.Helper()
	e := node(t, s, Options{Name: name, Shards: 2, Patience: time.Minute})
	doc, err := e.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	l, _ := openUnattended(t, e, doc.Created)
	put(t, l, "1", "2", "3")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return doc.Created
}

// manager returns the interface that an operator's tools use.
func manager(t *testing.T, s *embedded.Server) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// setMetadata changes one value in the metadata of a stream. It removes the value if the new one is
// empty.
func setMetadata(t *testing.T, js jetstream.JetStream, stream, key, value string) {
	t.Helper()
	c := settingsOf(t, js, stream)
	if c.Metadata[key] = value; value == "" {
		delete(c.Metadata, key)
	}
	if _, err := js.UpdateStream(ctx, c); err != nil {
		t.Fatal(err)
	}
}

// again deletes a stream and creates it again with the same settings and metadata.
func again(t *testing.T, js jetstream.JetStream, stream string) {
	t.Helper()
	c := settingsOf(t, js, stream)
	if err := js.DeleteStream(ctx, stream); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(ctx, c); err != nil {
		t.Fatal(err)
	}
}

func settingsOf(t *testing.T, js jetstream.JetStream, stream string) jetstream.StreamConfig {
	t.Helper()
	info, err := js.Stream(ctx, stream)
	if err != nil {
		t.Fatal(err)
	}
	return info.CachedInfo().Config
}

// If a JetStream stream of a store was deleted, or belongs to another store, the store does not
// open. The error names the stream. No stream is created.
func TestMissingPart(t *testing.T) {
	for name, c := range map[string]struct {
		harm  func(t *testing.T, js jetstream.JetStream, store string)
		fault string
	}{
		"missing shard": {func(t *testing.T, js jetstream.JetStream, store string) {
			if err := js.DeleteStream(ctx, store+"-log-1"); err != nil {
				t.Fatal(err)
			}
		}, "stream %s-log-1 is missing"},
		"missing documents": {func(t *testing.T, js jetstream.JetStream, store string) {
			if err := js.DeleteStream(ctx, "KV_"+store+"-docs"); err != nil {
				t.Fatal(err)
			}
		}, "stream KV_%s-docs is missing"},
		"shard created again with the same metadata": {func(t *testing.T, js jetstream.JetStream, store string) {
			again(t, js, store+"-log-1")
		}, "stream %s-log-1: it was created again or purged"},
		"documents created again with the same metadata": {func(t *testing.T, js jetstream.JetStream, store string) {
			again(t, js, "KV_"+store+"-docs")
		}, "stream KV_%s-docs: it was created again or purged"},
		"purged shard": {func(t *testing.T, js jetstream.JetStream, store string) {
			s, err := js.Stream(ctx, store+"-log-0")
			if err == nil {
				err = s.Purge(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, "stream %s-log-0: it was created again or purged"},
		"shard of another store": {func(t *testing.T, js jetstream.JetStream, store string) {
			setMetadata(t, js, store+"-log-0", "weir-store", "another")
		}, "stream %s-log-0 belongs to another store"},
		"shard without an identity": {func(t *testing.T, js jetstream.JetStream, store string) {
			setMetadata(t, js, store+"-log-0", "weir-store", "")
		}, "stream %s-log-0 belongs to another store"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the test mostly waits
			s := server(t, quickDir(t))
			t.Cleanup(s.Stop)
			createFilled(t, s, "store")
			js := manager(t, s)
			c.harm(t, js, "store")
			var before []string
			for name := range js.StreamNames(ctx).Name() {
				before = append(before, name)
			}
			e, err := Open(ctx, connect(t, s), Options{Name: "store", Shards: 2, Patience: time.Minute})
			if err == nil {
				e.Close()
			}
			if want := fmt.Sprintf(c.fault, "store"); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("open: %v, want %q", err, want)
			}
			after := 0
			for range js.StreamNames(ctx).Name() {
				after++
			}
			if after != len(before) {
				t.Errorf("there are %d streams, want the same as before: %q", after, before)
			}
		})
	}
}

// A shard is deleted and created again while a node runs. The node does not take the new shard for
// the old one: it neither appends to a log nor opens one as if it were empty.
func TestShardCreatedAgainWhileRunning(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	e := node(t, s, Options{Name: "store", Shards: 1, Patience: time.Minute})
	doc, err := e.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	l, _ := openUnattended(t, e, doc.Created)
	put(t, l, "1", "2", "3")
	again(t, manager(t, s), "store-log-0")
	if err := l.Append(ctx, text("4")); err == nil {
		t.Error("the node appended to a shard that was created again")
	}
	l.Close()
	if l, err := e.Open(ctx, doc.Created, &follower{}); !errors.Is(err, engine.ErrDamaged) {
		t.Errorf("open a log of a shard that was created again: %v, want ErrDamaged", err)
		if err == nil {
			l.Close()
		}
	}
}

// A start that was interrupted before all shards existed is completed by the next start.
func TestInterruptedFirstStart(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	servers, err := wire.Connect(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	client := &wire.Client{Servers: servers, Patience: time.Minute, Attempt: time.Minute, Life: ctx}
	store := streams.New(client, streams.Options{Name: "store", Replicas: 1, Shards: 2, Format: streams.Grown, Logger: slog.New(slog.DiscardHandler)})
	if _, err := store.Ensure(ctx); err != nil {
		t.Fatal(err)
	}
	if err := manager(t, s).DeleteStream(ctx, "store-log-1"); err != nil {
		t.Fatal(err)
	}
	createFilled(t, s, "store")
}

// A store of an earlier version, whose streams have no identity, gets one when it is opened. Its
// data stays readable.
func TestAdopt(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	id := createFilled(t, s, "store")
	js := manager(t, s)
	streams := []string{"KV_store-docs", "store-log-0", "store-log-1"}
	for _, stream := range streams {
		setMetadata(t, js, stream, "weir-store", "")
	}
	setMetadata(t, js, streams[0], "weir-marked", "")
	for range 2 {
		e := node(t, s, Options{Name: "store", Shards: 2, Patience: time.Minute})
		l, _ := openUnattended(t, e, id)
		if got := payloads(t, l); len(got) != 3 {
			t.Errorf("the log has %q, want 3 entries", got)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		identity := settingsOf(t, js, streams[0]).Metadata["weir-store"]
		for _, stream := range streams {
			if got := settingsOf(t, js, stream).Metadata["weir-store"]; got == "" || got != identity {
				t.Errorf("stream %s has the identity %q, the documents have %q", stream, got, identity)
			}
		}
	}
}

// If the first messages of a log were purged although no trim removed them, the log is damaged.
func TestPurgedByHand(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	e := node(t, s, Options{Name: "store", Shards: 1, Patience: time.Minute})
	for _, trimmed := range []bool{false, true} {
		t.Run(fmt.Sprint("trimmed ", trimmed), func(t *testing.T) {
			doc, err := e.Create(ctx, t.Name(), nil)
			if err != nil {
				t.Fatal(err)
			}
			reopen := func() (*log, *follower, error) {
				judge := &follower{}
				l, err := e.Open(ctx, doc.Created, judge)
				if err != nil {
					return nil, nil, err
				}
				return l.(*log), judge, nil
			}
			l, judge, err := reopen()
			if err != nil {
				t.Fatal(err)
			}
			put(t, l, "0", "1", "2", "3")
			if trimmed {
				judge.low = 1
				if err := l.Trim(ctx, 1, nil); err != nil {
					t.Fatal(err)
				}
				l.mu.Lock()
				floor := l.index.bottom()
				l.mu.Unlock()
				l.purge(floor)
				put(t, l, "4")
			}
			second := l.index.entries[1].js
			l.Close()
			if l, _, err = reopen(); err != nil {
				t.Fatalf("open the undamaged log: %v", err)
			}
			l.Close()
			if err := e.client.Clear(ctx, l.shard.Stream, l.subject, second); err != nil {
				t.Fatal(err)
			}
			if l, _, err = reopen(); !errors.Is(err, engine.ErrDamaged) {
				t.Errorf("open the log whose first message was purged: %v, want ErrDamaged", err)
			}
			if err == nil {
				l.Close()
			}
		})
	}
}

// The engine removes a log without a document only if the document was deleted while this process
// was running. Otherwise the documents may have been restored from an older backup.
func TestKeepOrphansOfRestore(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	e := node(t, s, Options{Name: "store", Patience: time.Minute})
	// A log without a document, as if the documents had been restored to a state before the document
	// was created.
	const id = engine.LogID(1000)
	sh := e.shard(id)
	m := &nats.Msg{Subject: sh.subject(id), Header: record.Header(record.Record{Position: 1, Parts: 1, Header: engine.Header{Kind: engine.Batch}})}
	if _, err := e.client.Publish(ctx, []*nats.Msg{m}); err != nil {
		t.Fatal(err)
	}
	if err := e.orphans(ctx); err != nil {
		t.Fatal(err)
	}
	all, err := sh.Records(ctx, sh.subject(id), 1, 0)
	if err != nil || len(all) != 1 {
		t.Errorf("the log has %d records, %v; want 1", len(all), err)
	}
}
