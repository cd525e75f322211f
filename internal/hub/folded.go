package hub

import (
	"container/list"
	"sync"

	"weir/internal/stream"
)

// folded keeps the states of closed streams. Reopening such a stream takes the same time however
// many batches the stream has. When the states together exceed the limit, folded drops the states
// of the streams that were closed first; the next use of those streams reads their logs instead.
//
// A kept state is valid only if the log has not changed since it was closed. So a hub keeps no
// states if other nodes write to the store.
type folded struct {
	limit int64 // maximum size of all states together, in bytes

	mu    sync.Mutex
	bytes int64
	order list.List // of *fold; the most recently closed stream is first
	of    map[*Stream]*list.Element
}

type fold struct {
	s     *Stream
	state *stream.State
	bytes int64
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
