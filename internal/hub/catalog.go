package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"weir"
	"weir/internal/engine"
)

// Spec holds the settings of a stream. They never change.
type Spec struct {
	ID               weir.StreamID // empty in Create: the hub generates one
	Project          weir.ProjectID
	Name             string
	RetentionSeconds int64
	MaxBytes         int64
	Mode             weir.Mode
}

// Stream is a handle to one stream. Its methods are safe for concurrent use. A handle may be kept
// for any length of time: it holds no log open. Once the stream is deleted, its methods return
// StreamNotFound.
//
// Lock order: Stream.mu, then feed.mu. Neither is taken while the catalog's or the sweeper's lock
// is held.
type Stream struct {
	Spec
	CreatedAt weir.Time

	hub *Hub
	log engine.LogID

	mu      sync.Mutex
	feed    *feed       // while the log is open; otherwise nil
	busy    *transition // while the feed is being opened or closed; otherwise nil
	deleted bool
	summary *summary // while no feed is open: what the last one left; nil if there was none

	holds holds // has its own lock, which may be taken with any other held

	// Guarded by sweeper.mu.
	checkAt weir.Time // when the sweeper opens the stream to evict
	queued  int       // position in the sweeper's queue, counted from 1; 0: not in the queue
}

// summary holds what is known of a stream while its log is closed. It is valid until a batch
// expires.
type summary struct {
	cursor weir.Cursor
	bytes  int64
	until  weir.Time // no batch expires before this time
}

// catalog holds all streams of the store.
type catalog struct {
	mu       sync.RWMutex
	byID     map[weir.StreamID]*Stream
	projects map[weir.ProjectID]*projectStreams
	opened   map[*Stream]struct{} // streams with a feed

	// tombstones records deletions while the catalog is loaded from a list, which may be older than
	// the deletion. Afterwards it is nil.
	tombstones map[weir.StreamID]engine.LogID
}

// projectStreams are the streams of one project.
type projectStreams struct {
	streams  []*Stream // oldest first: in increasing order of log, which is unique and never reused
	creating int       // calls of Create in flight, which count towards the limit
}

func (c *catalog) init() {
	c.byID = make(map[weir.StreamID]*Stream)
	c.projects = make(map[weir.ProjectID]*projectStreams)
	c.opened = make(map[*Stream]struct{})
	c.tombstones = make(map[weir.StreamID]engine.LogID)
}

// load reads the catalog from the store.
func (h *Hub) load(ctx context.Context) error {
	defer h.catalog.loaded()
	for after := ""; ; {
		docs, err := h.engine.List(ctx, documents, after, 1000)
		if err != nil {
			return fmt.Errorf("list streams: %w", err)
		}
		if len(docs) == 0 {
			break
		}
		for _, d := range docs {
			after = d.Key
			s, err := h.streamOf(d)
			if err != nil {
				return fmt.Errorf("read %s: %w", d.Key, err)
			}
			h.catalog.add(s)
		}
	}
	return nil
}

func (c *catalog) project(p weir.ProjectID) *projectStreams {
	s := c.projects[p]
	if s == nil {
		s = &projectStreams{}
		c.projects[p] = s
	}
	return s
}

// add adds a stream and returns it. It returns the known stream instead if the catalog has this one
// already, or a newer one with the same id. A shared store reports a node's own changes too, so a
// node can learn of a stream twice.
func (c *catalog) add(s *Stream) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.byID[s.ID]; known != nil && known.log >= s.log {
		return known
	}
	if c.tombstones[s.ID] >= s.log {
		return s // deleted since the list was read
	}
	c.byID[s.ID] = s
	ps := c.project(s.Project)
	i := ps.find(s.log)
	ps.streams = slices.Insert(ps.streams, i, s)
	return s
}

// find returns the index of the first stream whose log is not older than log.
func (ps *projectStreams) find(log engine.LogID) int {
	return sort.Search(len(ps.streams), func(i int) bool { return ps.streams[i].log >= log })
}

// noteDeleted records a deletion while the catalog is being loaded, so that add ignores a list that
// was read before it.
func (c *catalog) noteDeleted(id weir.StreamID, log engine.LogID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tombstones != nil {
		c.tombstones[id] = max(c.tombstones[id], log)
	}
}

// loaded ends the recording of deletions.
func (c *catalog) loaded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tombstones = nil
}

func (c *catalog) remove(s *Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[s.ID] == s {
		delete(c.byID, s.ID)
	}
	ps := c.project(s.Project)
	if i := ps.find(s.log); i < len(ps.streams) && ps.streams[i] == s {
		ps.streams = slices.Delete(ps.streams, i, i+1)
	}
	delete(c.opened, s)
}

// reserve checks that the id is free and that the project may have one more stream, and counts the
// stream as being created. The caller must call unreserve when Create has ended.
func (c *catalog) reserve(s *Spec, limit int) *weir.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[s.ID] != nil {
		return weir.Errorf(weir.StreamNameTaken, "stream %s already exists", s.ID)
	}
	ps := c.project(s.Project)
	if len(ps.streams)+ps.creating >= limit {
		return weir.Errorf(weir.StreamLimitReached, "the project has reached its limit of %d streams", limit)
	}
	ps.creating++
	return nil
}

func (c *catalog) unreserve(p weir.ProjectID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.project(p).creating--
}

// open returns the streams with a feed.
func (c *catalog) open() []*Stream {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]*Stream, 0, len(c.opened))
	for s := range c.opened {
		all = append(all, s)
	}
	return all
}

func (c *catalog) setOpen(s *Stream, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if open {
		c.opened[s] = struct{}{}
	} else {
		delete(c.opened, s)
	}
}

// Create creates a stream. It is durable when the call returns, and on a shared store known to all
// nodes that catch up. It fails with StreamNameTaken, StreamLimitReached (checked in this order,
// D10) or StorageUnavailable.
func (h *Hub) Create(ctx context.Context, s Spec) (weir.Stream, error) {
	if s.ID == "" {
		s.ID = weir.NewStreamID()
	}
	refused := h.catalog.reserve(&s, h.opts.StreamsPerProject)
	if refused != nil && h.shared != nil { // another node may have deleted a stream in the meantime
		if err := h.catchUp(ctx); err != nil {
			return weir.Stream{}, clientError(s.ID, err)
		}
		refused = h.catalog.reserve(&s, h.opts.StreamsPerProject)
	}
	if refused != nil {
		return weir.Stream{}, refused
	}
	defer h.catalog.unreserve(s.Project)
	created := h.now()
	value, err := writeDocument(&s, created)
	if err != nil {
		return weir.Stream{}, err
	}
	doc, err := h.engine.Create(ctx, documentKey(s.ID), value)
	if errors.Is(err, engine.ErrExists) {
		return weir.Stream{}, weir.Errorf(weir.StreamNameTaken, "stream %s already exists", s.ID)
	}
	if err != nil {
		return weir.Stream{}, clientError(s.ID, err)
	}
	empty := summary{cursor: weir.Cursor{UpdatedAt: created}, until: never}
	made := &Stream{Spec: s, CreatedAt: created, hub: h, log: doc.Created, summary: &empty}
	// On a shared store documentChanged has added it already. Adding it here again could bring back
	// a stream that another node has deleted since.
	if h.shared == nil {
		h.catalog.add(made)
	}
	return made.object(empty), nil
}

// Stream returns the stream with this id, or StreamNotFound. On a shared store it may not know a
// stream that another node just created; see Find.
func (h *Hub) Stream(id weir.StreamID) (*Stream, error) {
	h.catalog.mu.RLock()
	s := h.catalog.byID[id]
	h.catalog.mu.RUnlock()
	if s == nil {
		return nil, notFound(id)
	}
	return s, nil
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

// List returns up to limit streams of a project for which show returns true, newest first. It
// starts below the position before; 0 starts at the newest. more tells whether further streams
// follow, and next is the position to continue from (D27). Positions are creation order, so streams
// that are created or deleted between two calls do not shift the pages.
func (h *Hub) List(ctx context.Context, p weir.ProjectID, before uint64, limit int, show func(weir.StreamID) bool) (list []weir.Stream, next uint64, more bool, err error) {
	if err := h.catchUp(ctx); err != nil {
		return nil, 0, false, clientError("", err)
	}
	var page []*Stream
	h.catalog.mu.RLock()
	if ps := h.catalog.projects[p]; ps != nil {
		i := len(ps.streams)
		if before > 0 {
			i = ps.find(engine.LogID(before))
		}
		for i--; i >= 0 && !more; i-- {
			if !show(ps.streams[i].ID) {
				continue
			}
			if more = len(page) == limit; !more {
				page = append(page, ps.streams[i])
			}
		}
	}
	h.catalog.mu.RUnlock()
	objects, faults := h.objects(ctx, page)
	for i, o := range objects {
		err := faults[i]
		var known *weir.Error
		if errors.As(err, &known) && known.Code == weir.StreamNotFound {
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

// Delete deletes the stream and all its batches, durably. Subscribers get ErrDeleted. It fails with
// StreamNotFound if the stream was deleted before, even if another stream with the same id has been
// created since.
func (s *Stream) Delete(ctx context.Context) error {
	doc, err := s.hub.engine.Get(ctx, documentKey(s.ID))
	if errors.Is(err, engine.ErrNotFound) || err == nil && doc.Created != s.log {
		return notFound(s.ID)
	}
	if err == nil {
		err = s.hub.engine.Delete(ctx, documentKey(s.ID), doc.Revision)
	}
	switch {
	case errors.Is(err, engine.ErrNotFound), errors.Is(err, engine.ErrConflict):
		return notFound(s.ID)
	case err != nil:
		return clientError(s.ID, err)
	}
	s.mu.Lock()
	s.deleted = true
	s.mu.Unlock()
	s.hub.catalog.remove(s)
	return nil
}

func (s *Stream) object(r summary) weir.Stream {
	return weir.Stream{
		ID: s.ID, Name: s.Name, CreatedAt: s.CreatedAt, RetentionSeconds: s.RetentionSeconds, MaxBytes: s.MaxBytes,
		Cursor: r.cursor.Cursor, BytesStored: r.bytes, Mode: s.Mode,
	}
}
