package service

import (
	"math"
	"net/netip"
	"runtime/debug"
	"syscall"

	"weir"
	"weir/internal/budget"
)

// Resources that connections must leave free.
const (
	spareFiles    = 128      // file descriptors for everything but connections and segments
	connectionRAM = 64 << 10 // bytes per connection; twice what an idle subscription uses
	fewest        = 16       // connections are always allowed
)

// Bounds of the memory for large request bodies, and again for large batches in flight to clients.
// Each gets an eighth of the machine's memory within them.
const (
	leastPayloads = 64 << 20
	mostPayloads  = 512 << 20
)

// Bounds of the memory for the states of streams that are not in use.
const (
	leastStates = 16 << 20
	mostStates  = 256 << 20
)

// capacity is the amount of the resources that an attacker could exhaust which this process may
// use.
type capacity struct {
	files  int   // file descriptors
	memory int64 // bytes
}

// thisCapacity asks the system. The Go runtime raises the soft limit on open files to the hard one
// before main.
func thisCapacity() capacity {
	c := capacity{files: math.MaxInt32, memory: min(systemMemory(), debug.SetMemoryLimit(-1))}
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) == nil && uint64(l.Cur) < math.MaxInt32 {
		c.files = int(l.Cur)
	}
	return c
}

// connections returns the maximum number of connections, given the number of segments. Each segment
// may be open twice, while it is reclaimed or backed up.
func (c capacity) connections(segments int) int {
	return int(max(fewest, min(int64(c.files-spareFiles-2*segments), c.memory/connectionRAM)))
}

// subscribers bounds the default of --max-subscribers (D34): all places together may use half of the
// memory.
func (c capacity) subscribers() int {
	return int(max(fewest, min(c.memory/2/connectionRAM, mostSubscribers)))
}

// states is the memory for the states of streams that are not in use: enough for about three million
// idempotency keys on a machine with 4 GiB.
func (c capacity) states() int64 { return max(leastStates, min(c.memory/16, mostStates)) }

// leastIndex is the lowest default of --max-index-memory.
const leastIndex = 64 << 20

// index is the default of --max-index-memory (D12): room for 16 million batches on a machine with
// 4 GiB.
func (c capacity) index() int64 { return max(leastIndex, c.memory/8) }

// mostSubscribers bounds the default where the memory of the machine is unknown.
const mostSubscribers = 1 << 20

// payloads is the memory for large payloads in one direction, of which one needs at most largest.
// Each direction has its own, so that subscribers that do not read cannot keep others from
// publishing.
func (c capacity) payloads(largest int64) *budget.Budget {
	return budget.New(max(leastPayloads, min(c.memory/8, mostPayloads)), largest)
}

// The most that a body needs, with a byte to see its end; and a batch on its way to a subscriber,
// as a payload and as a frame with that payload in base64.
const (
	largestBody  = weir.MaxBody + 1
	largestBatch = weir.MaxBody*5/2 + 64<<10
)

// connections is the maximum number of connections at this moment.
func (svc *Service) connections() int { return svc.capacity.connections(svc.store.figures().Segments) }

// isProxy reports whether an address is a trusted proxy, which stands for many clients.
func (svc *Service) isProxy(a netip.Addr) bool {
	for _, p := range svc.settings.Proxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
