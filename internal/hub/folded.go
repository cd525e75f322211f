package hub

import (
	"container/list"
	"sync"

	"weir/internal/engine"
	"weir/internal/shrink"
	"weir/internal/stream"
)

// folded keeps the states of streams that are not in use, whose logs the hub has closed. (These are
// not the streams that a client has closed for good.) With a kept state, opening the log takes the
// same time however many batches the stream has. When the states together exceed the limit, folded
// drops those of the logs that were closed first; the next use of such a stream reads its log
// instead.
//
// On a shared store, other nodes may change a log that this node has closed. So the closed log is
// kept with the state: the engine continues with both, and reports what has changed since
// (engine.Returning).
type folded struct {
	limit int64 // maximum size of all states together, in bytes

	mu    sync.Mutex
	bytes int64
	order list.List // list of *fold; the stream whose log was closed most recently is first
	of    shrink.Map[*Stream, *list.Element]
}

type fold struct {
	s     *Stream
	state *stream.State
	left  engine.Log // the closed log; nil unless the store is shared
	bytes int64
}

// fewBatches is the number of batches up to which reading the state from the log is about as quick
// as using a kept state.
const fewBatches = 256

// closedLog is about how many bytes a closed log takes, apart from its index.
const closedLog = 1 << 10

// isCostly reports whether it takes long to read the state from the log. The state of a stream with
// few batches and without gaps and keys comes from the engine's index alone, so keeping it would be
// a waste of memory. On a shared store every state is kept, because the index is not in memory: to
// read it, the engine asks the servers several times.
func isCostly(s *stream.State) bool {
	return stream.Held(s) > 0 || s.Cursor().Cursor >= s.Low()+fewBatches
}

func (d *folded) init(limit int64) {
	d.limit = limit
}

// put keeps the state of a stream whose log was closed. The caller must not use the state
// afterwards.
func (d *folded) put(f *fold) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(f.s)
	if f.bytes > d.limit {
		return
	}
	d.of.Set(f.s, d.order.PushFront(f))
	for d.bytes += f.bytes; d.bytes > d.limit; {
		d.remove(d.order.Back().Value.(*fold).s)
	}
}

// take removes and returns the state of a stream, or nil if there is none.
func (d *folded) take(s *Stream) *fold {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.remove(s)
}

func (d *folded) remove(s *Stream) *fold {
	e := d.of.Get(s)
	if e == nil {
		return nil
	}
	f := d.order.Remove(e).(*fold)
	d.of.Delete(s)
	d.bytes -= f.bytes
	return f
}
