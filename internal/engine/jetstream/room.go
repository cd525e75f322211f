package jetstream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"weir/internal/engine"
)

// room keeps entries out before the servers are full. A server over its limit takes nothing, and as part of a cluster does not even
// agree to take something back: so what frees space (trims, deletions, and the fences in front of them) needs some that is
// kept for it.
type room struct {
	full  atomic.Pointer[error] // why entries are refused, when they are
	spent atomic.Int64          // bytes that were written since it was last looked at
	step  atomic.Int64          // so many may be, before it is looked at again; 0: there is no limit

	mu        sync.Mutex
	refused   time.Time // when a server last refused something for want of space
	elsewhere time.Time // when another process last said that its server is full
}

const (
	// roomEvery is how often it is looked at, and fullFor how long entries are kept out after a server refused one, when it is
	// not known how much it has.
	roomEvery = 500 * time.Millisecond
	fullFor   = 5 * time.Second

	reserveMost = 256 << 20
)

// reserve is how much of a limit is kept from entries.
func reserve(limit int64) int64 { return max(limit/20, min(limit/4, reserveMost), 0) }

// admits says whether entries of so many bytes may be written.
func (e *Engine) admits(ctx context.Context, bytes int) error {
	if step := e.room.step.Load(); e.room.spent.Add(int64(bytes)) > step && step > 0 {
		e.measureRoom(ctx)
	}
	if why := e.room.full.Load(); why != nil {
		return *why
	}
	return nil
}

// lookAround sees how much space there is.
func (e *Engine) measureRoom(ctx context.Context) {
	e.room.mu.Lock()
	defer e.room.mu.Unlock()
	e.room.spent.Store(0)
	used, limit, err := e.space(ctx)
	if err != nil {
		return // not known: it is as it was
	}
	kept := reserve(limit)
	e.room.step.Store(kept / 8)
	switch {
	case limit > 0 && used > limit-kept:
		why := fmt.Errorf("%w: NATS holds %d bytes of %d, and the rest is kept for deletions", engine.ErrFull, used, limit)
		e.room.full.Store(&why)
		e.nc.Publish(e.opts.Name+".full", binary.BigEndian.AppendUint64(nil, e.node)) // lost while there is no server
	case time.Since(e.room.elsewhere) < 4*roomEvery:
	case limit <= 0 && time.Since(e.room.refused) < fullFor:
	default:
		e.room.full.Store(nil)
	}
}

// hearFull listens to other processes whose servers are full: what is written is written there as well.
func (e *Engine) hearFull() error {
	_, err := e.nc.Subscribe(e.opts.Name+".full", func(m *nats.Msg) {
		if len(m.Data) != 8 || binary.BigEndian.Uint64(m.Data) == e.node {
			return
		}
		e.room.mu.Lock()
		defer e.room.mu.Unlock()
		e.room.elsewhere = time.Now()
		if e.room.full.Load() == nil {
			why := fmt.Errorf("%w: the NATS server of another node has only left what is kept for deletions", engine.ErrFull)
			e.room.full.Store(&why)
		}
	})
	return err
}

// space is how many bytes there are and how many there may be (0: without limit), of the server inside this process, or else of
// the account.
func (e *Engine) space(ctx context.Context) (used, limit int64, err error) {
	if e.opts.Room != nil {
		used, limit = e.opts.Room()
		return used, limit, nil
	}
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	info, err := e.js.AccountInfo(ctx)
	if err != nil {
		return 0, 0, err
	}
	tier, ok := info.Tiers[fmt.Sprint("R", e.opts.Replicas)]
	if !ok {
		tier = info.Tier
	}
	return int64(tier.Store), tier.Limits.MaxStore, nil
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
			e.measureRoom(e.ctx)
			e.tidy()
			e.attendances(time.Now())
		case <-e.ending:
			return
		}
	}
}
