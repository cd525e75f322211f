package budget

import (
	"cmp"
	"slices"
	"time"
)

// pool is one of the two parts of a budget: the lane, which is for small loans, or the part for large
// loans. A loan is memory that a request or a response borrows. Each pool has tokens in its reserve. A loan with a token gets
// all further memory from the reserve, so it never waits again. The package comment explains why
// loans with tokens are needed.
type pool struct {
	shares
	tokens  int64 // free tokens of the reserve
	largest int64 // bytes that one token covers
	queue   []*waiter
	loans   map[*Loan]struct{} // loans that hold memory of this pool
	pressed time.Time          // when press last looked for slow loans
}

// waiter is a loan that waits in Grow.
type waiter struct {
	loan  *Loan
	pool  *pool // pool that the memory will come from
	key   *key  // the entry for the holder's key in pool
	size  int64 // wanted size of the loan
	ready chan struct{}
}

func newPool(total, tokens, largest int64) pool {
	return pool{shares: newShares(total), tokens: tokens, largest: largest, loans: make(map[*Loan]struct{})}
}

// grant enlarges a loan to the size that w asks for, if the rule of shares allows it. If the rule
// does not allow it and useToken is true, grant uses a token of the reserve. It reports whether the
// loan got its memory.
func (p *pool) grant(w *waiter, useToken bool) bool {
	l := w.loan
	n := w.size
	if l.pool == p {
		n -= l.size
	}
	if l.pool == p && l.token {
		p.hold(l, n, true)
		return true
	}
	k := p.join(l.of)
	defer p.leave(k)
	switch {
	case p.allows(k, n):
		p.replace(l)
		p.hold(l, n, false)
	case useToken && p.tokens > 0:
		p.replace(l)
		p.tokens--
		p.hold(l, n, true)
	default:
		return false
	}
	return true
}

// replace returns the memory that a loan holds in the other pool, because the loan is about to get
// all of its memory from this pool.
func (p *pool) replace(l *Loan) {
	if l.pool != nil && l.pool != p {
		old := l.pool
		l.shrinkIn(0)
		l.b.serve(old)
	}
}

// hold adds n bytes to a loan, from the pool or from the reserve.
func (p *pool) hold(l *Loan, n int64, reserve bool) {
	if l.pool == nil {
		l.pool, l.key = p, p.join(l.of)
		p.loans[l] = struct{}{}
	}
	l.size += n
	p.add(l.key, n)
	if reserve {
		l.token = true
		l.extra += n
	} else {
		p.free -= n
	}
}

// force enlarges a loan to size, even if that is more than the free memory allows.
func (p *pool) force(l *Loan, size int64) {
	p.replace(l)
	p.hold(l, size-l.size, false)
}

// shrink reduces a loan to size bytes and serves the loans that wait.
func (l *Loan) shrink(size int64) {
	if p := l.pool; p != nil && size < l.size {
		l.shrinkIn(size)
		l.b.serve(p)
	}
}

// shrinkIn reduces a loan to size bytes. It returns memory to the reserve first, and to the rest of
// the pool second. It does not serve waiting loans.
func (l *Loan) shrinkIn(size int64) {
	p, n := l.pool, l.size-size
	extra := min(n, l.extra)
	l.extra -= extra
	l.size = size
	p.add(l.key, -n)
	p.free += n - extra
	if size > 0 {
		return
	}
	if l.token {
		l.token = false
		p.tokens++
	}
	delete(p.loans, l)
	p.leave(l.key)
	l.pool, l.key = nil, nil
}

// serve grants the requests of waiting loans, starting with those of the projects and keys that
// hold least. A request that does not fit gets a token. If no token is free, the request keeps
// waiting: loans that have a token will end, and then a token is free again.
func (b *Budget) serve(p *pool) {
	if len(p.queue) == 0 {
		return
	}
	slices.SortStableFunc(p.queue, lightest)
	kept := p.queue[:0]
	for _, w := range p.queue {
		if w.loan.lost.Load() || !p.grant(w, true) {
			kept = append(kept, w)
			continue
		}
		w.loan.wait = nil
		p.leave(w.key)
		close(w.ready)
	}
	clear(p.queue[len(kept):])
	p.queue = kept
}

func lightest(a, b *waiter) int {
	return cmp.Or(cmp.Compare(a.key.project.held, b.key.project.held), cmp.Compare(a.key.held, b.key.held))
}

// withdraw takes a waiting request out of its queue.
func (b *Budget) withdraw(w *waiter) {
	if i := slices.Index(w.pool.queue, w); i >= 0 {
		w.pool.queue = slices.Delete(w.pool.queue, i, i+1)
	}
	w.loan.wait = nil
	w.pool.leave(w.key)
	b.serve(w.pool)
}

// press cuts slow loans while other loans wait. It cuts only as many as it takes to free the memory
// that the waiting loans need. Every waiting loan calls press at intervals of pressEvery. The speed
// of a loan is measured only while other loans wait, so the first call after a pause starts all
// measurements anew.
func (p *pool) press(now time.Time, b *Budget) {
	pause := now.Sub(p.pressed)
	if len(p.queue) == 0 || pause < pressEvery/2 {
		return
	}
	p.pressed = now
	first := slices.MinFunc(p.queue, lightest)
	need := int64(0)
	for _, w := range p.queue {
		if need += w.size; w.loan.pool == p {
			need -= w.loan.size
		}
	}
	var slow []slowUse
	for l := range p.loans {
		u := p.slowUseOf(l, first.key.held, now, pause >= 2*pressEvery)
		switch {
		case len(u.slow) > 0:
			slow = append(slow, u)
		case u.ends:
			need -= l.size // all loans that use this memory were cut before, and it is about to be returned
		}
	}
	slices.SortFunc(slow, func(x, y slowUse) int {
		a, b := x.payer, y.payer
		return cmp.Or(cmp.Compare(b.key.project.held, a.key.project.held), cmp.Compare(b.key.held, a.key.held), cmp.Compare(b.size, a.size))
	})
	for _, u := range slow {
		if need <= 0 {
			return
		}
		if u.ends {
			need -= u.payer.size
		}
		for _, l := range u.slow {
			b.cut++
			l.lost.Store(true)
			go l.interrupt()
		}
	}
}

// slowUse describes the memory of one loan, the payer. The users of this memory are the payer and the
// loans that share it; slowUse lists those that are too slow.
type slowUse struct {
	payer *Loan
	slow  []*Loan
	ends  bool // all users are slow or were cut, so the memory becomes free
}

// slowUseOf measures the users of a loan's memory. A user counts as slow only if its key holds at
// least minHeld bytes, including the shared memory.
func (p *pool) slowUseOf(payer *Loan, minHeld int64, now time.Time, anew bool) slowUse {
	u := slowUse{payer: payer, ends: true}
	measure := func(l *Loan, held int64) {
		switch {
		case l.lost.Load():
		case held >= minHeld && l.isSlow(now, anew):
			u.slow = append(u.slow, l)
		default:
			u.ends = false
		}
	}
	measure(payer, payer.key.held)
	for l := range payer.sharers {
		k := p.join(l.of)
		held := k.held
		if k != payer.key {
			held += payer.size
		}
		measure(l, held)
		p.leave(k)
	}
	return u
}

// isSlow reports whether a loan has sent or received too little in the last leastTime. If the
// parameter anew is true, isSlow starts the measurement again and reports false. A loan that waits
// for memory of the other pool counts as slow too: it holds memory of this pool, and only other
// clients can end its wait.
func (l *Loan) isSlow(now time.Time, anew bool) bool {
	switch {
	case l.wait != nil:
		l.since = time.Time{}
		return l.wait.pool != l.pool
	case !l.watch:
		return false
	case anew || l.since.IsZero():
		l.since, l.seen = now, l.moved.Load()
		return false
	}
	took := now.Sub(l.since)
	if took < leastTime {
		return false
	}
	moved := l.moved.Load()
	slow := moved-l.seen < int64(leastBytes*took/leastTime)
	l.since, l.seen = now, moved
	return slow
}
