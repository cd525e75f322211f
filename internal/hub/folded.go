package hub

import (
	"container/list"
	"sync"

	"weir/internal/stream"
)

// folded keeps the states of streams that are not in use, whose logs the hub has closed. (These are
// not the streams that a client has closed for good.) With a kept state, opening the log takes the
// same time however many batches the stream has. When the states together exceed the limit, folded
// drops those of the logs that were closed first; the next use of such a stream reads its log
// instead.
//
// A kept state is valid only if the log has not changed since the hub closed the log. So a hub
// keeps no states if other nodes write to the store.
type folded struct {
	limit int64 // maximum size of all states together, in bytes

	mu    sync.Mutex
	bytes int64
	order list.List // list of *fold; the stream whose log was closed most recently is first
	of    map[*Stream]*list.Element
}

type fold struct {
	s     *Stream
	state *stream.State
	bytes int64
}

// fewBatches is the number of batches up to which reading the state from the log is about as quick
// as using a kept state.
const fewBatches = 256

// isCostly reports whether it takes long to read the state from the log. The state of a stream with
// few batches and without gaps and keys comes from the engine's index alone, so keeping it would be
// a waste of memory.
func isCostly(s *stream.State) bool {
	return stream.Held(s) > 0 || s.Cursor().Cursor >= s.Low()+fewBatches
}

func (d *folded) init(limit int64) {
	d.limit = limit
	d.of = make(map[*Stream]*list.Element)
}

// put keeps the state of a stream whose log was closed. The caller must not use the state
// afterwards.
func (d *folded) put(s *Stream, state *stream.State) {
	f := &fold{s, state, stream.Memory(state)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(s)
	if f.bytes > d.limit {
		return
	}
	d.of[s] = d.order.PushFront(f)
	for d.bytes += f.bytes; d.bytes > d.limit; {
		d.remove(d.order.Back().Value.(*fold).s)
	}
}

// take removes and returns the state of a stream, or nil if there is none.
func (d *folded) take(s *Stream) *stream.State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.remove(s)
}

func (d *folded) remove(s *Stream) *stream.State {
	e := d.of[s]
	if e == nil {
		return nil
	}
	f := d.order.Remove(e).(*fold)
	delete(d.of, s)
	d.bytes -= f.bytes
	return f.state
}
