package jetstream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"weir/internal/engine"
)

// room keeps track of the space on the NATS servers and on their disks, and makes the engine refuse
// entries before either is full. A server over its limit accepts no message, and in a cluster it
// does not even agree to a purge. A server whose disk is full disables JetStream. So some space is
// reserved for operations that free space: trims, deletions, and the fences (empty messages) that
// are stored before them.
type room struct {
	full  atomic.Pointer[error] // why entries are refused; nil if they are not
	disk  atomic.Pointer[error] // says that the disk of this node is full; nil if it is not
	spent atomic.Int64          // bytes written since the space was last measured
	// step is the number of bytes that may be written before the space is measured again; 0 if
	// there is no limit.
	step atomic.Int64

	mu        sync.Mutex
	refused   time.Time            // when a server last refused something for lack of space
	elsewhere time.Time            // when another node last reported that its server is full
	disks     map[uint64]time.Time // when each other node last reported that its disk is full
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

// DiskReserve returns how many bytes of a file system of this size must stay free. While fewer are
// free, a node refuses entries.
func DiskReserve(size int64) int64 { return min(size/4, reserveMost) }

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
	keep := e.measureDisk()
	used, limit, err := e.space(ctx)
	if err != nil {
		return // the space is unknown, so the last decision stays
	}
	kept := reserve(limit)
	if keep == 0 || limit > 0 && kept < keep {
		keep = kept
	}
	e.room.step.Store(keep / 8)
	why := e.room.disk.Load()
	switch {
	case why != nil:
		e.room.full.Store(why)
		e.sayFull(diskFull)
	case e.room.fullDisks() > (e.opts.Replicas-1)/2:
		why := fmt.Errorf("%w: the disks of other nodes are full", engine.ErrFull)
		e.room.full.Store(&why)
	case limit > 0 && used > limit-kept:
		why := fmt.Errorf("%w: NATS holds %d of %d bytes, and the rest is reserved for deletions", engine.ErrFull, used, limit)
		e.room.full.Store(&why)
		// If no server is connected, this message is lost. The next measurement sends another one
		// if the server is still full.
		e.sayFull()
	case time.Since(e.room.elsewhere) < 4*roomEvery:
		// Another node's server is full: entries stay refused.
	case limit <= 0 && time.Since(e.room.refused) < fullFor:
		// There is no limit to compare with, and a server refused something a moment ago.
	default:
		e.room.full.Store(nil)
	}
}

// measureDisk checks whether the disk of this node is full. It returns the number of bytes that must
// stay free, or 0 if the engine does not know the disk. The caller holds e.room.mu.
func (e *Engine) measureDisk() (keep int64) {
	if e.opts.Disk == nil {
		return 0
	}
	free, size, err := e.opts.Disk()
	if err != nil {
		return 0
	}
	keep = DiskReserve(size)
	if free >= keep {
		if e.room.disk.Swap(nil) != nil {
			e.opts.Logger.Info("the disk of this node has space again")
		}
		return keep
	}
	why := fmt.Errorf("%w: the disk of this node has %d of %d bytes free, and the NATS server needs %d", engine.ErrFull, free, size, keep)
	if e.room.disk.Swap(&why) == nil {
		e.opts.Logger.Error("this node accepts no writes", "error", why)
	}
	return keep
}

// diskFull is the last byte of a message of a node whose disk is full. The message of a node whose
// server has reached its limit does not have this byte.
const diskFull = 'd'

// sayFull tells the other nodes that the server or the disk of this node is full.
func (e *Engine) sayFull(what ...byte) {
	e.servers.Say(&nats.Msg{Subject: e.opts.Name + ".full", Data: append(binary.BigEndian.AppendUint64(nil, e.node), what...)})
}

// fullDisks returns the number of other nodes whose disks are full. A cluster continues without a
// few of its servers. So entries are refused only if so many disks are full that the remaining
// replicas of a stream may not be a majority. The caller holds r.mu.
func (r *room) fullDisks() int {
	maps.DeleteFunc(r.disks, func(_ uint64, at time.Time) bool { return time.Since(at) >= 4*roomEvery })
	return len(r.disks)
}

// hearFull subscribes to the messages of nodes whose servers are full. These servers also store the
// writes of this node, so this node must refuse entries too.
func (e *Engine) hearFull() error {
	_, err := e.servers.Hear(e.opts.Name+".full", func(m *nats.Msg) {
		if len(m.Data) < 8 || binary.BigEndian.Uint64(m.Data) == e.node {
			return
		}
		e.room.mu.Lock()
		defer e.room.mu.Unlock()
		if string(m.Data[8:]) == string(diskFull) {
			e.room.disks[binary.BigEndian.Uint64(m.Data)] = time.Now()
			return
		}
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
	info, err := e.servers.Account(ctx)
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
	tick := time.NewTicker(e.apart(roomEvery))
	defer tick.Stop()
	for e.awaits(tick) {
		e.measureRoom(e.ctx)
		e.tidy()
		e.reviewLogs(time.Now())
	}
}
