package service

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The Go runtime keeps about as much free memory as the program uses, because the program may need
// the memory again soon. So after its start, or after a burst of publishes, a server would keep
// twice as much memory as its streams need, even if it has nothing to do. Therefore the service
// checks from time to time whether it is at rest, and then returns the unused memory to the system,
// which costs a garbage collection.

const (
	// restEvery is how often the service checks whether it is at rest.
	restEvery = 30 * time.Second
	// restBytes is the number of bytes that the process may allocate between two checks and still
	// count as being at rest.
	restBytes = 32 << 20
	// returnBytes is the least memory that is worth a garbage collection: this many bytes must be
	// unused, and the process must have allocated this many bytes since memory was last returned.
	// A collection of a large heap costs more, so the least is at least an eighth of the memory in
	// use.
	returnBytes = 16 << 20
)

// memoryUse is how the process uses its memory, in bytes.
type memoryUse struct {
	allocated uint64 // allocated since the process started, freed or not
	mapped    uint64 // heap memory that the system has given to the process
	live      uint64 // the part of mapped that was in use at the last garbage collection
}

func thisMemoryUse() memoryUse {
	s := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
	}
	metrics.Read(s)
	of := func(i int) uint64 { return s[i].Value.Uint64() }
	return memoryUse{allocated: of(0), live: of(1), mapped: of(2) + of(3) + of(4)}
}

// rest decides when to return memory.
type rest struct {
	last     memoryUse
	returned uint64 // value of allocated when memory was last returned
}

// due reports whether the process is at rest and has memory worth returning.
func (r *rest) due(now memoryUse) bool {
	calm := now.allocated-r.last.allocated < restBytes
	r.last = now
	least := max(returnBytes, now.live/8)
	worth := now.mapped > now.live+least && now.allocated-r.returned >= least
	if calm && worth {
		r.returned = now.allocated
	}
	return calm && worth
}

// returnMemory returns unused memory to the system whenever the process is at rest. It ends when the
// channel stop is closed.
func returnMemory(stop <-chan struct{}) {
	tick := time.NewTicker(restEvery)
	defer tick.Stop()
	for r := (rest{last: thisMemoryUse()}); ; {
		select {
		case <-tick.C:
			if r.due(thisMemoryUse()) {
				debug.FreeOSMemory()
			}
		case <-stop:
			return
		}
	}
}

// startPercent is the value of GOGC during a start, unless the operator has chosen a higher one.
const startPercent = 300

// CollectLess makes the garbage collector run less often until the returned function is called.
// While a server with many streams starts, its heap only grows, so most collections would find
// little. With fewer of them, a start with a million streams takes a fifth less CPU time, and a sixth
// more memory.
func CollectLess() (undo func()) {
	was := debug.SetGCPercent(startPercent)
	if was < 0 || was > startPercent {
		debug.SetGCPercent(was)
	}
	return func() { debug.SetGCPercent(was) }
}

// ReturnStartMemory collects garbage only if the heap is at most smallHeap. The heap includes the
// ballast, an allocation that weir serve makes and never uses (see cmd/weir/serve.go).
const smallHeap = 128 << 20

// ReturnStartMemory returns to the system the memory that was needed only during the start, such as
// the 19 MiB for the hash of the first password. If the heap is large, ReturnStartMemory does nothing, because
// a garbage collection would take CPU time from the first clients. The service then returns the
// memory when it is at rest.
func ReturnStartMemory() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc < smallHeap {
		debug.FreeOSMemory()
	}
}
