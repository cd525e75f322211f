package journal

import (
	"context"
	"sync"
)

// waiter waits for the outcome of one append or document change.
type waiter struct {
	outcome chan error
	done    func(error)
}

// waiters is a pool of waiters. Each journal has its own pool, because a channel that was made in a
// bubble of testing/synctest cannot be used outside that bubble.
type waiters struct{ pool sync.Pool }

func (p *waiters) get() *waiter {
	w, ok := p.pool.Get().(*waiter)
	if !ok {
		w = &waiter{outcome: make(chan error, 1)}
		w.done = func(err error) { w.outcome <- err }
	}
	return w
}

// wait returns the error that w.done is called with. If ctx ends first, it returns the error of ctx.
// The caller must not use w afterwards.
func (p *waiters) wait(ctx context.Context, w *waiter) (err error) {
	if ctx.Done() == nil {
		err = <-w.outcome
	} else {
		select {
		case err = <-w.outcome:
		case <-ctx.Done():
			return ctx.Err() // the outcome is still to come, so w must not go back to the pool
		}
	}
	p.pool.Put(w)
	return err
}
