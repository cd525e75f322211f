package hub

import (
	"sync/atomic"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// This file bounds the memory that this node keeps for all batches and idempotency keys together
// (D12): the engine's index, and the gaps and keys of open streams. While the sum exceeds
// Options.IndexBytes, the hub refuses new batches for each project that uses more than an equal
// share of that bound. The other projects together can use at most the bound, so the sum stays
// below about twice the bound. Deleting, trimming and reading always work, and deleting and
// trimming free memory again.
//
// The hub measures each stream that was used once per sweep, and after each trim, but not at each
// publish. So the check costs a publish only one atomic load. The batches stored between two sweeps, which are a
// second apart, need little memory compared with the bound.

// room counts the bytes of memory in use and the projects that share the bound.
type room struct {
	used     atomic.Int64
	projects atomic.Int64 // number of projects that have streams
	refusing atomic.Bool  // a publish was refused since the memory in use was last below the bound
}

// setUse records how many bytes of memory a stream uses. Called with s.mu held.
func (s *Stream) setUse(bytes int64) {
	if s.deleted {
		return
	}
	s.owner.used.Add(bytes - s.used)
	s.hub.room.used.Add(bytes - s.used)
	s.used = bytes
}

// measureClosed records the memory of a stream whose log is closed. Only the memory of the engine
// counts: a state that the hub keeps for such a stream counts towards Options.StateBytes instead.
func measureClosed(f *feed) {
	bytes, s := logBytes(f), f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.traffic.open() == nil {
		s.setUse(bytes)
	}
}

// logBytes returns how many bytes of memory the engine uses for the log of the feed, open or not.
func logBytes(f *feed) int64 {
	if l, ok := f.log.(engine.Sized); ok {
		return l.Held()
	}
	return f.hub.engine.Held(f.s.log)
}

// measure records the memory that the feed's stream uses. It holds no lock while it asks the
// engine. Otherwise it could deadlock: an engine may hold a lock of its own while it calls
// documentChanged, which needs Stream.mu.
func (f *feed) measure() {
	bytes := logBytes(f)
	f.mu.Lock()
	bytes += stream.Held(f.ahead) + stream.Held(f.state)
	f.mu.Unlock()
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.s.traffic.open() == f {
		f.s.setUse(bytes)
	}
}

// refusesBatches returns the reason why the stream accepts no new batches, or nil if it accepts
// them. Callers store late batches (those that fill a gap) in any case, because late batches are few.
// If they were refused, a publisher could be left with a gap below batches that were stored before
// the memory was used up.
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

// acceptAgain logs which projects may publish again once the memory in use is within the bound. The
// sweeper calls it.
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
