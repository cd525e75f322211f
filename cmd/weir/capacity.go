package main

import (
	"math"
	"net/netip"
	"runtime/debug"
	"syscall"

	"weir/internal/budget"
)

// What is kept from connections.
const (
	spareFiles    = 128      // file handles of everything but connections and segments
	connectionRAM = 64 << 10 // twice what a subscription takes
	fewest        = 16       // connections, however little there is
)

// What large bodies that come in may take together, and large batches that go out: an eighth of the memory, between these.
const (
	leastPayloads = 64 << 20
	mostPayloads  = 512 << 20
)

// capacity is how much this process may have of what attackers would use up.
type capacity struct {
	files  int   // file handles
	memory int64 // bytes
}

// thisCapacity asks the system. The Go runtime has raised the soft limit of files to the hard one before main.
func thisCapacity() capacity {
	c := capacity{files: math.MaxInt32, memory: min(systemMemory(), debug.SetMemoryLimit(-1))}
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) == nil && uint64(l.Cur) < math.MaxInt32 {
		c.files = int(l.Cur)
	}
	return c
}

// connections is how many there may be beside so many segments: each may be open twice, while it is reclaimed or backed up.
func (c capacity) connections(segments int) int {
	return int(max(fewest, min(int64(c.files-spareFiles-2*segments), c.memory/connectionRAM)))
}

// payloads is memory for large ones in one direction. Each direction has its own, so that nobody who takes nothing keeps others
// from publishing.
func (c capacity) payloads() *budget.Budget {
	return budget.New(max(leastPayloads, min(c.memory/8, mostPayloads)))
}

// connections is how many there may be now.
func (svc *service) connections() int { return svc.capacity.connections(svc.store.figures().Segments) }

// isProxy tells whether an address stands for many clients.
func (svc *service) isProxy(a netip.Addr) bool {
	for _, p := range svc.settings.proxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
