// Package access says who may: projects, keys and their scopes, the demo, rate windows and the address that a caller
// counts under. Requests are answered from memory; the documents of the store are read at Open and Refresh and written
// before anybody is told of a change. It knows no HTTP status and no stream beyond its id and owner.
package access

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"weir"
	"weir/internal/engine"
)

// Options are what access needs beside documents.
type Options struct {
	Limits         Limits
	Demo           bool             // D22
	TrustedProxies []netip.Prefix   // peers whose X-Forwarded-For counts (D23)
	Now            func() time.Time // nil: time.Now
}

// Access knows projects and keys. All methods may be called from many goroutines at once.
type Access struct {
	docs    engine.Documents
	now     func() time.Time
	demo    bool
	reader  *Grant // the caller without a key; nil while the demo is off
	trusted []netip.Prefix
	windows windows
	news    news

	tallyNext time.Time // when keys are tallied again; of the one who calls Tally

	renaming sync.Mutex // one project at a time: a rename is two documents

	// mu guards the maps and what Access keeps of a key beside its Grant. It is never held while the store works: what
	// happened first is told by the revision of a document, not by who came first to the lock.
	mu       sync.RWMutex
	projects map[weir.ProjectID]projectEntry
	names    map[string]weir.ProjectID
	digests  map[digest]*entry // the demo key too
	keys     map[string]*entry // by id, without the demo key
}

// entry is a key in memory: the caller that it makes, and the document behind it.
type entry struct {
	grant    *Grant
	digest   digest
	record   Key             // as stored
	revision engine.Revision // of record
	flushed  time.Time       // when Flush last wrote it
}

// page is how many documents are listed at a time.
const page = 500

// Open reads all projects and keys.
func Open(ctx context.Context, docs engine.Documents, o Options) (*Access, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &Access{
		docs:     docs,
		now:      o.Now,
		demo:     o.Demo,
		trusted:  plain(o.TrustedProxies),
		projects: map[weir.ProjectID]projectEntry{},
		names:    map[string]weir.ProjectID{},
		digests:  map[digest]*entry{},
		keys:     map[string]*entry{},
	}
	a.windows.init()
	if err := a.SetLimits(o.Limits); err != nil {
		return nil, err
	}
	if o.Demo {
		a.reader = demoGrant("")
		a.digests[digestOf(DemoKey)] = &entry{grant: demoGrant(DemoKeyID), digest: digestOf(DemoKey)}
	}
	if shared, ok := docs.(engine.Shared); ok {
		shared.Watch(a.documentChanged)
		a.news.shared = shared
	}
	if err := a.Refresh(ctx); err != nil {
		return nil, err
	}
	if err := a.finishRenames(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// documentChanged follows a document that changed, here or on another node: a revocation ends subscriptions on all of them.
func (a *Access) documentChanged(c engine.Change) {
	switch {
	case c.Deleted && IsKeyDocument(c.Key):
		if d, err := digestIn(c.Key); err == nil {
			a.forgetBefore(d, c.Revision)
		}
	case c.Deleted && IsProjectDocument(c.Key):
		a.forgetProject(c.Key, c.Revision)
	case c.Deleted:
	case IsKeyDocument(c.Key):
		a.adoptKey(c.Document) // what cannot be read is refused like a key that is not there
	case IsProjectDocument(c.Key):
		a.adoptProject(c.Document)
	}
}

// Refresh reads what other processes changed in the same store: keys that were made or revoked there, projects, and
// times of use. Of a store that tells of changes everything is known anyway, a moment later. A key whose document is gone is
// treated as one that never was, and its callers are ended.
func (a *Access) Refresh(ctx context.Context) error {
	a.mu.RLock()
	gone := make(map[digest]struct{}, len(a.keys))
	for _, e := range a.keys {
		gone[e.digest] = struct{}{}
	}
	a.mu.RUnlock()

	if err := a.each(ctx, projectPrefix, a.adoptProject); err != nil {
		return err
	}
	err := a.each(ctx, keyPrefix, func(doc engine.Document) error {
		e, err := a.adoptKey(doc)
		if err == nil {
			delete(gone, e.digest)
		}
		return err
	})
	if err != nil {
		return err
	}
	for d := range gone {
		a.forget(d)
	}
	return nil
}

// each visits the documents under a prefix.
func (a *Access) each(ctx context.Context, prefix string, visit func(engine.Document) error) error {
	after := ""
	for {
		docs, err := a.docs.List(ctx, prefix, after, page)
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		for _, doc := range docs {
			if err := visit(doc); err != nil {
				return fmt.Errorf("read %s: %w", doc.Key, err)
			}
			after = doc.Key
		}
		if len(docs) < page {
			return nil
		}
	}
}

// adoptKey makes memory follow a document of a key, unless memory has that revision of it or a later one.
func (a *Access) adoptKey(doc engine.Document) (*entry, error) {
	d, err := digestIn(doc.Key)
	if err != nil {
		return nil, err
	}
	a.mu.RLock()
	e := a.digests[d]
	known := e != nil && doc.Revision <= e.revision
	a.mu.RUnlock()
	if known {
		return e, nil
	}
	_, record, err := readKey(doc)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	e = a.digests[d]
	if e != nil && doc.Revision <= e.revision {
		return e, nil
	}
	if e != nil && e.record.ID != record.ID { // removed and imported again, elsewhere
		a.drop(e)
		e = nil
	}
	if e == nil {
		e = &entry{grant: newGrant(&record, a.demo), digest: d}
		a.digests[d] = e
		a.keys[record.ID] = e
	}
	e.record, e.revision = record, doc.Revision
	if record.LastUsedAt != nil {
		e.grant.use(*record.LastUsedAt)
	}
	if record.RevokedAt != nil {
		e.grant.end()
	}
	return e, nil
}

// forget drops a key whose document is gone.
func (a *Access) forget(d digest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.digests[d]; e != nil {
		a.drop(e)
	}
}

// forgetBefore drops a key whose document was deleted, unless it was imported again since.
func (a *Access) forgetBefore(d digest, rev engine.Revision) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.digests[d]; e != nil && e.revision < rev {
		a.drop(e)
	}
}

// drop takes a key out of memory and ends its callers. The lock is held.
func (a *Access) drop(e *entry) {
	delete(a.digests, e.digest)
	delete(a.keys, e.record.ID)
	e.grant.end()
}

// refused says what a caller may know of a write that the store did not take, and wraps the rest.
func refused(doing string, err error) error {
	if errors.Is(err, engine.ErrFull) || errors.Is(err, engine.ErrReadOnly) || errors.Is(err, engine.ErrClosed) || errors.Is(err, engine.ErrUnavailable) {
		known := weir.Errorf(weir.StorageUnavailable, "the store cannot take this change now")
		return fmt.Errorf("%s: %w (%w)", doing, known, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
