// Package budget divides scarce resources between keys and projects: memory for request bodies and
// responses (Budget), and places for subscriptions (Places). Each open subscription takes one
// place. While there is plenty, nothing is rationed. When a resource becomes scarce, the rest of it
// is kept for keys and projects that hold little. The type shares has the exact rule.
//
// # Memory
//
// A body or a response borrows memory with a Loan. The loan grows as bytes arrive, so a client is
// charged for the bytes that it sent, and not for the length that it declared. A Budget has three
// parts:
//
//   - The lane, an eighth of the budget, is for loans of at most 256 KiB (the constant Small).
//     Large loans never use it. So small loans find room, however many large loans are stuck.
//   - The reserve, about an eighth, keeps loans from waiting for each other forever. The next
//     section explains it.
//   - The rest is for large loans.
//
// The rule of shares applies to the lane and to the rest separately.
//
// # Progress
//
// Loans that each hold a part of their memory and wait for more could wait for each other forever.
// The reserve prevents that, in the way of the banker's algorithm. It consists of tokens, each as
// large as the largest possible loan. A waiting loan that does not fit gets a token, if one is
// free. From then on, the token covers all the memory that the loan still needs, so the loan never
// waits again. It ends, and then all of its memory is free. If several loans wait, those whose
// projects and keys hold least get tokens first. If no token is free, other loans have the tokens.
// Those loans never wait for memory, so they can end and let the waiting loans continue.
//
// A client could keep such a loan from ending by sending or reading slowly. So while any loan
// waits, a loan that depends on its client must move (send or receive) at least leastBytes in every
// period of length leastTime. A loan that moves less is cut: the budget calls the loan's stop
// function, and the code that uses the loan must return the memory. Only loans of keys that hold at
// least as much as the waiting key are cut. Loans of the projects and keys that hold most are cut
// first. A loan is not slow while it waits for the server's own disk, or for more memory from the
// part of the budget that it already uses.
//
// Several loans can share memory that one of them, the payer, is charged for. All of them must be
// fast enough. The slow ones are cut at the same time.
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
	// While other loans wait, a loan must send or receive leastBytes in every period of length
	// leastTime.
	leastBytes = 64 << 10
	leastTime  = 2 * time.Second

	pressEvery = leastTime / 4 // how often a waiting loan looks for slow loans
)

// ErrCut is the error of a loan that was cut: it sent or received too little while other loans
// waited for memory.
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

// New returns a budget of this many bytes. The parameter largest is the maximum size of a loan. If
// it is more than a third of the budget, the maximum is a third of the budget.
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

// Loan is memory that a body or a response borrows. Only one goroutine at a time may call Grow and
// Shrink. The methods of a nil Loan do nothing.
type Loan struct {
	b       *Budget
	of      Holder
	maxSize int64 // the largest size that the loan can reach; negative if that is not known
	stop    func()

	moved atomic.Int64 // bytes that were sent or received
	lost  atomic.Bool  // the loan was cut

	ending sync.Mutex // held while the function stop is called
	ended  bool

	// Guarded by b.mu.
	pool  *pool // nil while the loan holds nothing
	key   *key  // the entry for the holder's key in pool
	size  int64
	token bool  // the loan has a token: further memory comes from the reserve
	extra int64 // how many of the bytes of the loan come from the reserve
	wait  *waiter
	watch bool      // the loan must send or receive enough; see Watch
	since time.Time // start of the current measurement of the loan's speed
	seen  int64     // bytes that had been sent or received at that start

	sharers map[*Loan]struct{} // loans that use the memory of this loan, see Share
}

// Open returns an empty loan. The parameter maxSize is the largest size that the loan can reach, or
// negative if that is not known. If the loan is cut, the budget calls the function stop in another
// goroutine. This function must make the code that uses the loan call End soon, for example by
// setting a deadline in the past. It is not called after End has returned.
func (b *Budget) Open(of Holder, maxSize int64, stop func()) *Loan {
	if b == nil {
		return nil
	}
	return &Loan{b: b, of: of, maxSize: maxSize, stop: stop}
}

// Grow enlarges the loan to at least size bytes, or to the maximum size of a loan (see New) if that
// is less. It waits until the holder of the loan may have these bytes. If the context ends first,
// Grow returns the error of the context. If the loan was cut, Grow returns ErrCut.
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
	if len(w.pool.queue) == 0 && w.pool.grant(w, false) { // the usual case: no need to wait
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

// TryGrow does the same as Grow, but does not wait. It returns false if Grow would have to wait.
func (l *Loan) TryGrow(size int64) bool {
	if l == nil {
		return true
	}
	b := l.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if size = min(size, b.large.largest); size <= l.size {
		return true
	}
	w := &waiter{loan: l, size: size, pool: b.poolFor(l, size)}
	return len(w.pool.queue) == 0 && w.pool.grant(w, false)
}

// poolFor returns the pool for a loan that grows to size.
func (b *Budget) poolFor(l *Loan, size int64) *pool {
	if l.pool == &b.large || l.maxSize > b.small.largest || size > b.small.largest {
		return &b.large
	}
	return &b.small
}

// await waits until the request w is granted. Meanwhile it looks for slow loans.
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

// Shrink reduces the loan to at most size bytes.
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

// Watch sets whether the loan depends on a client that sends or reads. While other loans wait, a
// loan that depends on its client is cut if it is too slow. Until Watch(true) is called, a loan is
// never too slow.
func (l *Loan) Watch(on bool) {
	if l == nil {
		return
	}
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	l.watch, l.since = on, time.Time{}
}

// Moved records that n bytes were sent or received.
func (l *Loan) Moved(n int) {
	if l != nil {
		l.moved.Add(int64(n))
	}
}

// IsCut reports whether the loan was cut. The code that uses a loan that was cut must call End.
func (l *Loan) IsCut() bool { return l != nil && l.lost.Load() }

// Share records that one loan, the sharer, uses the memory of another loan, the payer, without
// being charged for it. The memory becomes free only when the payer and all sharers have stopped
// using it. So while other loans wait, the sharer must be as fast as the payer, or it is cut.
func Share(payer, sharer *Loan) {
	if payer == nil || sharer == nil {
		return
	}
	payer.b.mu.Lock()
	defer payer.b.mu.Unlock()
	if payer.sharers == nil {
		payer.sharers = make(map[*Loan]struct{})
	}
	payer.sharers[sharer] = struct{}{}
	sharer.since = time.Time{}
}

// Unshare undoes Share.
func Unshare(payer, sharer *Loan) {
	if payer == nil || sharer == nil {
		return
	}
	payer.b.mu.Lock()
	defer payer.b.mu.Unlock()
	delete(payer.sharers, sharer)
}

// Move transfers n bytes from one loan to another. The memory is already in use, so the receiving
// loan gets the bytes even if its holder may not take more. If the receiving loan shares the
// memory, it becomes the payer for the other sharers.
func Move(from, to *Loan, n int64) {
	if from == nil || to == nil || n == 0 {
		return
	}
	b := from.b
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, from.size)
	b.poolFor(to, to.size+n).force(to, to.size+n) // before shrink, which gives free memory to loans that wait
	from.shrink(from.size - n)
	if _, shares := from.sharers[to]; shares {
		delete(from.sharers, to)
		to.sharers, from.sharers = from.sharers, nil
	}
}

// interrupt calls the function stop of the loan, unless the loan has ended.
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
