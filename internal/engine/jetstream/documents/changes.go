package documents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/wire"
)

// write changes a document, on the condition that its last message has the expected sequence, and
// waits until the copy has the change. If an attempt gets no answer, write repeats it. Only one
// attempt can be stored, because the condition fails for all later ones. So if a later attempt is
// refused, write looks at the stored message: if it carries the name of this call, which all attempts
// share, an earlier attempt was stored.
func (d *Documents) write(ctx context.Context, m *nats.Msg, expected uint64) (uint64, error) {
	if limit := d.client.MaxPayload(); int64(m.Size()) > limit {
		return 0, fmt.Errorf("write document of %d bytes: NATS takes messages of at most %d bytes (max_payload)", len(m.Data), limit)
	}
	wire.Expect(m, expected)
	attempts := 0
	rev, err := wire.Ask(ctx, d.client, func(ctx context.Context) (uint64, error) {
		attempts++
		return d.client.Publish(ctx, []*nats.Msg{m})
	})
	if errors.Is(err, wire.ErrConflict) || attempts > 1 && (errors.Is(err, wire.ErrRefused) || errors.Is(err, engine.ErrFull)) {
		last, unread := d.line.Last(ctx, m.Subject)
		if unread != nil {
			return 0, unread
		}
		if last.Seq > 0 && wire.Signature(last.Header) == wire.Signature(m.Header) {
			rev, err = last.Seq, nil
		}
	}
	if err != nil {
		return 0, err
	}
	return rev, d.delivered(ctx, m, rev)
}

// delivered waits until the copy has all changes up to a revision and the watchers have received
// them. The parameter m is the message with this revision. If another change has replaced it before
// the line could deliver it, delivered waits for that change.
func (d *Documents) delivered(ctx context.Context, m *nats.Msg, rev uint64) error {
	seen, cancel := context.WithTimeout(ctx, d.client.Limit())
	defer cancel()
	err := d.line.Reach(seen, rev)
	if err == nil && !d.took(m, rev) {
		err = d.line.CatchUp(seen)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("%w: a document was written, but the write was not delivered back", engine.ErrUnavailable)
	}
	return err
}

// took reports whether the copy has the change that a message makes, or a later change of the same
// document.
func (d *Documents) took(m *nats.Msg, rev uint64) bool {
	key, ok := d.keyOf(m.Subject)
	if !ok {
		return true
	}
	doc, has := d.get(key)
	if m.Header.Get(operation) != "" && !has {
		return true
	}
	return has && uint64(doc.Revision) >= rev
}

// Put writes a message that is not a document in place of the last message with this name. It does
// so only if that last message has the expected sequence. An expected sequence of 0 means that
// there must be no such message.
func (d *Documents) Put(ctx context.Context, name string, value []byte, expected uint64) error {
	_, err := d.write(ctx, wire.Signed(wire.Name(), d.Prefix+name, value), expected)
	return err
}

// detached runs a change in the background and waits until it is done or ctx ends. The end of ctx
// does not stop the change. A deletion, for example, must not stop after it has deleted the
// document and before it has ended the log.
func (d *Documents) detached(ctx context.Context, change func(context.Context) (engine.Document, error)) (engine.Document, error) {
	if err := d.Usable(ctx); err != nil {
		return engine.Document{}, err
	}
	type outcome struct {
		doc engine.Document
		err error
	}
	done := make(chan outcome, 1)
	if !d.Background(func() {
		doc, err := change(d.client.Life)
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
func (d *Documents) Create(ctx context.Context, key string, value []byte) (engine.Document, error) {
	value = slices.Clone(value) // the caller may stop waiting, and reuse its slice, while the value is being sent
	return d.detached(ctx, func(ctx context.Context) (engine.Document, error) { return d.create(ctx, key, value) })
}

// CreateLater implements engine.Documents.
func (d *Documents) CreateLater(key string, value []byte, done func(error)) {
	if !d.Background(func() {
		_, err := d.create(d.client.Life, key, value)
		done(err)
	}) {
		done(engine.ErrClosed)
	}
}

// create stores a document under a key that has none.
func (d *Documents) create(ctx context.Context, key string, value []byte) (engine.Document, error) {
	if err := fits(key, value); err != nil {
		return engine.Document{}, err
	}
	if err := d.Admits(ctx, len(value)); err != nil {
		return engine.Document{}, err
	}
	writer := wire.Name()
	subject, expected := d.subject(key), uint64(0)
	for {
		m := wire.Signed(writer, subject, value)
		rev, err := d.write(ctx, m, expected)
		if err == nil {
			return document(key, nil, value, rev), nil
		}
		if !errors.Is(err, wire.ErrConflict) {
			return engine.Document{}, err
		}
		last, err := d.line.Last(ctx, subject)
		switch {
		case err != nil:
			return engine.Document{}, err
		case last.Seq == 0:
			expected = 0 // the document was deleted, and the marker of the deletion has expired
		case last.Header.Get(operation) == "":
			if err := d.delivered(ctx, m, last.Seq); err != nil { // watchers must receive the existing document before this call returns
				return engine.Document{}, err
			}
			return engine.Document{}, engine.ErrExists
		default:
			expected = last.Seq
		}
	}
}

func fits(key string, value []byte) error {
	if key == "" || len(key) > engine.MaxKey || len(value) > engine.MaxValue {
		return fmt.Errorf("document %.20q: value of %d bytes (at most %d) under a key of %d bytes (1 to %d)",
			key, len(value), engine.MaxValue, len(key), engine.MaxKey)
	}
	return nil
}

// current returns the document if its revision is rev. It may take the document from the copy even
// if the copy is outdated: in this case the conditional write that follows fails.
func (d *Documents) current(ctx context.Context, key string, rev engine.Revision) (engine.Document, error) {
	if doc, ok := d.get(key); ok && doc.Revision == rev {
		return doc, nil
	}
	doc, err := d.latest(ctx, key)
	if err == nil && doc.Revision != rev {
		err = engine.ErrConflict
	}
	return doc, err
}

// Update implements engine.Documents.
func (d *Documents) Update(ctx context.Context, key string, value []byte, rev engine.Revision) (engine.Document, error) {
	value = slices.Clone(value)
	return d.detached(ctx, func(ctx context.Context) (engine.Document, error) { return d.update(ctx, key, value, rev) })
}

// update replaces the value of a document.
func (d *Documents) update(ctx context.Context, key string, value []byte, rev engine.Revision) (engine.Document, error) {
	if err := fits(key, value); err != nil {
		return engine.Document{}, err
	}
	writer := wire.Name()
	for {
		doc, err := d.current(ctx, key, rev)
		if err != nil {
			return engine.Document{}, err
		}
		m := wire.Signed(writer, d.subject(key), value)
		m.Header.Set(createdAt, strconv.FormatUint(uint64(doc.Created), 10))
		next, err := d.write(ctx, m, uint64(rev))
		if err == nil {
			return document(key, m.Header, value, next), nil
		}
		if !errors.Is(err, wire.ErrConflict) {
			return engine.Document{}, err
		}
	}
}

// Delete implements engine.Documents.
func (d *Documents) Delete(ctx context.Context, key string, rev engine.Revision) error {
	return d.remove(ctx, key, rev, false)
}

// Expire implements engine.Documents.
func (d *Documents) Expire(ctx context.Context, key string, rev engine.Revision) error {
	return d.remove(ctx, key, rev, true)
}

// remove deletes a document, even if ctx ends meanwhile.
func (d *Documents) remove(ctx context.Context, key string, rev engine.Revision, expired bool) error {
	_, err := d.detached(ctx, func(ctx context.Context) (engine.Document, error) {
		return engine.Document{}, d.delete(ctx, key, rev, expired)
	})
	return err
}

// delete removes a document and ends its log on all nodes. It first deletes the document and then
// stores a message that ends the log. After this message no node can append to the log, not even a
// node that has not received the deletion yet.
func (d *Documents) delete(ctx context.Context, key string, rev engine.Revision, expired bool) error {
	writer := wire.Name()
	for {
		doc, err := d.latest(ctx, key)
		if err != nil {
			return err
		}
		if rev != 0 && rev != doc.Revision {
			return engine.ErrConflict
		}
		m := wire.Signed(writer, d.subject(key), nil)
		m.Header.Set(operation, "DEL")
		if expired {
			m.Header.Set(expiry, "1")
		}
		m.Header.Set(jetstream.MsgTTLHeader, MarkerLife)
		_, err = d.write(ctx, m, uint64(doc.Revision))
		if errors.Is(err, wire.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		return d.End(doc.Created)
	}
}

// Get returns a document.
func (d *Documents) Get(ctx context.Context, key string) (engine.Document, error) {
	if err := d.Usable(ctx); err != nil {
		return engine.Document{}, err
	}
	return d.latest(ctx, key)
}

// latest catches up with the bucket and then returns a document.
func (d *Documents) latest(ctx context.Context, key string) (engine.Document, error) {
	if err := d.Sync(ctx); err != nil {
		return engine.Document{}, err
	}
	doc, ok := d.get(key)
	if !ok {
		return engine.Document{}, engine.ErrNotFound
	}
	return doc, nil
}

// List returns documents in order of keys.
func (d *Documents) List(ctx context.Context, prefix, afterKey string, limit int) ([]engine.Document, error) {
	if err := d.Usable(ctx); err != nil {
		return nil, err
	}
	if err := d.Sync(ctx); err != nil {
		return nil, err
	}
	var docs []engine.Document
	d.mu.Lock()
	defer d.mu.Unlock()
	d.byKey.Ascend(max(prefix, afterKey), func(key string, doc engine.Document) bool {
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
