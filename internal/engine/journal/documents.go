package journal

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"weir/internal/engine"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
)

// documentOp creates, updates or deletes a document.
type documentOp struct {
	j       *Journal
	change  change
	key     string
	value   []byte
	rev     engine.Revision // expected revision; for a deletion, 0 means any revision
	sum     uint32          // checksum of value
	result  index.Document  // state after a creation or update
	expired bool            // deletion only: Expire was called
	deleted *tombstone      // deletion only: the record of the deletion
	log     *log            // deletion only: the document's log
	handle  *handle         // deletion only: the handle of that log, or nil if the log is not open
	err     error           // why the change was refused; nil if it was not
	done    func(error)     // reports the outcome to the caller
}

type change uint8

const (
	createDocument change = iota
	updateDocument
	deleteDocument
)

func (o *documentOp) bound() (int, int) {
	return segments.Padded(segments.RecordSize + len(o.key) + len(o.value)), 1
}

// class gives updates the same class as deletions, so that they succeed on a nearly full disk.
// Revoking a key is an update, and it must not fail for lack of space.
func (o *documentOp) class() class {
	if o.change == createDocument {
		return growing
	}
	return deleting
}

// stage compares the expected revision with the current revision of the document. It takes into
// account all changes that were staged earlier, even if they are not durable yet. A refused change
// writes nothing and uses no revision.
func (o *documentOp) stage(g *group) {
	old := g.document(o.key)
	switch {
	case o.change == createDocument && old != nil:
		o.err = engine.ErrExists
	case o.change != createDocument && old == nil:
		o.err = engine.ErrNotFound
	case o.change != createDocument && o.rev != old.Revision && (o.change == updateDocument || o.rev != 0):
		o.err = engine.ErrConflict
	}
	if o.err != nil {
		return
	}
	c := &o.j.commit
	r := segments.Record{Kind: segments.KindDocument, Seq: c.next, Key: o.key, Payload: o.value, PayloadSum: o.sum}
	c.next++
	created := engine.LogID(r.Seq)
	if old != nil {
		created = old.Created
	}
	r.Log = uint64(created)
	if o.change == deleteDocument {
		// birth is the newest segment that may hold entries of this log. It may be a cold segment
		// that the reclaimer is filling (see cold.go).
		birth := max(uint32(g.seg.Number), o.j.reclaim.building.Load())
		r.Kind, r.Payload, r.PayloadSum, r.Count = segments.KindDeleted, nil, segments.Sum(0, nil), birth
		o.deleted = &tombstone{created: created, revision: engine.Revision(r.Seq), birth: birth}
		o.deleted.at = index.Extent{Place: g.add(&r), Bytes: r.Bytes()}
		o.log, o.handle = o.j.store.doom(created)
		g.setDocument(o.key, nil)
		return
	}
	o.result.Document = engine.Document{Key: o.key, Value: o.value, Created: created, Revision: engine.Revision(r.Seq)}
	o.result.At = index.Extent{Place: g.add(&r), Bytes: r.Bytes()}
	g.setDocument(o.key, &o.result)
}

// settle applies the change to the documents in memory.
func (o *documentOp) settle(*group) {
	switch {
	case o.err != nil:
	case o.change != deleteDocument:
		o.j.store.put(&o.result)
	default:
		o.j.store.remove(o.key, o.deleted)
	}
}

// finish passes the outcome to the announcer, which answers the caller. Refusals take the same
// path, because the earlier change that caused the refusal may not be announced yet, and the caller
// must not learn of that change before the watchers do. If a deletion could not be written, finish
// makes the log usable again, because the document still exists in memory.
func (o *documentOp) finish(err error) {
	switch {
	case err == nil:
		err = o.err
	case o.log != nil:
		o.log.spare(o.handle)
	}
	o.j.announce.add(o, err)
}

// announce tells the watchers about the change, and then answers the caller if the caller still
// waits. A deletion drops the log in between: the judge gets Dropped once all watchers know that
// the document was deleted. Before that, the judge has received every entry of the log, because the
// entries were settled before the deletion.
func (o *documentOp) announce(a *announcer, err error) {
	if err == nil {
		a.tell(o.changed())
		if o.log != nil {
			o.log.drop(o.j, o.handle)
		}
	}
	o.done(err)
}

// changed returns the change in the form that watchers receive.
func (o *documentOp) changed() engine.Change {
	if o.change != deleteDocument {
		return engine.Change{Document: o.result.Document}
	}
	doc := engine.Document{Key: o.key, Created: o.deleted.created, Revision: o.deleted.revision}
	return engine.Change{Document: doc, Deleted: true, Expired: o.expired}
}

// changeDocument makes a change and waits for its outcome. If ctx ends first, the change is still
// carried out or refused, but this caller does not learn the outcome.
func (j *Journal) changeDocument(ctx context.Context, o *documentOp) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o.value = bytes.Clone(o.value)
	w := j.waiters.get()
	o.done = w.done
	j.proposeDocument(o)
	return j.waiters.wait(ctx, w)
}

// proposeDocument validates a change and queues it.
func (j *Journal) proposeDocument(o *documentOp) {
	switch {
	case o.key == "" || len(o.key) > engine.MaxKey:
		o.done(fmt.Errorf("document key of %d bytes: must be 1 to %d bytes", len(o.key), engine.MaxKey))
		return
	case len(o.value) > engine.MaxValue || int64(len(o.value)) > j.dir.Size/2:
		o.done(fmt.Errorf("document %s: value of %d bytes is too large", o.key, len(o.value)))
		return
	}
	o.j, o.sum = j, segments.Sum(0, o.value)
	j.do(o)
}

// Create implements engine.Documents.
func (j *Journal) Create(ctx context.Context, key string, value []byte) (engine.Document, error) {
	o := &documentOp{change: createDocument, key: key, value: value}
	if err := j.changeDocument(ctx, o); err != nil {
		return engine.Document{}, err
	}
	return o.result.Document, nil
}

// CreateLater implements engine.Documents.
func (j *Journal) CreateLater(key string, value []byte, done func(error)) {
	j.proposeDocument(&documentOp{change: createDocument, key: key, value: value, done: done})
}

// Update implements engine.Documents.
func (j *Journal) Update(ctx context.Context, key string, value []byte, rev engine.Revision) (engine.Document, error) {
	o := &documentOp{change: updateDocument, key: key, value: value, rev: rev}
	if err := j.changeDocument(ctx, o); err != nil {
		return engine.Document{}, err
	}
	return o.result.Document, nil
}

// Delete implements engine.Documents.
func (j *Journal) Delete(ctx context.Context, key string, rev engine.Revision) error {
	return j.changeDocument(ctx, &documentOp{change: deleteDocument, key: key, rev: rev})
}

// Expire implements engine.Documents. The journal does not store the reason of a deletion: all
// watchers are in this process and learn it at once.
func (j *Journal) Expire(ctx context.Context, key string, rev engine.Revision) error {
	return j.changeDocument(ctx, &documentOp{change: deleteDocument, key: key, rev: rev, expired: true})
}

// Get implements engine.Documents.
func (j *Journal) Get(_ context.Context, key string) (engine.Document, error) {
	if j.closing.Load() {
		return engine.Document{}, engine.ErrClosed
	}
	if d := j.store.document(key); d != nil {
		return d.Document, nil
	}
	return engine.Document{}, engine.ErrNotFound
}

// List implements engine.Documents.
func (j *Journal) List(_ context.Context, prefix, after string, limit int) ([]engine.Document, error) {
	if j.closing.Load() {
		return nil, engine.ErrClosed
	}
	var list []engine.Document
	j.store.mu.RLock()
	defer j.store.mu.RUnlock()
	j.store.docs.Ascend(max(prefix, after), func(key string, d *index.Document) bool {
		if key <= after && after != "" {
			return true
		}
		if !strings.HasPrefix(key, prefix) || len(list) >= limit {
			return key < prefix && len(list) < limit
		}
		list = append(list, d.Document)
		return true
	})
	return list, nil
}
