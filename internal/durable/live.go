package durable

import (
	"context"
	"sync"
	"time"

	"weir"
	"weir/internal/hub"
)

// audience stands for all live readers of one stream. Readers that are up to date share frames: one
// of them reads and encodes a frame, and the others use it too.
type audience struct {
	readers int // guarded by audiences.mu

	mu     sync.Mutex
	last   *frame
	flight *flight // the read whose result others wait for; nil if there is none
}

// frame is what readers at one position get next.
type frame struct {
	from weir.Seq
	e    hub.Extent
	data []byte // a data event; empty if there is nothing to read
}

// flight is a read in progress at one position.
type flight struct {
	from weir.Seq
	over chan struct{} // closed at the end of the read
}

const (
	// maxShared is the size of the largest frame that is kept for other readers. A frame of this
	// size may be used without memory from the budget (D34), so a slow reader may hold one.
	maxShared = 32 << 10
	// shareWait is how long a reader waits for the result of another reader, which may itself be
	// waiting for memory because its key has used up its share.
	shareWait = time.Second
)

// next returns the frame at a position. It calls the function read to get the frame, unless another
// reader has read it already or does so within shareWait.
func (a *audience) next(ctx context.Context, pos weir.Seq, read func() (*frame, error)) (*frame, error) {
	a.mu.Lock()
	last, other := a.last, a.flight
	own := &flight{pos, make(chan struct{})}
	if other == nil || other.from < pos {
		a.flight = own
	}
	a.mu.Unlock()
	if last != nil && last.from == pos {
		a.land(own, nil)
		return last, nil
	}
	if other != nil && other.from == pos {
		late := time.NewTimer(shareWait)
		defer late.Stop()
		select {
		case <-other.over:
		case <-late.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		a.mu.Lock()
		last = a.last
		a.mu.Unlock()
		if last != nil && last.from == pos {
			return last, nil
		}
		return read()
	}
	var f *frame
	defer func() { a.land(own, f) }() // runs even if the function read panics
	f, err := read()
	return f, err
}

// land ends a read. It keeps the frame for other readers, unless the frame is nil, empty or too
// large.
func (a *audience) land(own *flight, f *frame) {
	close(own.over)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.flight == own {
		a.flight = nil
	}
	if f != nil && len(f.data) > 0 && len(f.data) <= maxShared && (a.last == nil || a.last.from < f.from) {
		a.last = f
	}
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
