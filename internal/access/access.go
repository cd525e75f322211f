// Package access decides which caller may do what. It manages projects, API keys and their scopes,
// the demo, rate limits, and the client address that a request counts under.
//
// Requests are answered from memory. Open and Refresh read the documents of the store, and every
// change is durable before the call that makes it returns. The package knows no HTTP status, and of
// a stream only its id and its owner.
package access

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/engine"
)

// Options are the settings of Open.
type Options struct {
	Limits         Limits
	Demo           bool             // serve the demo (D22)
	TrustedProxies []netip.Prefix   // peers whose X-Forwarded-For is believed (D23)
	Untrusted      func(netip.Addr) // called once, with the first other peer that sends X-Forwarded-For; may be nil
	Now            func() time.Time // default time.Now
}

// Access holds projects and keys in memory. Its methods are safe for concurrent use, except where
// noted.
type Access struct {
	docs    engine.Documents
	now     func() time.Time
	demo    bool
	reader  *Grant // the caller without a key; nil while the demo is off
	trusted []netip.Prefix
	unnamed func(netip.Addr) // Options.Untrusted
	told    atomic.Bool      // unnamed was called
	windows windows
	catchUp catchUp

	tallyNext time.Time // earliest time of the next tally of keys; used by Tally only

	renaming sync.Mutex // held during a rename, which changes two documents

	// mu guards the maps and the entries, but not the grants in them. It is never held during calls
	// to the store. So two changes can reach memory in the wrong order; the revision of a document
	// tells which one is newer.
	mu       sync.RWMutex
	projects map[weir.ProjectID]projectEntry
	names    map[string]weir.ProjectID
	digests  map[digest]*entry // includes the demo key
	keys     map[string]*entry // by id; without the demo key
}

// entry is a key in memory: its grant and its document.
type entry struct {
	grant    *Grant
	digest   digest
	record   Key             // as stored
	revision engine.Revision // of record
	flushed  time.Time       // when Flush last wrote the record
}

// page is the number of documents listed at a time.
const page = 500

// Open reads all projects and keys. It fails if a document cannot be read. It also completes
// renames of projects that were interrupted.
func Open(ctx context.Context, docs engine.Documents, o Options) (*Access, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &Access{
		docs:     docs,
		now:      o.Now,
		demo:     o.Demo,
		trusted:  unmapped(o.TrustedProxies),
		unnamed:  o.Untrusted,
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
		a.catchUp.shared = shared
	}
	if err := a.Refresh(ctx); err != nil {
		return nil, err
	}
	if err := a.finishRenames(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// documentChanged updates memory after a document changed, on this node or another. So a revocation
// ends the key's subscriptions on all nodes.
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
		a.adoptKey(c.Document) // a key whose document cannot be read stays unknown and is refused
	case IsProjectDocument(c.Key):
		a.adoptProject(c.Document)
	}
}

// Refresh reads the changes that other processes made in the same store: projects, and keys with
// their revocations and times of use. A shared store (engine.Shared) reports changes by itself, a
// moment later. Refresh forgets a key whose document was deleted and ends its grant.
func (a *Access) Refresh(ctx context.Context) error {
	a.mu.RLock()
	gone := make(map[digest]struct{}, len(a.keys)) // keys without a document, once all were read
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

// each visits all documents with a prefix.
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

// adoptKey updates memory from a key document, unless memory has the same or a newer revision.
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
	if e != nil && e.record.ID != record.ID { // deleted and imported again by another process
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

// forget drops a key whose document was deleted.
func (a *Access) forget(d digest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.digests[d]; e != nil {
		a.drop(e)
	}
}

// forgetBefore drops a key whose document was deleted at revision rev, unless the key was imported
// again since.
func (a *Access) forgetBefore(d digest, rev engine.Revision) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.digests[d]; e != nil && e.revision < rev {
		a.drop(e)
	}
}

// drop removes a key from memory and ends its grant. Called with a.mu held.
func (a *Access) drop(e *entry) {
	delete(a.digests, e.digest)
	delete(a.keys, e.record.ID)
	e.grant.end()
}

// storeError wraps an error of the store. If the store refused a write, it adds a
// StorageUnavailable that the caller may see.
func storeError(doing string, err error) error {
	if errors.Is(err, engine.ErrFull) || errors.Is(err, engine.ErrReadOnly) || errors.Is(err, engine.ErrClosed) || errors.Is(err, engine.ErrUnavailable) {
		known := weir.Errorf(weir.StorageUnavailable, "the store accepts no changes at the moment")
		return fmt.Errorf("%s: %w (%w)", doing, known, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
