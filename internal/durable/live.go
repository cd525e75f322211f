package durable

import (
	"sync"

	"weir"
	"weir/internal/hub"
)

// audience is the readers of live reads of one stream. Those that are up to date share the frames that
// they get: one of them reads and encodes a frame, and the others use it too.
type audience struct {
	readers int // guarded by audiences.mu

	mu   sync.Mutex
	last *frame
}

// frame is what readers at one position get next.
type frame struct {
	from weir.Seq
	e    hub.Extent
	data []byte // a data event; empty if there is nothing to read
}

// maxShared is the size of the largest frame that is kept for other readers.
const maxShared = 64 << 10

// next returns the frame at a position. If another reader has not read it yet, next calls the function
// read, while readers at the same position wait for the result. A reader that is behind the others
// waits for none of them.
func (a *audience) next(pos weir.Seq, read func() (*frame, error)) (*frame, error) {
	a.mu.Lock()
	if a.last != nil && a.last.from > pos {
		a.mu.Unlock()
		return read()
	}
	defer a.mu.Unlock()
	if a.last != nil && a.last.from == pos {
		return a.last, nil
	}
	f, err := read()
	if err == nil && len(f.data) > 0 && len(f.data) <= maxShared {
		a.last = f
	}
	return f, err
}

// audiences are the audiences of the streams that have readers.
type audiences struct {
	mu sync.Mutex
	of map[*hub.Stream]*audience
}

// join adds a reader to the audience of a stream. The function that it returns removes the reader.
func (all *audiences) join(s *hub.Stream) (a *audience, leave func()) {
	all.mu.Lock()
	defer all.mu.Unlock()
	a = all.of[s]
	if a == nil {
		if all.of == nil {
			all.of = map[*hub.Stream]*audience{}
		}
		a = &audience{}
		all.of[s] = a
	}
	a.readers++
	return a, func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		if a.readers--; a.readers == 0 {
			delete(all.of, s)
		}
	}
}
