package hub

import "sync/atomic"

// work counts the batches that were published to a stream on this node.
type work struct {
	batches, bytes atomic.Uint64
}

func (w *work) add(batches, bytes uint64) {
	if batches > 0 {
		w.batches.Add(batches)
		w.bytes.Add(bytes)
	}
}

// WorkOf returns the number of batches and payload bytes that this node stored in the stream s since
// the last call of Hub.TakeWork.
func WorkOf(s *Stream) (batches, bytes uint64) { return s.work.batches.Load(), s.work.bytes.Load() }

// TakeWork calls visit for each stream in which this node stored batches since the last call of
// TakeWork, and begins to count from 0 again. It visits every stream of the store, but holds no lock
// meanwhile.
func (h *Hub) TakeWork(visit func(s *Stream, batches, bytes uint64)) {
	for _, s := range h.Streams() {
		if s.work.batches.Load() > 0 {
			visit(s, s.work.batches.Swap(0), s.work.bytes.Swap(0))
		}
	}
}
