// Package budget shares what is scarce between keys and projects: memory for bodies and answers
// (Budget), and places for subscriptions (Places). Nothing is rationed while there is plenty. What
// is left when it becomes scarce goes to those who hold little; see shares for the rule.
//
// # Memory
//
// A body or an answer borrows memory with a Loan that grows as bytes arrive, so a client is charged
// for what it sent and not for what it declared. A Budget has three parts:
//
//   - The lane, an eighth, is for loans of at most Small bytes. Large loans never use it, so small
//     ones find room however many large ones are stuck.
//   - The reserve, about an eighth, is for finishing. See below.
//   - The rest is for large loans.
//
// The lane and the rest are divided by the rule of shares, each on its own.
//
// # Progress
//
// Loans that each hold a part and wait for more could wait for each other forever. The reserve
// prevents that, like the banker's algorithm with one spare of the largest size: a loan that waits
// and does not fit gets one of the reserve's tokens, if one is free. Its token covers all that it
// may still need, so it never waits again. It ends, and then all of its memory is free. Tokens go to
// the waiting loans whose keys hold least. So if a loan waits and no token is free, there are loans
// that need no more memory and can end.
//
// A client can keep such a loan from ending by sending or reading slowly. So while a loan waits,
// holders must move at least leastBytes every leastTime. A loan that does not is cut: its holder is
// told, and gives the memory back. Only loans of keys that hold at least as much as the key that
// waits are cut, those of the key that holds most first. Loans that wait for memory, or for the
// server's own disk, are not slow.
package budget

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Small is the size up to which a loan uses the lane.
const Small = 256 << 10

const (
	// While others wait, a holder must move leastBytes in every leastTime.
	leastBytes = 64 << 10
	leastTime  = 2 * time.Second

	pressEvery = leastTime / 4 // how often a waiting loan looks for slow holders
)

// ErrCut is the error of a loan that moved too little while others waited.
var ErrCut = errors.New("the memory was taken back, because it was hardly used while others waited for it")

// Budget is a number of bytes that many loans share. Its methods are safe for concurrent use. A nil
// Budget is unlimited.
type Budget struct {
	mu    sync.Mutex
	total int64
	small pool // the lane
	large pool
	cut   uint64 // loans cut so far
}

// New returns a budget of this many bytes, for loans of at most largest bytes each. It needs at
// least three times largest.
func New(bytes, largest int64) *Budget {
	largest = min(largest, bytes/3)
	lane, reserve := bytes/8, max(1, bytes/8/largest)
	small := min(Small, lane/4)
	spare := max(1, lane/8/small)
	return &Budget{
		total: bytes,
		small: newPool(lane-spare*small, spare, small),
		large: newPool(bytes-lane-reserve*largest, reserve, largest),
	}
}

// Loan is memory that a body or an answer borrows. Grow and Shrink may be called by one goroutine
// at a time. The methods of a nil Loan do nothing.
type Loan struct {
	b    *Budget
	of   Holder
	most int64 // the loan never grows beyond it; below 0 if that is not known
	stop func()

	moved atomic.Int64 // bytes that were sent or received
	lost  atomic.Bool  // it was cut

	ending sync.Mutex // held while stop is called
	ended  bool

	// Guarded by b.mu.
	pool  *pool // nil while nothing is held
	key   *key  // of pool
	size  int64
	token bool  // what it still needs comes from the reserve
	extra int64 // part of size that comes from the reserve
	wait  *waiter
	watch bool // it must move
	since time.Time
	seen  int64 // moved at since
}

// Open returns an empty loan. most is the size that it will not exceed, or negative if that is not
// known. stop is called, in another goroutine, if the loan is cut: it must make the holder return
// soon, for example by setting a deadline in the past. It is not called after End has returned.
func (b *Budget) Open(of Holder, most int64, stop func()) *Loan {
	if b == nil {
		return nil
	}
	return &Loan{b: b, of: of, most: most, stop: stop}
}

// Grow makes the loan at least size bytes. It waits until they are free for its holder. It fails
// with the error of the context if that ends first, or with ErrCut.
func (l *Loan) Grow(ctx context.Context, size int64) error {
	if l == nil {
		return nil
	}
	b := l.b
	b.mu.Lock()
	if l.lost.Load() {
		b.mu.Unlock()
		return ErrCut
	}
	size = min(size, b.large.largest)
	if size <= l.size {
		b.mu.Unlock()
		return nil
	}
	w := &waiter{loan: l, size: size, pool: b.poolFor(l, size)}
	if len(w.pool.queue) == 0 && w.pool.grant(w, false) { // as nearly always
		b.mu.Unlock()
		return nil
	}
	w.ready = make(chan struct{})
	l.wait = w
	w.key = w.pool.join(l.of)
	w.pool.queue = append(w.pool.queue, w)
	b.serve(w.pool)
	b.mu.Unlock()
	return l.await(ctx, w)
}

// poolFor returns the pool for a loan that grows to size.
func (b *Budget) poolFor(l *Loan, size int64) *pool {
	if l.pool == &b.large || l.most > b.small.largest || size > b.small.largest {
		return &b.large
	}
	return &b.small
}

// await waits until a request is granted. Meanwhile it looks for slow holders.
func (l *Loan) await(ctx context.Context, w *waiter) error {
	tick := time.NewTicker(pressEvery)
	defer tick.Stop()
	for {
		select {
		case <-w.ready:
			return nil
		case now := <-tick.C:
			l.b.mu.Lock()
			w.pool.press(now, l.b)
			gone := l.lost.Load() && l.wait == w
			if gone {
				l.b.withdraw(w)
			}
			l.b.mu.Unlock()
			if gone {
				return ErrCut
			}
		case <-ctx.Done():
			l.b.mu.Lock()
			defer l.b.mu.Unlock()
			if l.wait != w { // granted just before the context ended
				return nil
			}
			l.b.withdraw(w)
			return ctx.Err()
		}
	}
}

// Shrink makes the loan at most size bytes.
func (l *Loan) Shrink(size int64) {
	if l == nil {
		return
	}
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.shrink(size)
}

// End returns all memory. The loan must not be used any more.
func (l *Loan) End() {
	if l == nil {
		return
	}
	l.b.mu.Lock()
	l.shrink(0)
	l.watch = false
	l.b.mu.Unlock()
	l.ending.Lock()
	l.ended = true
	l.ending.Unlock()
}

// Watch says whether the holder depends on its client, so that it must move bytes while others
// wait. Initially it does not.
func (l *Loan) Watch(on bool) {
	if l == nil {
		return
	}
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.watch, l.since = on, time.Time{}
}

// Moved notes that n bytes were sent or received.
func (l *Loan) Moved(n int) {
	if l != nil {
		l.moved.Add(int64(n))
	}
}

// IsCut reports whether the loan was cut. Its holder must return the memory.
func (l *Loan) IsCut() bool { return l != nil && l.lost.Load() }

// Move passes n bytes of a loan on to another one, because the memory now belongs to that one. The
// other loan gets them even if its holder may not take more: they are held in any case.
func Move(from, to *Loan, n int64) {
	if from == nil || to == nil || n == 0 {
		return
	}
	b := from.b
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, from.size)
	from.shrink(from.size - n)
	p := b.poolFor(to, to.size+n)
	p.force(to, to.size+n)
}

// interrupt calls stop, unless the loan has ended.
func (l *Loan) interrupt() {
	l.ending.Lock()
	defer l.ending.Unlock()
	if !l.ended && l.stop != nil {
		l.stop()
	}
}

// Stats are the current values of a budget, and its counters.
type Stats struct {
	Total   int64
	Held    int64
	Waiting int    // loans that wait for memory
	Cut     uint64 // loans that were cut
}

// Stats returns the current values. Those of a nil Budget are zero.
func (b *Budget) Stats() Stats {
	if b == nil {
		return Stats{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{b.total, b.small.held + b.large.held, len(b.small.queue) + len(b.large.queue), b.cut}
}
