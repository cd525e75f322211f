package service

import (
	"math"
	"net/netip"
	"runtime/debug"
	"syscall"

	"weir"
	"weir/internal/budget"
	"weir/internal/server"
)

// These constants limit the number of connections, so that connections do not use up files and
// memory.
const (
	spareFiles    = 128      // file descriptors reserved for everything except connections and journal segments
	subscriberRAM = 64 << 10 // bytes per subscription; twice what an idle one over TLS uses
	connectionRAM = subscriberRAM + server.LeastWindow
	fewest        = 16 // number of connections that are allowed however few files and bytes there are
)

// Bounds of two memory budgets: one for large request bodies, one for large batches in flight to
// clients. Each budget is an eighth of the machine's memory, but stays within these bounds.
const (
	leastPayloads = 64 << 20
	mostPayloads  = 512 << 20
)

// Bounds of the memory for the states of streams that are not in use.
const (
	leastStates = 16 << 20
	mostStates  = 256 << 20
)

// capacity says how much of each limited resource this process may use. An attacker could try to
// exhaust these resources.
type capacity struct {
	files  int   // file descriptors
	memory int64 // bytes
}

// thisCapacity asks the system for the limits of this process. The soft limit on open files is
// already equal to the hard limit, because the Go runtime raises it before main runs.
func thisCapacity() capacity {
	c := capacity{files: math.MaxInt32, memory: min(systemMemory(), debug.SetMemoryLimit(-1))}
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) == nil && uint64(l.Cur) < math.MaxInt32 {
		c.files = int(l.Cur)
	}
	return c
}

// connections returns the maximum number of connections, given the number of segments, which are the
// files of the journal. Each segment counts twice, because it has a second open file while it is
// reclaimed or backed up.
func (c capacity) connections(segments int) int {
	return int(max(fewest, min(int64(c.files-spareFiles-2*segments), c.memory/connectionRAM)))
}

// window returns a limit for each connection: how many bytes the client may have sent that no
// handler has read yet. If every connection reaches this limit, they take half of the memory
// together.
func (c capacity) window() int {
	return int(max(server.LeastWindow, min(c.memory/2/int64(c.connections(0)), math.MaxInt32)))
}

// subscribers returns the upper bound for the default of --max-subscribers (D34). With this number,
// all subscriptions together use at most half of the memory.
func (c capacity) subscribers() int {
	return int(max(fewest, min(c.memory/2/subscriberRAM, mostSubscribers)))
}

// states returns the memory for the cached states of streams that are not in use. A state consists
// mostly of idempotency keys. On a machine with 4 GiB there is memory for about three million keys.
func (c capacity) states() int64 { return max(leastStates, min(c.memory/16, mostStates)) }

// leastIndex is the lowest default of --max-index-memory.
const leastIndex = 64 << 20

// index returns the default of --max-index-memory (D12). On a machine with 4 GiB this is enough for
// 16 million batches.
func (c capacity) index() int64 { return max(leastIndex, c.memory/8) }

// mostSubscribers limits the result of the method subscribers. It matters if the machine has more than
// 128 GiB, or if its memory is unknown.
const mostSubscribers = 1 << 20

// payloads returns the memory budget for large payloads in one direction. The parameter largest is
// the most memory that a single payload needs. Each direction has its own budget, so that
// subscribers that do not read cannot prevent other clients from publishing.
func (c capacity) payloads(largest int64) *budget.Budget {
	return budget.New(max(leastPayloads, min(c.memory/8, mostPayloads)), largest)
}

// The most memory that one payload needs. A request body needs one byte more than its maximum size,
// so that the reader notices a body that is too large. A batch in flight to a subscriber exists
// twice: as the payload, and as a frame that contains the payload in base64.
const (
	largestBody  = weir.MaxBody + 1
	largestBatch = weir.MaxBody*5/2 + 64<<10
)

// connections is the maximum number of connections at this moment.
func (svc *Service) connections() int { return svc.capacity.connections(svc.store.figures().Segments) }

// isProxy reports whether an address belongs to a trusted proxy. Such an address stands for many
// clients.
func (svc *Service) isProxy(a netip.Addr) bool {
	for _, p := range svc.settings.Proxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
