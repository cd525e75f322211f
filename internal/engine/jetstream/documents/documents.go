// Package documents keeps the documents of a store in a key-value bucket of JetStream, and a copy of
// them in memory on every node.
package documents

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tidwall/btree"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/line"
	"weir/internal/engine/jetstream/wire"
)

// Options connect the documents with the rest of the engine.
type Options struct {
	Stream, Prefix string        // the stream of documents, and the common prefix of its subjects
	Silence        time.Duration // see line.Options; default maxSilence
	Logger         *slog.Logger
	Full           func() bool // see line.Options
	// Admits returns an error if there is no space for a document of this many bytes.
	Admits func(ctx context.Context, bytes int) error
	// Usable returns an error if the engine is closed or ctx has ended.
	Usable func(ctx context.Context) error
	// Background runs f, and Close waits until f returns. If the engine is closed, Background returns
	// false and does not run f.
	Background func(f func()) bool
	// Own maps the last part of a subject to the function that receives the messages of that subject.
	// These messages are not documents, and the last part is not the key of a document.
	Own map[string]func(m wire.Stored)
	// Deleted is called when this node learns that the document of a log was deleted. The watchers
	// are called first. End ends the log on all nodes.
	Deleted func(id engine.LogID)
	End     func(id engine.LogID) error
}

// Documents is a key-value bucket of JetStream and a copy of the bucket in memory. The line keeps
// the copy up to date: it subscribes to the bucket and delivers every change. The revision of a
// document is the JetStream sequence of its last message. JetStream never reuses a sequence.
type Documents struct {
	Options
	client *wire.Client
	line   *line.Line

	// telling is held while the copy changes and the watchers receive the change. So
	// a new watcher gets each change exactly once: as part of the copy or as a later change. If both
	// locks are needed, telling is locked before mu.
	telling  sync.Mutex
	watchers []func(engine.Change)

	mu    sync.Mutex
	byKey btree.Map[string, engine.Document]
	byLog btree.Map[engine.LogID, string] // not a Go map, which would stay as large as it ever was
	// deleted has the logs whose documents were deleted while this process was running, with the
	// time of the deletion.
	deleted btree.Map[engine.LogID, time.Time]
	seen    map[string]struct{} // keys found so far while the whole bucket is read again; nil otherwise
}

const (
	operation = "KV-Operation" // header field that marks a deletion, as in every key-value bucket
	// createdAt is the header field with the revision at which the document was created. A message
	// without this field created the document, so its own sequence is that revision.
	createdAt = "Weir-Created"
	expiry    = "Weir-Expired" // header field of a deletion by Expire

	// MarkerLife is how long servers keep the marker of a deletion. A node that receives nothing
	// from the servers for maxSilence may have missed a deletion, and reads the whole bucket again.
	// maxSilence is half of MarkerLife, so there is enough time to read the bucket.
	MarkerLife = "1h"
	maxSilence = 30 * time.Minute
)

// New returns the documents, with an empty copy. Begin fills the copy.
func New(c *wire.Client, o Options) *Documents {
	d := &Documents{Options: o, client: c}
	d.line = line.New(c, 0, line.Options{
		Stream: o.Stream, Fence: o.Prefix + noKey, Take: d.take, Reread: d.reread, Silence: cmp.Or(o.Silence, maxSilence), Full: o.Full, Logger: o.Logger,
	})
	return d
}

// Begin starts to follow the bucket and returns when all existing documents are known.
func (d *Documents) Begin(ctx context.Context) error {
	d.line.Listen()
	for { // tries again while the servers do not answer, because other nodes may still be starting
		err := d.Sync(ctx)
		if !errors.Is(err, engine.ErrUnavailable) || d.client.Pause(ctx, wire.Retry) != nil {
			return err
		}
	}
}

// Sync returns when the copy has everything that was acknowledged to any client before the call.
// Unlike CatchUp, it can be called while the engine is being closed.
func (d *Documents) Sync(ctx context.Context) error { return d.line.CatchUp(ctx) }

// Unproven returns how long ago the copy was last proved to be up to date.
func (d *Documents) Unproven() time.Duration { return d.line.Unproven() }

// Certain reports whether the copy is certain to have missed no deletion.
func (d *Documents) Certain() bool { return d.line.Certain() }

// Stop makes the copy stop following the bucket until Begin is called again.
func (d *Documents) Stop() { <-d.line.Stop() }

// Quit ends the line that keeps the copy up to date.
func (d *Documents) Quit() { d.line.End() }

// noKey is not the key of any document, because ~ does not occur in base64url. It is part of the
// subject of fences, which are empty messages that a node stores only to learn the current end of
// the stream.
const noKey = "~"

// reread starts to record which documents exist, while the line reads the whole bucket again. The
// returned function removes from the copy all documents that were not recorded, as if their
// deletions had been delivered.
func (d *Documents) reread() (end func()) {
	d.mu.Lock()
	d.seen = map[string]struct{}{}
	d.mu.Unlock()
	return func() {
		d.mu.Lock()
		seen := d.seen
		d.seen = nil
		var gone []engine.Document
		d.byKey.Scan(func(key string, doc engine.Document) bool {
			if _, ok := seen[key]; !ok {
				gone = append(gone, doc)
			}
			return true
		})
		d.mu.Unlock()
		for _, doc := range gone {
			doc.Value, doc.Revision = nil, doc.Revision+1 // a stand-in, because the revision of the deletion is unknown
			d.follow(engine.Change{Document: doc, Deleted: true})
		}
	}
}

// take handles one message of the bucket.
func (d *Documents) take(m wire.Stored) {
	name := strings.TrimPrefix(m.Subject, d.Prefix)
	if own := d.Own[name]; own != nil {
		own(m)
		return
	}
	key, ok := d.keyOf(m.Subject)
	if !ok {
		return
	}
	change := engine.Change{Document: document(key, m.Header, m.Data, m.Seq), Deleted: m.Header.Get(operation) != "", Expired: m.Header.Get(expiry) != ""}
	if change.Deleted {
		change.Value, change.Created = nil, 0
	}
	d.mu.Lock()
	before, had := d.byKey.Get(change.Key)
	// While the whole bucket is read again, unchanged documents are not reported a second time.
	known := d.seen != nil && had && before.Revision == change.Revision
	if d.seen != nil && !change.Deleted {
		d.seen[change.Key] = struct{}{}
	}
	d.mu.Unlock()
	if !known {
		d.follow(change)
	}
}

// follow applies a change to the copy and passes it to the watchers. Then, if the document was
// deleted, or deleted and created again, follow drops the log of the old document.
func (d *Documents) follow(change engine.Change) {
	d.telling.Lock()
	defer d.telling.Unlock()
	d.mu.Lock()
	before, had := d.byKey.Get(change.Key)
	if change.Deleted {
		change.Created = before.Created
		d.byKey.Delete(change.Key)
	} else {
		d.byKey.Set(change.Key, change.Document)
		d.byLog.Set(change.Created, change.Key)
		had = had && change.Created != before.Created
	}
	if had {
		d.byLog.Delete(before.Created)
		d.deleted.Set(before.Created, time.Now())
	}
	d.mu.Unlock()
	for _, visit := range d.watchers {
		visit(change)
	}
	if had {
		d.Deleted(before.Created)
	}
}

// Watch implements engine.Documents.
func (d *Documents) Watch(ctx context.Context, of engine.Prefixes, visit func(engine.Change)) error {
	if err := d.CatchUp(ctx); err != nil {
		return err
	}
	visit = of.Only(visit)
	d.telling.Lock()
	defer d.telling.Unlock()
	d.mu.Lock()
	docs := d.byKey.Values()
	d.mu.Unlock()
	slices.SortFunc(docs, func(a, b engine.Document) int { return cmp.Compare(a.Revision, b.Revision) })
	for _, doc := range docs {
		visit(engine.Change{Document: doc})
	}
	d.watchers = append(d.watchers, visit)
	return nil
}

// CatchUp implements engine.Documents.
func (d *Documents) CatchUp(ctx context.Context) error {
	if err := d.Usable(ctx); err != nil {
		return err
	}
	return d.Sync(ctx)
}

// Shared implements engine.Documents.
func (d *Documents) Shared() bool { return true }

func document(key string, h nats.Header, value []byte, rev uint64) engine.Document {
	doc := engine.Document{Key: key, Value: value, Created: engine.LogID(rev), Revision: engine.Revision(rev)}
	if created, err := strconv.ParseUint(h.Get(createdAt), 10, 64); err == nil {
		doc.Created = engine.LogID(created)
	}
	return doc
}

// HasLog reports whether a log has a document.
func (d *Documents) HasLog(id engine.LogID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.byLog.Get(id)
	return ok
}

// SawDeleted reports whether the document of a log was deleted while this process was running.
func (d *Documents) SawDeleted(id engine.LogID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.deleted.Get(id)
	return ok
}

// ForgetDeleted forgets the deletions before a time.
func (d *Documents) ForgetDeleted(before time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var old []engine.LogID
	d.deleted.Scan(func(id engine.LogID, at time.Time) bool {
		if at.Before(before) {
			old = append(old, id)
		}
		return true
	})
	for _, id := range old {
		d.deleted.Delete(id)
	}
}

// get returns a document of the copy.
func (d *Documents) get(key string) (engine.Document, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byKey.Get(key)
}

func (d *Documents) subject(key string) string {
	return d.Prefix + base64.RawURLEncoding.EncodeToString([]byte(key))
}

// keyOf returns the key of the document with this subject. The second result is false if messages
// with this subject are not documents.
func (d *Documents) keyOf(subject string) (string, bool) {
	key, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(subject, d.Prefix))
	return string(key), err == nil
}
