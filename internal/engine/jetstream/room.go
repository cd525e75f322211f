package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/engine"
)

// room keeps entries out before the servers are full. A server over its limit takes nothing, and as part of a cluster does not even
// agree to take something back: so what frees space (trims, deletions, and the fences in front of them) needs some that is
// kept for it.
type room struct {
	full  atomic.Pointer[error] // why entries are refused, when they are
	spent atomic.Int64          // bytes that were written since it was last looked at
	step  atomic.Int64          // so many may be, before it is looked at again; 0: there is no limit

	mu      sync.Mutex
	refused time.Time // when a server last refused something for want of space
}

const (
	// roomEvery is how often it is looked at, and fullFor how long entries are kept out after a server refused one, when it is
	// not known how much it has.
	roomEvery = 500 * time.Millisecond
	fullFor   = 5 * time.Second

	reserveMost = 256 << 20
)

// reserve is how much of a limit is kept from entries.
func reserve(limit int64) int64 { return max(limit/20, min(limit/4, reserveMost)) }

// admits says whether entries of so many bytes may be written. The engine is looked at again where that many were since.
func (e *Engine) admits(ctx context.Context, bytes int) error {
	if step := e.room.step.Load(); e.room.spent.Add(int64(bytes)) > step && step > 0 {
		e.lookAround(ctx)
	}
	if why := e.room.full.Load(); why != nil {
		return *why
	}
	return nil
}

// lookAround sees how much space there is: in the server inside this process, and for the account.
func (e *Engine) lookAround(ctx context.Context) {
	e.room.mu.Lock()
	defer e.room.mu.Unlock()
	e.room.spent.Store(0)
	var limited bool
	var why error
	step := int64(0)
	consider := func(who string, used, limit int64) {
		if limit <= 0 {
			return
		}
		limited = true
		kept := reserve(limit)
		if step == 0 || kept/8 < step {
			step = max(kept/8, 1)
		}
		if used > limit-kept {
			why = fmt.Errorf("%w: %d of %d bytes of %s are used, and the rest is kept for deletions", engine.ErrFull, used, limit, who)
		}
	}
	if e.opts.Room != nil {
		used, limit := e.opts.Room()
		consider("the NATS server", used, limit)
	}
	try, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	if info, err := e.js.AccountInfo(try); err == nil {
		tier, ok := info.Tiers[fmt.Sprint("R", e.opts.Replicas)]
		if !ok {
			tier = info.Tier
		}
		consider("the NATS account", int64(tier.Store), tier.Limits.MaxStore)
	} else if why == nil && e.room.full.Load() != nil {
		return // not known, and it was full
	}
	e.room.step.Store(step)
	if why == nil && !limited && time.Since(e.room.refused) < fullFor {
		return
	}
	if why != nil {
		e.room.full.Store(&why)
	} else {
		e.room.full.Store(nil)
	}
}

// tooFull takes notice that a server refused something for want of space.
func (e *Engine) tooFull(err error) {
	if !errors.Is(err, engine.ErrFull) {
		return
	}
	e.room.mu.Lock()
	defer e.room.mu.Unlock()
	e.room.refused = time.Now()
	if e.room.full.Load() == nil {
		e.room.full.Store(&err)
	}
}

// watchRoom looks now and then.
func (e *Engine) watchRoom() {
	tick := time.NewTicker(roomEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.lookAround(e.ctx)
			e.tidy()
		case <-e.ending:
			return
		}
	}
}
