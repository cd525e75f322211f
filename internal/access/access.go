// Package access decides which caller may do what. It manages projects, API keys and their scopes,
// management tokens, the public demo stream and rate limits, and determines the client address for
// the rate limits.
//
// Access answers requests from memory. Projects and keys are documents of the store. The store
// reports every change of a document, and memory is updated from these reports. A call that makes a
// change returns when the change is durable and in memory. The package does not depend on HTTP. All
// it knows about a stream is its id and its project.
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
	"weir/internal/shrink"
)

// Options are the settings of Open.
type Options struct {
	Limits         Limits
	Demo           bool             // serve the demo, a public read-only stream (D22)
	TrustedProxies []netip.Prefix   // peers whose X-Forwarded-For is believed (D23)
	Untrusted      func(netip.Addr) // called once, with the first peer outside TrustedProxies that sends X-Forwarded-For; may be nil
	Now            func() time.Time // default time.Now; see also SetClock
}

// Access holds projects and keys in memory. Its methods are safe for concurrent use, except where
// noted.
type Access struct {
	docs      engine.Documents
	now       func() time.Time
	demo      bool
	reader    *Grant // grant (permissions) of callers without a key, which may read the demo; nil while the demo is off
	trusted   []netip.Prefix
	untrusted func(netip.Addr) // Options.Untrusted
	told      atomic.Bool      // Options.Untrusted was called
	windows   windows
	catchUp   catchUp
	steady    steady // the clock by which keys revoke themselves and are forgotten

	tallyNext time.Time // when Tally may next visit all keys; used by Tally only

	renaming sync.Mutex // held during a rename, which changes two documents

	// mu guards the fields below and the entries in the maps, but not the grants in the entries. No
	// method may hold mu while it calls the store: the call waits until the store has called
	// documentChanged, which locks mu, so both would wait forever. Except for the demo, only
	// documentChanged changes projects and the records of keys. So memory agrees with the store
	// even if a caller gives up before its change is stored (D33).
	mu         sync.RWMutex
	projects   map[weir.ProjectID]projectEntry
	names      map[string]weir.ProjectID
	digests    shrink.Map[digest, *entry] // by digest: keys, the demo key and management tokens
	keys       shrink.Map[string, *entry] // by id; without the demo key
	tokens     shrink.Map[string, *entry] // management tokens by id
	perProject map[weir.ProjectID]int     // the number of keys of each project, revoked keys included
	ending     agenda                     // keys that will revoke themselves, ordered by time
	ended      agenda                     // revoked keys and tokens, ordered by the time at which they are forgotten
	loaded     bool                       // Open has read all documents
	unreadable error                      // names the first document that Open could not read
}

// entry is a key or a management token in memory: its grant and its document.
type entry struct {
	agenda *agenda   // the agenda that holds the entry: Access.ending, Access.ended, or nil
	at     weir.Time // when the key revokes itself, or when the key or token is forgotten; by the clock Access.steady
	place  int       // index in the agenda

	grant    *Grant
	digest   digest
	record   Key             // as stored
	revision engine.Revision // revision of the stored record
	flushed  time.Time       // when Flush last wrote the record
}

// page is the number of documents listed at a time.
const page = 500

// Open reads all projects and keys. It fails if a document cannot be read. It also completes
// interrupted renames of projects.
func Open(ctx context.Context, docs engine.Documents, o Options) (*Access, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	a := &Access{
		docs:       docs,
		now:        o.Now,
		demo:       o.Demo,
		trusted:    unmapped(o.TrustedProxies),
		untrusted:  o.Untrusted,
		projects:   map[weir.ProjectID]projectEntry{},
		names:      map[string]weir.ProjectID{},
		perProject: map[weir.ProjectID]int{},
	}
	a.windows.init()
	if err := a.SetLimits(o.Limits); err != nil {
		return nil, err
	}
	if o.Demo {
		a.reader = demoGrant("")
		a.digests.Set(digestOf(DemoKey), &entry{grant: demoGrant(DemoKeyID), digest: digestOf(DemoKey)})
	}
	if err := a.load(ctx); err != nil {
		return nil, err
	}
	a.steady.monotonic = o.Now
	a.SetClock(o.Now)
	if err := a.finishRenames(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// load reads all projects and keys. From then on the store reports every change to documentChanged.
func (a *Access) load(ctx context.Context) error {
	if err := a.docs.Watch(ctx, engine.Prefixes{projectPrefix, keyPrefix, tokenDocuments}, a.documentChanged); err != nil {
		return fmt.Errorf("read projects and keys: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.loaded = true
	return a.unreadable
}

// documentChanged updates memory after a document changed. The store calls it on every node, in the
// order of revisions, even if the caller that made the change has given up. So a revocation ends
// the key's subscriptions on all nodes. Nothing else changes projects and keys in memory.
func (a *Access) documentChanged(c engine.Change) {
	var err error
	switch {
	case IsKeyDocument(c.Key) && c.Deleted:
		a.forgetKey(c.Key)
	case IsKeyDocument(c.Key):
		err = a.adoptKey(c.Document)
	case IsProjectDocument(c.Key) && c.Deleted:
		a.forgetProject(c.Key)
	case IsProjectDocument(c.Key):
		err = a.adoptProject(c.Document)
	}
	if err != nil {
		a.cannotRead(c.Key, err)
	}
}

// CatchUp returns when this node knows every project, key and token that any node had created or
// changed before the call. It fails with StorageUnavailable if the store does not answer.
func (a *Access) CatchUp(ctx context.Context) error {
	if err := a.docs.CatchUp(ctx); err != nil {
		return storeError("catch up with other nodes", err)
	}
	return nil
}

// CatchUpTogether is like CatchUp, but all callers that wait share one request to the store, and
// there are at most 20 requests per second. Use it for requests of clients that have not proved who
// they are. It waits up to five seconds.
func (a *Access) CatchUpTogether() error {
	if err := a.catchUp.wait(a.docs); err != nil {
		return storeError("catch up with other nodes", err)
	}
	return nil
}

// cannotRead handles a document that cannot be read. While Open loads the documents, cannotRead
// makes Open fail. Later, only another node can have written such a document, and cannotRead
// ignores it. A key in the document then stays unknown, so requests with the key are refused.
func (a *Access) cannotRead(name string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.loaded && a.unreadable == nil {
		a.unreadable = fmt.Errorf("read %s: %w", name, err)
	}
}

// each calls the function visit for every document whose name has this prefix.
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

// adoptKey updates memory from a key document. Only documentChanged calls it.
func (a *Access) adoptKey(doc engine.Document) error {
	d, record, err := readKey(doc)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.digests.Get(d)
	if e != nil && e.record.ID != record.ID { // the key was deleted and imported again
		a.drop(e)
		e = nil
	}
	isNew := e == nil
	if isNew {
		e = &entry{grant: newGrant(&record, a.demo), digest: d}
		a.digests.Set(d, e)
		if record.Kind == Management {
			a.tokens.Set(record.ID, e)
		} else {
			a.keys.Set(record.ID, e)
			a.perProject[record.Project]++
		}
	}
	e.record, e.revision = record, doc.Revision
	if record.LastUsedAt != nil {
		e.grant.use(*record.LastUsedAt)
	}
	revoked := record.RevokedAt != nil && !e.grant.hasEnded()
	if revoked {
		e.grant.end()
	}
	if a.loaded && (isNew || revoked) {
		a.plan(e)
	}
	return nil
}

// forgetKey drops a key whose document was deleted. Only documentChanged calls it.
func (a *Access) forgetKey(name string) {
	d, err := digestIn(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.digests.Get(d); err == nil && e != nil {
		a.drop(e)
	}
}

// drop removes a key from memory and ends its grant. Called with a.mu held.
func (a *Access) drop(e *entry) {
	a.digests.Delete(e.digest)
	if e.record.Kind == Management {
		a.tokens.Delete(e.record.ID)
	} else {
		a.keys.Delete(e.record.ID)
		if a.perProject[e.record.Project]--; a.perProject[e.record.Project] == 0 {
			delete(a.perProject, e.record.Project)
		}
	}
	e.leave()
	e.grant.end()
}

// storeError wraps an error of the store. If the store accepts no changes at the moment, the result
// also wraps a *weir.Error with the code StorageUnavailable, which clients may see.
func storeError(doing string, err error) error {
	if errors.Is(err, engine.ErrFull) || errors.Is(err, engine.ErrReadOnly) || errors.Is(err, engine.ErrClosed) || errors.Is(err, engine.ErrUnavailable) {
		known := weir.Errorf(weir.StorageUnavailable, "the store accepts no changes at the moment")
		return fmt.Errorf("%s: %w (%w)", doing, known, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
