// Package budget limits memory by reserving it before it is used. A caller that asks for more than
// is free waits in a queue, and no holder gets more than half of the total.
package budget

import (
	"context"
	"slices"
	"sync"
)

// Budget is a number of bytes that several holders share. Its methods are safe for concurrent use.
// A nil Budget is unlimited.
type Budget struct {
	mu    sync.Mutex
	share int64 // maximum per holder
	free  int64
	held  map[string]int64 // by holder
	queue []*waiter        // in order of arrival
}

// waiter is a call of Take that waits for its bytes.
type waiter struct {
	holder string
	bytes  int64
	ready  chan struct{}
}

// New returns a budget of this many bytes.
func New(bytes int64) *Budget {
	return &Budget{share: bytes - bytes/2, free: bytes, held: make(map[string]int64)}
}

// Take reserves bytes for a holder. It waits while they are not free, or while they would take the
// holder above half of the total. It returns the context's error if that ends first.
//
// The result is the number of bytes reserved, to be returned with Give. A request for more than
// half of the total reserves only half. Requests are served in order of arrival whatever their
// size, so that neither large nor small ones starve.
func (b *Budget) Take(ctx context.Context, holder string, bytes int64) (int64, error) {
	if b == nil {
		return 0, nil
	}
	bytes = min(bytes, b.share)
	b.mu.Lock()
	if len(b.queue) == 0 && bytes <= b.free && b.held[holder]+bytes <= b.share { // as nearly always
		b.free -= bytes
		b.held[holder] += bytes
		b.mu.Unlock()
		return bytes, nil
	}
	w := &waiter{holder, bytes, make(chan struct{})}
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
		b.serve() // it may have blocked smaller requests behind it
		return 0, ctx.Err()
	}
	return w.bytes, nil // serve granted it just before the context ended
}

// Give returns bytes that the holder got from Take.
func (b *Budget) Give(holder string, bytes int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += bytes
	if b.held[holder] -= bytes; b.held[holder] == 0 {
		delete(b.held, holder)
	}
	b.serve()
}

// serve grants waiting requests in order. It skips a request whose holder is at its limit, because
// only that holder can change it. It does not skip a request that needs more free bytes: smaller
// requests behind it would keep taking them, and it would starve. Called with b.mu held.
func (b *Budget) serve() {
	kept, stuck := b.queue[:0], false
	for _, w := range b.queue {
		atLimit := b.held[w.holder]+w.bytes > b.share
		stuck = stuck || !atLimit && w.bytes > b.free
		if atLimit || stuck {
			kept = append(kept, w)
			continue
		}
		b.free -= w.bytes
		b.held[w.holder] += w.bytes
		close(w.ready)
	}
	clear(b.queue[len(kept):])
	b.queue = kept
}
