package budget

import (
	"cmp"
	"slices"
	"time"
)

// pool is the part of a budget for small or for large loans.
type pool struct {
	shares
	tokens  int64 // free tokens of the reserve
	largest int64 // what a token covers
	queue   []*waiter
	loans   map[*Loan]struct{} // that hold something
	pressed time.Time          // when slow holders were last looked for
}

// waiter is a loan that waits in Grow.
type waiter struct {
	loan  *Loan
	pool  *pool // that the memory is to come from
	key   *key  // of pool
	size  int64 // wanted size of the loan
	ready chan struct{}
}

func newPool(total, tokens, largest int64) pool {
	return pool{shares: newShares(total), tokens: tokens, largest: largest, loans: make(map[*Loan]struct{})}
}

// grant makes a loan as large as it wants, if the shares allow it. If they do not and last is true,
// it uses a token of the reserve.
func (p *pool) grant(w *waiter, last bool) bool {
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
	case last && p.tokens > 0:
		p.replace(l)
		p.tokens--
		p.hold(l, n, true)
	default:
		return false
	}
	return true
}

// replace returns what a loan holds of another pool. It is about to get all of it from this one.
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

// force makes a loan as large as size, even if that exceeds what is free.
func (p *pool) force(l *Loan, size int64) {
	p.replace(l)
	p.hold(l, size-l.size, false)
}

// shrink returns memory of a loan and serves the loans that wait.
func (l *Loan) shrink(size int64) {
	if p := l.pool; p != nil && size < l.size {
		l.shrinkIn(size)
		l.b.serve(p)
	}
}

// shrinkIn returns memory of a loan: first what came from the reserve.
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

// serve grants waiting requests, those of the keys that hold least first. A request that does not
// fit gets a token, or is passed over: it is sure to get one later, because loans with a token end.
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

// withdraw removes a request from its queue.
func (b *Budget) withdraw(w *waiter) {
	if i := slices.Index(w.pool.queue, w); i >= 0 {
		w.pool.queue = slices.Delete(w.pool.queue, i, i+1)
	}
	w.loan.wait = nil
	w.pool.leave(w.key)
	b.serve(w.pool)
}

// press cuts slow loans while others wait: as many as those need. Waiting loans call it every
// pressEvery. Loans are measured while others wait only, so the first call after a pause starts the
// clocks anew.
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
	var slow []*Loan
	for l := range p.loans {
		switch {
		case l.lost.Load():
			need -= l.size // it is about to return this
		case l.key.held < first.key.held:
		case l.isSlow(now, pause >= 2*pressEvery):
			slow = append(slow, l)
		}
	}
	slices.SortFunc(slow, func(a, b *Loan) int {
		return cmp.Or(cmp.Compare(b.key.project.held, a.key.project.held), cmp.Compare(b.key.held, a.key.held), cmp.Compare(b.size, a.size))
	})
	for _, l := range slow {
		if need <= 0 {
			return
		}
		need -= l.size
		b.cut++
		l.lost.Store(true)
		go l.interrupt()
	}
}

// isSlow reports whether a loan has moved too little in the last leastTime. With anew, it starts
// the clock. A loan that waits for the other pool is slow too: it holds a part of this one, and
// only other clients can end its wait.
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
