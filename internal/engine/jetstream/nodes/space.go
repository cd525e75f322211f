package nodes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"weir/internal/engine"
	"weir/internal/engine/jetstream/wire"
)

// SpaceOptions say what is measured.
type SpaceOptions struct {
	Store    string // name of the store
	Node     uint64 // identifies this process
	Replicas int    // number of copies of each stream
	// Room returns how many bytes the NATS server inside this process holds, and how many it may
	// hold (0: no limit). If Room is nil, the figures of the NATS account are used.
	Room func() (used, limit int64)
	// Disk returns the free bytes and the size of the file system of the NATS server inside this
	// process. If Disk is nil, the file system is unknown.
	Disk   func() (free, size int64, err error)
	Logger *slog.Logger
}

// Space decides whether entries are refused for lack of space. A server over its limit accepts no
// message, and in a cluster it does not even agree to a purge. A server whose disk is full disables
// JetStream. So some space is reserved for operations that free space: trims, deletions, and the
// fences (empty messages) that are stored before them.
type Space struct {
	SpaceOptions
	client *wire.Client
	full   atomic.Pointer[error] // why entries are refused; nil if they are not
	disk   atomic.Pointer[error] // says that the disk of this node is full; nil if it is not
	spent  atomic.Int64          // bytes written since the space was last measured
	// step is the number of bytes that may be written before the space is measured again; 0 if
	// there is no limit.
	step atomic.Int64

	mu        sync.Mutex
	refused   time.Time            // when a server last refused something for lack of space
	elsewhere time.Time            // when another node last reported that its server is full
	disks     map[uint64]time.Time // when each other node last reported that its disk is full
}

// NewSpace starts to listen to the messages of nodes whose servers are full. These servers also store the
// writes of this node, so this node must refuse entries too.
func NewSpace(c *wire.Client, o SpaceOptions) (*Space, error) {
	s := &Space{SpaceOptions: o, client: c, disks: map[uint64]time.Time{}}
	_, err := c.Hear(o.Store+".full", s.hear)
	return s, err
}

const (
	// MeasureEvery is the interval at which the engine calls Measure.
	MeasureEvery = 500 * time.Millisecond
	// fullFor is how long the engine refuses entries after a server refused one. It is used only if
	// the server reports no limit.
	fullFor = 5 * time.Second

	reserveMost = 256 << 20 // see reserve
)

// reserve returns how many bytes of a limit are reserved and must not be used by entries: a quarter
// of the limit but at most reserveMost, or a twentieth of the limit if that is more.
func reserve(limit int64) int64 { return max(limit/20, min(limit/4, reserveMost), 0) }

// DiskReserve returns how many bytes of a file system of this size must stay free. While fewer are
// free, a node refuses entries.
func DiskReserve(size int64) int64 { return min(size/4, reserveMost) }

// Admits returns nil if entries of this many bytes may be written.
func (s *Space) Admits(ctx context.Context, bytes int) error {
	if step := s.step.Load(); s.spent.Add(int64(bytes)) > step && step > 0 {
		s.Measure(ctx)
	}
	return s.Full()
}

// Measure measures the space and decides whether entries are refused.
func (s *Space) Measure(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spent.Store(0)
	keep := s.measureDisk()
	used, limit, err := s.space(ctx)
	if err != nil {
		return // the space is unknown, so the last decision stays
	}
	kept := reserve(limit)
	if keep == 0 || limit > 0 && kept < keep {
		keep = kept
	}
	s.step.Store(keep / 8)
	why := s.disk.Load()
	switch {
	case why != nil:
		s.full.Store(why)
		s.say(diskFull)
	case s.fullDisks() > (s.Replicas-1)/2:
		why := fmt.Errorf("%w: the disks of other nodes are full", engine.ErrFull)
		s.full.Store(&why)
	case limit > 0 && used > limit-kept:
		why := fmt.Errorf("%w: NATS holds %d of %d bytes, and the rest is reserved for deletions", engine.ErrFull, used, limit)
		s.full.Store(&why)
		// If no server is connected, this message is lost. The next measurement sends another one
		// if the server is still full.
		s.say()
	case time.Since(s.elsewhere) < 4*MeasureEvery:
		// Another node's server is full: entries stay refused.
	case limit <= 0 && time.Since(s.refused) < fullFor:
		// There is no limit to compare with, and a server refused something a moment ago.
	default:
		s.full.Store(nil)
	}
}

// measureDisk checks whether the disk of this node is full. It returns the number of bytes that must
// stay free, or 0 if the engine does not know the disk. The caller holds s.mu.
func (s *Space) measureDisk() (keep int64) {
	if s.Disk == nil {
		return 0
	}
	free, size, err := s.Disk()
	if err != nil {
		return 0
	}
	keep = DiskReserve(size)
	if free >= keep {
		if s.disk.Swap(nil) != nil {
			s.Logger.Info("the disk of this node has space again")
		}
		return keep
	}
	why := fmt.Errorf("%w: the disk of this node has %d of %d bytes free, and the NATS server needs %d", engine.ErrFull, free, size, keep)
	if s.disk.Swap(&why) == nil {
		s.Logger.Error("this node accepts no writes", "error", why)
	}
	return keep
}

// diskFull is the last byte of a message of a node whose disk is full. The message of a node whose
// server has reached its limit does not have this byte.
const diskFull = 'd'

// say tells the other nodes that the server or the disk of this node is full.
func (s *Space) say(what ...byte) {
	s.client.Say(&nats.Msg{Subject: s.Store + ".full", Data: append(binary.BigEndian.AppendUint64(nil, s.Node), what...)})
}

// fullDisks returns the number of other nodes whose disks are full. A cluster continues without a
// few of its servers. So entries are refused only if so many disks are full that the remaining
// replicas of a stream may not be a majority. The caller holds s.mu.
func (s *Space) fullDisks() int {
	maps.DeleteFunc(s.disks, func(_ uint64, at time.Time) bool { return time.Since(at) >= 4*MeasureEvery })
	return len(s.disks)
}

// hear takes note of a message of a node whose server or disk is full.
func (s *Space) hear(m *nats.Msg) {
	if len(m.Data) < 8 || binary.BigEndian.Uint64(m.Data) == s.Node {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(m.Data[8:]) == string(diskFull) {
		s.disks[binary.BigEndian.Uint64(m.Data)] = time.Now()
		return
	}
	s.elsewhere = time.Now()
	if s.full.Load() == nil {
		why := fmt.Errorf("%w: the NATS server of another node has only its reserve for deletions left", engine.ErrFull)
		s.full.Store(&why)
	}
}

// space returns the bytes in use and the limit (0: no limit). These are the figures of the server
// inside this process or, if there is none, of the NATS account.
func (s *Space) space(ctx context.Context) (used, limit int64, err error) {
	if s.Room != nil {
		used, limit = s.Room()
		return used, limit, nil
	}
	ctx, cancel := context.WithTimeout(ctx, wire.Timeout)
	defer cancel()
	info, err := s.client.Account(ctx)
	if err != nil {
		return 0, 0, err
	}
	tier, ok := info.Tiers[fmt.Sprint("R", s.Replicas)]
	if !ok {
		tier = info.Tier
	}
	return int64(tier.Store), tier.Limits.MaxStore, nil
}

// Refused records that a server refused something for lack of space.
func (s *Space) Refused(err error) {
	if !errors.Is(err, engine.ErrFull) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = time.Now()
	if s.full.Load() == nil {
		s.full.Store(&err)
	}
}

// Full returns why entries are refused, or nil.
func (s *Space) Full() error { return load(&s.full) }

// DiskFull returns an error that says that the disk of this node is full, or nil.
func (s *Space) DiskFull() error { return load(&s.disk) }

func load(why *atomic.Pointer[error]) error {
	if err := why.Load(); err != nil {
		return *err
	}
	return nil
}
