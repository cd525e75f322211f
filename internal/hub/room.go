package hub

import (
	"sync/atomic"

	"weir"
	"weir/internal/stream"
)

// This file bounds the memory that this node keeps for all batches and idempotency keys together
// (D12): the engine's index, and the gaps and keys of open streams. Beyond Options.IndexBytes, each
// project that uses more than an equal share of it gets no new batches stored. So the sum stays below
// twice the bound. Deleting, trimming and reading always work and bring the use down again.
//
// The use of a stream is measured once per sweep, and after each trim: a publish costs one atomic
// load, and what is stored in a second is little against the bound.

// room is the memory in use, and the projects that share it.
type room struct {
	used     atomic.Int64
	projects atomic.Int64 // that have streams
	refusing atomic.Bool  // a publish was refused since the use was last below the bound
}

// setUse sets the memory that a stream uses. Called with s.mu held.
func (s *Stream) setUse(bytes int64) {
	if s.deleted {
		return
	}
	s.owner.used.Add(bytes - s.used)
	s.hub.room.used.Add(bytes - s.used)
	s.used = bytes
}

// measureAll sets the use of all streams, none of which is open yet.
func (h *Hub) measureAll() {
	h.catalog.mu.RLock()
	all := make([]*Stream, 0, len(h.catalog.byID))
	for _, s := range h.catalog.byID {
		all = append(all, s)
	}
	h.catalog.mu.RUnlock()
	for _, s := range all {
		h.measureClosed(s)
	}
}

// measureClosed sets the use of a stream that is not open: what the engine holds for it.
func (h *Hub) measureClosed(s *Stream) {
	bytes := h.engine.Held(s.log)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.feed == nil {
		s.setUse(bytes)
	}
}

// measure sets the use of the feed's stream. It asks the engine without a lock: an engine may call
// documentChanged, which needs Stream.mu, with a lock of its own held.
func (f *feed) measure() {
	bytes := f.hub.engine.Held(f.s.log)
	f.mu.Lock()
	bytes += stream.Held(f.ahead) + stream.Held(f.state)
	f.mu.Unlock()
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.s.feed == f {
		f.s.setUse(bytes)
	}
}

// refusesBatches returns why the stream takes no new batches, or nil if it does. Late batches are
// stored in any case: they are few, and a publisher whose later batches were stored before the memory
// was used up must not be left with a gap.
func (s *Stream) refusesBatches() error {
	r, limit := &s.hub.room, s.hub.opts.IndexBytes
	if r.used.Load() <= limit {
		return nil
	}
	used := s.owner.used.Load()
	if used <= limit/max(r.projects.Load(), 1) {
		return nil
	}
	r.refusing.Store(true)
	if s.owner.refused.CompareAndSwap(false, true) {
		s.hub.opts.Logger.Warn("refused publishes of a project: the memory for the index of batches is used up, and the project uses more than its share",
			"project", s.Project, "project_bytes", used, "all_bytes", r.used.Load(), "max_index_memory", limit)
	}
	return errIndexFull
}

var errIndexFull = weir.Errorf(weir.StorageUnavailable, "the server has no memory for the index of more batches, and this project uses "+
	"more than its share of it: delete streams, or retry when old batches have expired")

// acceptAgain logs which projects may publish again. The sweeper calls it.
func (h *Hub) acceptAgain() {
	if h.room.used.Load() > h.opts.IndexBytes || !h.room.refusing.Swap(false) {
		return
	}
	h.catalog.mu.RLock()
	defer h.catalog.mu.RUnlock()
	for id, p := range h.catalog.projects {
		if p.refused.Swap(false) {
			h.opts.Logger.Info("accepted publishes of a project again", "project", id, "project_bytes", p.used.Load())
		}
	}
}
