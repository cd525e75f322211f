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

// Spec is what a new stream is made of.
type Spec struct {
	ID               weir.StreamID // empty: the hub makes one
	Project          weir.ProjectID
	Name             string
	RetentionSeconds int64
	MaxBytes         int64
	Mode             weir.Mode
}

// Stream is one stream. It costs nothing to hold.
type Stream struct {
	Spec
	CreatedAt weir.Time

	hub *Hub
	log engine.LogID

	mu      sync.Mutex
	feed    *feed // while it is in use
	busy    *turn // the feed is being opened or folded away
	deleted bool
	resting *resting // of a feed that was folded away

	look   weir.Time // when the sweeper looks at it; guarded by its lock
	queued int       // where it is in the sweeper's queue, from 1 on; 0: it is not
}

// resting is what is known of a stream without opening its log, until a batch expires.
type resting struct {
	cursor weir.Cursor
	bytes  int64
	until  weir.Time // nothing expires before
}

// catalog is the streams that there are.
type catalog struct {
	mu       sync.RWMutex
	byID     map[weir.StreamID]*Stream
	projects map[weir.ProjectID]*shelf
	opened   map[*Stream]struct{}           // with a feed
	gone     map[weir.StreamID]engine.LogID // deleted elsewhere while the catalog is loaded; nil after that
}

// shelf is the streams of a project, by age.
type shelf struct {
	streams []*Stream // by log, which rises with the time of creation
	coming  int       // being created
}

func (c *catalog) init() {
	c.byID = make(map[weir.StreamID]*Stream)
	c.projects = make(map[weir.ProjectID]*shelf)
	c.opened = make(map[*Stream]struct{})
	c.gone = make(map[weir.StreamID]engine.LogID)
}

// load reads the catalog from the engine's documents.
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

func (c *catalog) shelf(p weir.ProjectID) *shelf {
	s := c.projects[p]
	if s == nil {
		s = &shelf{}
		c.projects[p] = s
	}
	return s
}

// add takes a stream in, and returns it, or the same stream that is there already: of a store that is shared, one hears of
// what one made oneself as well. One that was made later stays in its place.
func (c *catalog) add(s *Stream) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.byID[s.ID]; known != nil && known.log >= s.log {
		return known
	}
	if c.gone[s.ID] >= s.log {
		return s // deleted since the list was made
	}
	c.byID[s.ID] = s
	sh := c.shelf(s.Project)
	i := sh.find(s.log)
	sh.streams = slices.Insert(sh.streams, i, s)
	return s
}

// find is the place of the first stream that is not older than log.
func (sh *shelf) find(log engine.LogID) int {
	return sort.Search(len(sh.streams), func(i int) bool { return sh.streams[i].log >= log })
}

// deleted remembers that a stream is gone while the catalog is loaded: it may be in a list that was made before.
func (c *catalog) deleted(id weir.StreamID, log engine.LogID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone != nil {
		c.gone[id] = max(c.gone[id], log)
	}
}

func (c *catalog) loaded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = nil
}

func (c *catalog) remove(s *Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[s.ID] == s {
		delete(c.byID, s.ID)
	}
	sh := c.shelf(s.Project)
	if i := sh.find(s.log); i < len(sh.streams) && sh.streams[i] == s {
		sh.streams = slices.Delete(sh.streams, i, i+1)
	}
	delete(c.opened, s)
}

// reserve makes sure that one more stream fits, and that its id is free.
func (c *catalog) reserve(s *Spec, limit int) *weir.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[s.ID] != nil {
		return weir.Errorf(weir.StreamNameTaken, "there is a stream %s already", s.ID)
	}
	sh := c.shelf(s.Project)
	if len(sh.streams)+sh.coming >= limit {
		return weir.Errorf(weir.StreamLimitReached, "the project has %d streams, which is as many as it may have", limit)
	}
	sh.coming++
	return nil
}

func (c *catalog) arrived(p weir.ProjectID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shelf(p).coming--
}

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

// Create makes a stream. Errors: StreamNameTaken, StreamLimitReached (in this order, D10), StorageUnavailable.
func (h *Hub) Create(ctx context.Context, s Spec) (weir.Stream, error) {
	if s.ID == "" {
		s.ID = weir.NewStreamID()
	}
	refused := h.catalog.reserve(&s, h.opts.StreamsPerProject)
	if refused != nil && h.shared != nil {
		if err := h.catchUp(ctx); err != nil {
			return weir.Stream{}, outcome(s.ID, err)
		}
		refused = h.catalog.reserve(&s, h.opts.StreamsPerProject)
	}
	if refused != nil {
		return weir.Stream{}, refused
	}
	defer h.catalog.arrived(s.Project)
	created := h.now()
	value, err := writeDocument(&s, created)
	if err != nil {
		return weir.Stream{}, err
	}
	doc, err := h.engine.Create(ctx, documentKey(s.ID), value)
	if errors.Is(err, engine.ErrExists) {
		return weir.Stream{}, weir.Errorf(weir.StreamNameTaken, "there is a stream %s already", s.ID)
	}
	if err != nil {
		return weir.Stream{}, outcome(s.ID, err)
	}
	empty := resting{cursor: weir.Cursor{UpdatedAt: created}, until: never}
	made := &Stream{Spec: s, CreatedAt: created, hub: h, log: doc.Created, resting: &empty}
	if h.shared == nil {
		h.catalog.add(made)
	} // else it was, when we heard of it; and it may be deleted again, by another node
	return made.object(empty), nil
}

// Stream finds a stream; StreamNotFound when there is none.
func (h *Hub) Stream(id weir.StreamID) (*Stream, error) {
	h.catalog.mu.RLock()
	s := h.catalog.byID[id]
	h.catalog.mu.RUnlock()
	if s == nil {
		return nil, notFound(id)
	}
	return s, nil
}

// Count is the number of streams of a project.
func (h *Hub) Count(p weir.ProjectID) int {
	h.catalog.mu.RLock()
	defer h.catalog.mu.RUnlock()
	if sh := h.catalog.projects[p]; sh != nil {
		return len(sh.streams)
	}
	return 0
}

// List returns up to limit streams of a project for which show is true, from the newest to the oldest, older than the
// one at before (zero: from the newest). more tells whether others follow, and next is where (D27): streams are told
// apart by when they were created, so that one that is created or deleted meanwhile shifts nothing.
func (h *Hub) List(ctx context.Context, p weir.ProjectID, before uint64, limit int, show func(weir.StreamID) bool) (list []weir.Stream, next uint64, more bool, err error) {
	if err := h.catchUp(ctx); err != nil {
		return nil, 0, false, outcome("", err)
	}
	var page []*Stream
	h.catalog.mu.RLock()
	if sh := h.catalog.projects[p]; sh != nil {
		i := len(sh.streams)
		if before > 0 {
			i = sh.find(engine.LogID(before))
		}
		for i--; i >= 0 && !more; i-- {
			if !show(sh.streams[i].ID) {
				continue
			}
			if more = len(page) == limit; !more {
				page = append(page, sh.streams[i])
			}
		}
	}
	h.catalog.mu.RUnlock()
	objects, faults := h.objects(ctx, page)
	for i, o := range objects {
		err := faults[i]
		var known *weir.Error
		if errors.As(err, &known) && known.Code == weir.StreamNotFound {
			continue // deleted just now
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

// Delete removes the stream and all its batches; subscribers get ErrDeleted. StreamNotFound when it is gone already.
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
		return outcome(s.ID, err)
	}
	s.mu.Lock()
	s.deleted = true
	s.mu.Unlock()
	s.hub.catalog.remove(s)
	return nil
}

func (s *Stream) object(r resting) weir.Stream {
	return weir.Stream{
		ID: s.ID, Name: s.Name, CreatedAt: s.CreatedAt, RetentionSeconds: s.RetentionSeconds, MaxBytes: s.MaxBytes,
		Cursor: r.cursor.Cursor, BytesStored: r.bytes, Mode: s.Mode,
	}
}
