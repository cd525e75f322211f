// Package budget is memory that is given out before it is used: whoever wants much of it waits for its turn, and nobody gets
// more than half.
package budget

import (
	"context"
	"slices"
	"sync"
)

// Budget is a number of bytes that many share. One that is nil has no end.
type Budget struct {
	mu    sync.Mutex
	share int64 // the most that one holder has
	free  int64
	held  map[string]int64
	queue []*waiter // in the order in which they came
}

// waiter is somebody whose bytes are not free yet.
type waiter struct {
	who   string
	bytes int64
	ready chan struct{}
}

// New makes a budget.
func New(bytes int64) *Budget {
	return &Budget{share: bytes - bytes/2, free: bytes, held: make(map[string]int64)}
}

// Take takes bytes for a holder, and waits for them while they are not free, or while this holder has half of all: its error
// is that of the context. What was taken, which is less than was asked for where that is more than a share, is given
// back with Give. Large and small are served in the order in which they come, so that neither waits for ever.
func (b *Budget) Take(ctx context.Context, who string, bytes int64) (int64, error) {
	if b == nil {
		return 0, nil
	}
	bytes = min(bytes, b.share)
	b.mu.Lock()
	if len(b.queue) == 0 && bytes <= b.free && b.held[who]+bytes <= b.share { // as nearly always
		b.free -= bytes
		b.held[who] += bytes
		b.mu.Unlock()
		return bytes, nil
	}
	w := &waiter{who, bytes, make(chan struct{})}
	b.queue = append(b.queue, w)
	b.serve()
	b.mu.Unlock()
	select {
	case <-w.ready:
		return w.bytes, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.queue, w); i >= 0 {
		b.queue = slices.Delete(b.queue, i, i+1)
		b.serve() // it may have stood in the way
		return 0, ctx.Err()
	}
	return w.bytes, nil // it became ready in the same moment
}

// Give gives bytes back that Take returned.
func (b *Budget) Give(who string, bytes int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += bytes
	if b.held[who] -= bytes; b.held[who] == 0 {
		delete(b.held, who)
	}
	b.serve()
}

// serve gives to those who wait, in order. Who has its share is passed over; who is to wait for free bytes is not, or smaller
// ones would always be served before it.
func (b *Budget) serve() {
	kept, stuck := b.queue[:0], false
	for _, w := range b.queue {
		sated := b.held[w.who]+w.bytes > b.share
		stuck = stuck || !sated && w.bytes > b.free
		if sated || stuck {
			kept = append(kept, w)
			continue
		}
		b.free -= w.bytes
		b.held[w.who] += w.bytes
		close(w.ready)
	}
	clear(b.queue[len(kept):])
	b.queue = kept
}
