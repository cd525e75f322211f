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

// room keeps track of the space on the NATS servers, and makes the engine refuse entries before the
// servers are full. A server over its limit accepts no message, and in a cluster it does not even
// agree to a purge. So some space is reserved for operations that free space: trims, deletions, and
// the fences (empty messages) that are stored before them.
type room struct {
	full  atomic.Pointer[error] // why entries are refused; nil if they are not
	spent atomic.Int64          // bytes written since the space was last measured
	// Number of bytes that may be written before the space is measured again; 0 if there is no
	// limit.
	step atomic.Int64

	mu        sync.Mutex
	refused   time.Time // when a server last refused something for lack of space
	elsewhere time.Time // when another node last reported that its server is full
}

const (
	// roomEvery is the interval at which the engine measures the space.
	roomEvery = 500 * time.Millisecond
	// fullFor is how long the engine refuses entries after a server refused one. It is used only if
	// the server reports no limit.
	fullFor = 5 * time.Second

	reserveMost = 256 << 20 // see reserve
)

// reserve returns how many bytes of a limit are reserved and must not be used by entries: a quarter
// of the limit up to reserveMost, or a twentieth of the limit if that is more.
func reserve(limit int64) int64 { return max(limit/20, min(limit/4, reserveMost), 0) }

// admits returns nil if entries of this many bytes may be written.
func (e *Engine) admits(ctx context.Context, bytes int) error {
	if step := e.room.step.Load(); e.room.spent.Add(int64(bytes)) > step && step > 0 {
		e.measureRoom(ctx)
	}
	if why := e.room.full.Load(); why != nil {
		return *why
	}
	return nil
}

// measureRoom measures the space and decides whether entries are refused.
func (e *Engine) measureRoom(ctx context.Context) {
	e.room.mu.Lock()
	defer e.room.mu.Unlock()
	e.room.spent.Store(0)
	used, limit, err := e.space(ctx)
	if err != nil {
		return // the space is unknown, so the last decision stays
	}
	kept := reserve(limit)
	e.room.step.Store(kept / 8)
	switch {
	case limit > 0 && used > limit-kept:
		why := fmt.Errorf("%w: NATS holds %d of %d bytes, and the rest is reserved for deletions", engine.ErrFull, used, limit)
		e.room.full.Store(&why)
		// If no server is connected, this message is lost. The next measurement sends another one
		// if the server is still full.
		e.nc.Publish(e.opts.Name+".full", binary.BigEndian.AppendUint64(nil, e.node))
	case time.Since(e.room.elsewhere) < 4*roomEvery:
		// Another node's server is full: entries stay refused.
	case limit <= 0 && time.Since(e.room.refused) < fullFor:
		// There is no limit to compare with, and a server refused something a moment ago.
	default:
		e.room.full.Store(nil)
	}
}

// hearFull subscribes to the messages of nodes whose servers are full. These servers also store the
// writes of this node, so this node must refuse entries too.
func (e *Engine) hearFull() error {
	_, err := e.nc.Subscribe(e.opts.Name+".full", func(m *nats.Msg) {
		if len(m.Data) != 8 || binary.BigEndian.Uint64(m.Data) == e.node {
			return
		}
		e.room.mu.Lock()
		defer e.room.mu.Unlock()
		e.room.elsewhere = time.Now()
		if e.room.full.Load() == nil {
			why := fmt.Errorf("%w: the NATS server of another node has only its reserve for deletions left", engine.ErrFull)
			e.room.full.Store(&why)
		}
	})
	return err
}

// space returns the bytes in use and the limit (0: no limit). These are the figures of the server
// inside this process or, if there is none, of the NATS account.
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

// tooFull records that a server refused something for lack of space.
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

// watchRoom runs the periodic tasks: it measures the space, carries out the purges that are due,
// and reviews which logs to follow.
func (e *Engine) watchRoom() {
	tick := time.NewTicker(roomEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.measureRoom(e.ctx)
			e.tidy()
			e.reviewLogs(time.Now())
		case <-e.ending:
			return
		}
	}
}
