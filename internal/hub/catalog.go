package hub

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"weir"
	"weir/internal/engine"
	"weir/internal/shrink"
)

// Spec holds the settings of a stream. Name, RetentionSeconds and MaxBytes can change (see
// Stream.Change).
type Spec struct {
	ID               weir.StreamID // if empty, Create generates an id
	Project          weir.ProjectID
	Name             string
	RetentionSeconds int64
	MaxBytes         int64
	Mode             weir.Mode
	TTLSeconds       int64     // time to live since the last use (lifetime.go); 0 if there is none
	ExpiresAt        weir.Time // time at which the stream expires, used or not; 0 if there is none

	Attributes string // see Stream.Attributes

	usedAt weir.Time // the last use that the document of the stream records (lifetime.go)
}

// Stream is a handle to one stream. Its methods are safe for concurrent use. A handle may be kept
// for any length of time: it holds no log open. Once the stream is deleted, the methods of the
// handle return StreamNotFound.
//
// Lock order: Stream.mu, then feed.mu. Code that holds the catalog's or the sweeper's lock takes
// neither Stream.mu nor feed.mu.
//
// A server may have a million streams, so every field counts: a Stream takes 160 bytes. Data that
// only a stream in use needs is in its feed and its traffic.
type Stream struct {
	ID weir.StreamID
	*origin
	CreatedAt weir.Time

	// These fields change with the document of the stream. Only documentChanged sets them.
	name   string // guarded by catalog.names
	bounds atomic.Pointer[bounds]

	log  engine.LogID
	work work // batches that this node stored since the last call of Hub.TakeWork

	mu      sync.Mutex
	traffic *traffic // set while the log is open, being opened or being closed, or a publish is in progress; otherwise nil
	used    int64    // bytes of memory for the stream's batches and keys, as last measured
	summary summary  // cursor and size to answer with while no feed is open
	deleted bool
	lapsed  bool // the stream was deleted because its lifetime had ended

	// The fields below are guarded by sweeper.mu, except opened, which is guarded by catalog.mu, and
	// ended, which is atomic.
	gone    bool        // the stream was deleted and must not be queued again
	opened  int32       // position in catalog.opened, counted from 1; 0 if the stream has no feed
	queued  int32       // position in the sweeper's queue, counted from 1; 0 if the stream is not in the queue
	ended   atomic.Bool // the stream was closed (D37); valid while a feed is open or the summary is valid
	checkAt weir.Time   // when the sweeper opens the stream to evict expired batches
}

// origin holds what never changes. Streams without a limited lifetime share one value for each
// project and mode (projectStreams.origins).
type origin struct {
	hub        *Hub
	owner      *projectStreams
	Project    weir.ProjectID
	Mode       weir.Mode
	TTLSeconds int64
	Expires    bool // the stream has a time at which it expires; see life.until
}

// inTransition reports whether the feed is being opened or closed. Called with Stream.mu held.
func (t *traffic) inTransition() bool { return t != nil && t.busy }

// traffic describes the publishes to one stream that are in progress. It survives when the log is
// reopened.
type traffic struct {
	feed *feed       // set while the log is open; otherwise nil; guarded by Stream.mu
	busy bool        // the feed is being opened or closed; guarded by Stream.mu
	wait *transition // what callers wait for while busy is set; nil if no caller waits; guarded by Stream.mu

	holds holds // see gaps.go; has its own lock, which may be taken while holding any other lock
	order order // see order.go; has its own lock, like the field holds
}

// open returns the feed, or nil if the log is not open. Called with Stream.mu held.
func (t *traffic) open() *feed {
	if t == nil {
		return nil
	}
	return t.feed
}

// idle reports whether no publish is in progress.
func (t *traffic) idle() bool { return t.holds.none() && t.order.none() }

// summary holds the facts about a stream that the hub keeps while the log is closed. It is valid
// until a batch expires. The zero summary is never valid.
type summary struct {
	cursor weir.Cursor
	bytes  int64
	until  weir.Time // no batch expires before this time
}

// empty returns the summary of a stream that was just created.
func empty(created weir.Time) summary {
	return summary{cursor: weir.Cursor{UpdatedAt: created}, until: never}
}

// catalog holds all streams of the store. Only a change to a document in the store changes the
// catalog. So the catalog agrees with the store even if the caller that changed the store has left
// (D33).
type catalog struct {
	hub      *Hub
	mu       sync.RWMutex
	byID     *shrink.Table[weir.StreamID, Stream]
	projects map[weir.ProjectID]*projectStreams
	bounds   map[bounds]*sharedBounds
	opened   []*Stream    // streams with a feed; not a map, because a map has a random order
	names    sync.RWMutex // guards Stream.name; code that holds it takes no other lock

	loaded     atomic.Bool // Open has read all documents
	unreadable error       // the error about the first document that Open could not read
}

// projectStreams are the streams of one project.
type projectStreams struct {
	streams []*Stream // oldest first: in increasing order of log id; a log id is unique and never reused
	origins [2]origin // the values that JSON streams share, and that raw streams share

	// creating maps each stream that is being created to the number of its creations in progress.
	// These streams count towards the project's limit, like those in the field streams.
	creating map[weir.StreamID]int

	used    atomic.Int64 // memory for batches and keys; the sum of Stream.used
	refused atomic.Bool  // a publish was refused because memory was used up, and the refusal was logged
}

func (c *catalog) init(h *Hub) {
	c.hub = h
	c.byID = shrink.NewTable(func(s *Stream) weir.StreamID { return s.ID })
	c.projects = make(map[weir.ProjectID]*projectStreams)
	c.bounds = make(map[bounds]*sharedBounds)
}

// documentChanged updates the catalog after a stream was created, changed or deleted, on this node
// or another, even if the caller that did it no longer waits. Nothing else changes the catalog. The
// loader calls documentChanged in the order of the documents' revisions. If a known document arrives
// with a different log id, its stream was deleted and the stream id was used again. The reason of
// that deletion is not known.
func (h *Hub) documentChanged(r *reading) {
	c, spec := &r.change, &r.spec
	known := h.catalog.lookup(r.id)
	if known != nil && (c.Deleted || known.log != c.Created) {
		known.mu.Lock()
		known.setUse(0)
		known.deleted, known.lapsed = true, c.Expired || !c.Deleted && seemsLapsed(known)
		known.mu.Unlock()
		h.forget(known)
		known = nil
	}
	if c.Deleted {
		return
	}
	if r.err != nil {
		h.cannotRead(c.Key, r.err)
		return
	}
	if known != nil {
		if l := lifeOf(known); l != nil { // another node may have used the stream
			l.touch(spec.usedAt)
			raise(&l.saved, spec.usedAt)
		}
		h.settingsChanged(known, spec)
		h.setAttributes(known, spec.Attributes)
		return
	}
	s := h.streamOf(c.Created, spec, r.created)
	h.live(s, spec)
	if spec.Attributes != "" {
		h.setAttributes(s, spec.Attributes)
	}
	h.catalog.add(s, &h.room)
	if h.shared {
		h.sweeper.checkBy(s, h.now().Add(idleCheckEvery))
	}
}

// cannotRead reports a document that cannot be read as a stream. While the hub is opening, such a
// document makes Open fail. Later, such a document can only come from another node, and the hub
// logs and ignores it.
func (h *Hub) cannotRead(key string, err error) {
	h.catalog.mu.Lock()
	loaded := h.catalog.loaded.Load()
	if !loaded && h.catalog.unreadable == nil {
		h.catalog.unreadable = fmt.Errorf("read %s: %w", key, err)
	}
	h.catalog.mu.Unlock()
	if loaded {
		h.opts.Logger.Error("ignored a stream of another node: cannot read its document", "key", key, "error", err)
	}
}

// streamOf returns the stream that a document describes. After Open has read all documents, any
// further document describes a new stream. On a store that is not shared, the log of such a stream
// is empty: only callers on this node could have written to it, and they cannot open a stream that
// is not in the catalog yet.
func (h *Hub) streamOf(log engine.LogID, spec *Spec, created weir.Time) *Stream {
	s := &Stream{ID: spec.ID, CreatedAt: created, name: spec.Name, log: log}
	h.catalog.equip(s, spec)
	if h.catalog.loaded.Load() && !h.shared {
		s.summary = empty(created)
	}
	return s
}

func (c *catalog) project(p weir.ProjectID) *projectStreams {
	s := c.projects[p]
	if s == nil {
		s = &projectStreams{creating: map[weir.StreamID]int{}}
		s.origins = [2]origin{{hub: c.hub, owner: s, Project: p, Mode: weir.JSON}, {hub: c.hub, owner: s, Project: p, Mode: weir.Raw}}
		c.projects[p] = s
	}
	return s
}

// equip gives a new stream its settings, most of which it shares with other streams. The caller adds
// the stream to the catalog afterwards.
func (c *catalog) equip(s *Stream, spec *Spec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	owner := c.project(spec.Project)
	s.bounds.Store(c.share(bounds{spec.RetentionSeconds, spec.MaxBytes}))
	for i := range owner.origins {
		if o := &owner.origins[i]; o.Mode == spec.Mode && spec.TTLSeconds == 0 && spec.ExpiresAt == 0 {
			s.origin = o
			return
		}
	}
	s.origin = &origin{c.hub, owner, spec.Project, spec.Mode, spec.TTLSeconds, spec.ExpiresAt != 0}
}

// add adds a stream to the catalog, after equip has set the stream's settings. Only documentChanged
// calls it.
func (c *catalog) add(s *Stream, r *room) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byID.Set(s)
	ps := s.owner
	if len(ps.streams) == 0 {
		r.projects.Add(1)
	}
	ps.streams = slices.Insert(ps.streams, ps.find(s.log), s)
	delete(ps.creating, s.ID)
}

// find returns the index of the first stream whose log id is not below the given one.
func (ps *projectStreams) find(log engine.LogID) int {
	if n := len(ps.streams); n == 0 || ps.streams[n-1].log < log {
		return n // the common case: a new stream is the last one
	}
	return sort.Search(len(ps.streams), func(i int) bool { return ps.streams[i].log >= log })
}

// remove removes a stream. Only documentChanged calls it.
func (c *catalog) remove(s *Stream, r *room) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID.Get(s.ID) == s {
		c.byID.Delete(s.ID)
	}
	ps := c.project(s.Project)
	if i := ps.find(s.log); i < len(ps.streams) && ps.streams[i] == s {
		if ps.streams = shrink.Slice(slices.Delete(ps.streams, i, i+1)); len(ps.streams) == 0 {
			r.projects.Add(-1)
		}
		c.unshare(*s.bounds.Load())
	}
	c.closed(s)
}

// Stream returns the stream with this id. It fails with StreamNotFound if there is no such stream,
// or if its lifetime has ended. On a shared store it may not find a stream that another node has
// just created; Find does.
func (h *Hub) Stream(id weir.StreamID) (*Stream, error) {
	if s := alive(h, id); s != nil {
		return s, nil
	}
	return nil, notFound(id)
}

// alive returns the stream with this id, or nil if there is no such stream or its lifetime has ended.
func alive(h *Hub, id weir.StreamID) *Stream {
	s := h.catalog.lookup(id)
	if s != nil && s.expired() {
		return nil
	}
	return s
}

// lookup returns the stream with this id, even if its lifetime has ended, or nil if there is no such
// stream.
func (c *catalog) lookup(id weir.StreamID) *Stream {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byID.Get(id)
}

// Count returns the number of streams of a project.
func (h *Hub) Count(p weir.ProjectID) int {
	h.catalog.mu.RLock()
	defer h.catalog.mu.RUnlock()
	if ps := h.catalog.projects[p]; ps != nil {
		return len(ps.streams)
	}
	return 0
}

// List returns up to limit streams of a project for which the function show returns true, newest
// first. It leaves out streams whose lifetime has ended. It starts below the given position, or at
// the newest stream if position is 0. The result more reports whether further streams follow, and
// the result next is the position to continue from (D27). Positions follow the order of creation,
// so streams that are created or deleted between two calls do not shift the pages.
func (h *Hub) List(ctx context.Context, p weir.ProjectID, position uint64, limit int, show func(weir.StreamID) bool) (list []weir.Stream, next uint64, more bool, err error) {
	if err := h.engine.CatchUp(ctx); err != nil {
		return nil, 0, false, clientError("", err)
	}
	var page []*Stream
	buf := make([]*Stream, min(limit+1, listRun))
	for below := position; !more; {
		run := h.catalog.fill(p, below, buf)
		for _, s := range run {
			if !show(s.ID) || s.expired() {
				continue
			}
			if more = len(page) == limit; more {
				break
			}
			page = append(page, s)
		}
		if len(run) < len(buf) {
			break
		}
		below = uint64(run[len(run)-1].log)
		buf = make([]*Stream, listRun) // show may accept only few of the streams, so look at many at a time
	}
	objects, faults := h.objects(ctx, page)
	for i, o := range objects {
		err := faults[i]
		if isNotFound(err) {
			continue // deleted since the page was read
		}
		if err != nil {
			return nil, 0, false, err
		}
		list = append(list, o)
	}
	if len(page) > 0 {
		next = uint64(page[len(page)-1].log)
	}
	return list, next, more, nil
}

// listRun is how many streams List looks at while it holds the catalog's lock.
const listRun = 256

// fill fills buf with streams of a project, newest first, and returns the filled part of buf. It
// starts with the newest stream below the given position, or with the newest of all if position is
// 0.
func (c *catalog) fill(p weir.ProjectID, position uint64, buf []*Stream) []*Stream {
	c.mu.RLock()
	defer c.mu.RUnlock()
	ps := c.projects[p]
	if ps == nil {
		return nil
	}
	i := len(ps.streams)
	if position > 0 {
		i = ps.find(engine.LogID(position))
	}
	n := min(i, len(buf))
	for k := range n {
		buf[k] = ps.streams[i-1-k]
	}
	return buf[:n]
}

func (s *Stream) object(r summary) weir.Stream {
	b := s.bounds.Load()
	return weir.Stream{
		ID: s.ID, Name: s.Name(), CreatedAt: s.CreatedAt, RetentionSeconds: b.retentionSeconds, MaxBytes: b.maxBytes,
		Cursor: r.cursor.Cursor, BytesStored: r.bytes, Mode: s.Mode, Closed: s.ended.Load(),
		TTLSeconds: s.TTLSeconds,
	}
}
