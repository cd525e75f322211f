package jetstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/tidwall/btree"

	"weir/internal/engine"
)

// documents is a key-value bucket of JetStream and a copy of the bucket in memory. The line keeps
// the copy up to date: it subscribes to the bucket and delivers every change. The revision of a
// document is the JetStream sequence of its last message. JetStream never reuses a sequence.
type documents struct {
	line
	prefix string // common prefix of the subjects of all documents

	// The lock telling is held while the copy changes and while the watchers receive the change. So
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
	// writerID is the header field with a random name of the call that wrote the message. If a
	// write gets no answer, this name shows whether the stored message comes from that call.
	writerID = "Weir-Write"

	// markerLife is how long servers keep the marker of a deletion. A node that receives nothing
	// from the servers for maxSilence may have missed a deletion, and reads the whole bucket again.
	// maxSilence is half of markerLife, so there is enough time to read the bucket.
	markerLife = "1h"
	maxSilence = 30 * time.Minute
)

// begin starts to follow the bucket and returns when all existing documents are known.
func (d *documents) begin(ctx context.Context, e *Engine) error {
	d.stream, d.prefix = e.docsStream(), e.docsSubject()
	d.fence, d.line.take = d.prefix+noKey, d.take
	d.line.reread = d.reread
	d.line.begin(e, 0)
	d.line.mu.Lock()
	d.listen()
	d.line.mu.Unlock()
	for { // tries again while the servers do not answer, because other nodes may still be starting
		err := d.catchUp(ctx)
		if !errors.Is(err, engine.ErrUnavailable) || e.pause(ctx, retry) != nil {
			return err
		}
	}
}

// noKey is not the key of any document, because ~ does not occur in base64url. It is part of the
// subject of fences, which are empty messages that a node stores only to learn the current end of
// the stream.
const noKey = "~"

// reread starts to record which documents exist, while the line reads the whole bucket again. The
// returned function removes from the copy all documents that were not recorded, as if their
// deletions had been delivered.
func (d *documents) reread() (end func()) {
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
func (d *documents) take(m Stored) {
	name := strings.TrimPrefix(m.Subject, d.prefix)
	switch name {
	case shardsName:
		d.e.takeGenerations(m)
		return
	case removedName:
		d.e.takeRemoved(m)
		return
	}
	key, err := base64.RawURLEncoding.DecodeString(name)
	if err != nil {
		return
	}
	change := engine.Change{Document: document(string(key), m.Header, m.Data, m.Seq), Deleted: m.Header.Get(operation) != ""}
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
func (d *documents) follow(change engine.Change) {
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
	var gone *log
	if had {
		d.byLog.Delete(before.Created)
		d.deleted.Set(before.Created, time.Now())
		gone = d.e.opened(before.Created)
	}
	d.mu.Unlock()
	for _, visit := range d.watchers {
		visit(change)
	}
	if gone != nil {
		gone.drop()
	}
}

// Watch implements engine.Documents.
func (e *Engine) Watch(ctx context.Context, visit func(engine.Change)) error {
	if err := e.CatchUp(ctx); err != nil {
		return err
	}
	d := &e.docs
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
func (e *Engine) CatchUp(ctx context.Context) error {
	if err := e.usable(ctx); err != nil {
		return err
	}
	return e.docs.catchUp(ctx)
}

// Shared implements engine.Documents.
func (e *Engine) Shared() bool { return true }

func document(key string, h nats.Header, value []byte, rev uint64) engine.Document {
	doc := engine.Document{Key: key, Value: value, Created: engine.LogID(rev), Revision: engine.Revision(rev)}
	if created, err := strconv.ParseUint(h.Get(createdAt), 10, 64); err == nil {
		doc.Created = engine.LogID(created)
	}
	return doc
}

func (d *documents) hasLog(id engine.LogID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.byLog.Get(id)
	return ok
}

// sawDeleted reports whether the document of a log was deleted while this process was running.
func (d *documents) sawDeleted(id engine.LogID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.deleted.Get(id)
	return ok
}

// forgetDeleted forgets the deletions before a time.
func (d *documents) forgetDeleted(before time.Time) {
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
func (d *documents) get(key string) (engine.Document, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byKey.Get(key)
}

func (d *documents) subject(key string) string {
	return d.prefix + base64.RawURLEncoding.EncodeToString([]byte(key))
}

// write changes a document, on the condition that its last message has the expected sequence, and
// waits until the copy has the change. If an attempt gets no answer, write repeats it. Only one
// attempt can be stored, because the condition fails for all later ones. After a conflict, write
// looks at the stored message: if it carries the name of this call (writerID), which all attempts
// share, an earlier attempt was stored.
func (d *documents) write(ctx context.Context, m *nats.Msg, expected uint64) (uint64, error) {
	if limit := d.e.servers.MaxPayload(); int64(m.Size()) > limit {
		return 0, fmt.Errorf("write document of %d bytes: NATS takes messages of at most %d bytes (max_payload)", len(m.Data), limit)
	}
	expecting(m, expected)
	rev, err := withRetry(ctx, d.e, func(ctx context.Context) (uint64, error) { return d.e.publish(ctx, []*nats.Msg{m}) })
	if errors.Is(err, errConflict) {
		last, unread := d.last(ctx, m.Subject)
		if unread != nil {
			return 0, unread
		}
		if last.Seq > 0 && last.Header.Get(writerID) == m.Header.Get(writerID) {
			rev, err = last.Seq, nil
		}
	}
	if err != nil {
		return 0, err
	}
	return rev, d.delivered(ctx, rev)
}

// delivered waits until the copy has all changes up to a revision and the watchers have received
// them.
func (d *documents) delivered(ctx context.Context, rev uint64) error {
	seen, cancel := context.WithTimeout(ctx, d.e.opts.Patience)
	defer cancel()
	err := d.reach(seen, rev)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%w: a document was written, but the write was not delivered back", engine.ErrUnavailable)
	}
	return err
}

// writerName returns a random name.
func writerName() string {
	var name [12]byte
	rand.Read(name[:])
	return hex.EncodeToString(name[:])
}

// detached runs a change in the background and waits until it is done or ctx ends. The end of ctx
// does not stop the change. A deletion, for example, must not stop after it has deleted the
// document and before it has ended the log.
func (e *Engine) detached(ctx context.Context, change func(context.Context) (engine.Document, error)) (engine.Document, error) {
	if err := e.usable(ctx); err != nil {
		return engine.Document{}, err
	}
	type outcome struct {
		doc engine.Document
		err error
	}
	done := make(chan outcome, 1)
	if !e.background(func() {
		doc, err := change(e.ctx)
		done <- outcome{doc, err}
	}) {
		return engine.Document{}, engine.ErrClosed
	}
	select {
	case o := <-done:
		return o.doc, o.err
	case <-ctx.Done():
		return engine.Document{}, ctx.Err()
	}
}

// Create implements engine.Documents.
func (e *Engine) Create(ctx context.Context, key string, value []byte) (engine.Document, error) {
	value = slices.Clone(value) // the caller may stop waiting, and reuse its slice, while the value is being sent
	return e.detached(ctx, func(ctx context.Context) (engine.Document, error) { return e.create(ctx, key, value) })
}

// CreateLater implements engine.Documents.
func (e *Engine) CreateLater(key string, value []byte, done func(error)) {
	if !e.background(func() {
		_, err := e.create(e.ctx, key, value)
		done(err)
	}) {
		done(engine.ErrClosed)
	}
}

// create stores a document under a key that has none.
func (e *Engine) create(ctx context.Context, key string, value []byte) (engine.Document, error) {
	if err := e.fits(key, value); err != nil {
		return engine.Document{}, err
	}
	if err := e.admits(ctx, len(value)); err != nil {
		return engine.Document{}, err
	}
	writer := writerName()
	subject, expected := e.docs.subject(key), uint64(0)
	for {
		m := &nats.Msg{Subject: subject, Data: value, Header: nats.Header{writerID: {writer}}}
		rev, err := e.docs.write(ctx, m, expected)
		if err == nil {
			return document(key, nil, value, rev), nil
		}
		if !errors.Is(err, errConflict) {
			return engine.Document{}, err
		}
		last, err := e.docs.last(ctx, subject)
		switch {
		case err != nil:
			return engine.Document{}, err
		case last.Seq == 0:
			expected = 0 // the document was deleted, and the marker of the deletion has expired
		case last.Header.Get(operation) == "":
			if err := e.docs.delivered(ctx, last.Seq); err != nil { // watchers must receive the existing document before this call returns
				return engine.Document{}, err
			}
			return engine.Document{}, engine.ErrExists
		default:
			expected = last.Seq
		}
	}
}

func (e *Engine) fits(key string, value []byte) error {
	if key == "" || len(key) > engine.MaxKey || len(value) > engine.MaxValue {
		return fmt.Errorf("document %.20q: value of %d bytes (at most %d) under a key of %d bytes (1 to %d)",
			key, len(value), engine.MaxValue, len(key), engine.MaxKey)
	}
	return nil
}

// current returns the document if its revision is rev. It may take the document from the copy even
// if the copy is outdated: in this case the conditional write that follows fails.
func (e *Engine) current(ctx context.Context, key string, rev engine.Revision) (engine.Document, error) {
	if doc, ok := e.docs.get(key); ok && doc.Revision == rev {
		return doc, nil
	}
	doc, err := e.latest(ctx, key)
	if err == nil && doc.Revision != rev {
		err = engine.ErrConflict
	}
	return doc, err
}

// Update implements engine.Documents.
func (e *Engine) Update(ctx context.Context, key string, value []byte, rev engine.Revision) (engine.Document, error) {
	value = slices.Clone(value)
	return e.detached(ctx, func(ctx context.Context) (engine.Document, error) { return e.update(ctx, key, value, rev) })
}

// update replaces the value of a document.
func (e *Engine) update(ctx context.Context, key string, value []byte, rev engine.Revision) (engine.Document, error) {
	if err := e.fits(key, value); err != nil {
		return engine.Document{}, err
	}
	writer := writerName()
	for {
		doc, err := e.current(ctx, key, rev)
		if err != nil {
			return engine.Document{}, err
		}
		m := &nats.Msg{Subject: e.docs.subject(key), Data: value, Header: nats.Header{writerID: {writer}}}
		m.Header.Set(createdAt, strconv.FormatUint(uint64(doc.Created), 10))
		next, err := e.docs.write(ctx, m, uint64(rev))
		if err == nil {
			return document(key, m.Header, value, next), nil
		}
		if !errors.Is(err, errConflict) {
			return engine.Document{}, err
		}
	}
}

// Delete implements engine.Documents.
func (e *Engine) Delete(ctx context.Context, key string, rev engine.Revision) error {
	_, err := e.detached(ctx, func(ctx context.Context) (engine.Document, error) { return engine.Document{}, e.delete(ctx, key, rev) })
	return err
}

// delete removes a document and ends its log on all nodes. It first deletes the document and then
// stores a message that ends the log. After this message no node can append to the log, not even a
// node that has not received the deletion yet.
func (e *Engine) delete(ctx context.Context, key string, rev engine.Revision) error {
	writer := writerName()
	for {
		doc, err := e.latest(ctx, key)
		if err != nil {
			return err
		}
		if rev != 0 && rev != doc.Revision {
			return engine.ErrConflict
		}
		m := &nats.Msg{Subject: e.docs.subject(key), Header: nats.Header{writerID: {writer}}}
		m.Header.Set(operation, "DEL")
		m.Header.Set(jetstream.MsgTTLHeader, markerLife)
		_, err = e.docs.write(ctx, m, uint64(doc.Revision))
		if errors.Is(err, errConflict) {
			continue
		}
		if err != nil {
			return err
		}
		return e.dropLog(doc.Created)
	}
}

// Get returns a document.
func (e *Engine) Get(ctx context.Context, key string) (engine.Document, error) {
	if err := e.usable(ctx); err != nil {
		return engine.Document{}, err
	}
	return e.latest(ctx, key)
}

// latest catches up with the bucket and then returns a document.
func (e *Engine) latest(ctx context.Context, key string) (engine.Document, error) {
	if err := e.docs.catchUp(ctx); err != nil {
		return engine.Document{}, err
	}
	doc, ok := e.docs.get(key)
	if !ok {
		return engine.Document{}, engine.ErrNotFound
	}
	return doc, nil
}

// List returns documents in order of keys.
func (e *Engine) List(ctx context.Context, prefix, afterKey string, limit int) ([]engine.Document, error) {
	if err := e.usable(ctx); err != nil {
		return nil, err
	}
	if err := e.docs.catchUp(ctx); err != nil {
		return nil, err
	}
	var docs []engine.Document
	e.docs.mu.Lock()
	defer e.docs.mu.Unlock()
	e.docs.byKey.Ascend(max(prefix, afterKey), func(key string, doc engine.Document) bool {
		if len(docs) >= limit || !strings.HasPrefix(key, prefix) && key > prefix {
			return false
		}
		if key > afterKey {
			docs = append(docs, doc)
		}
		return true
	})
	return docs, nil
}
