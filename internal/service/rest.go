package service

import (
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The Go runtime keeps about as much free memory as the program uses, because the program may need
// the memory again soon. A server that has come to rest would keep it for good: after a start or a
// burst of publishes, twice as much memory as its streams need. So the service looks from time to
// time whether it is at rest, and then returns the unused memory to the system. That costs a
// garbage collection.

const (
	// restEvery is how often the service looks whether it is at rest.
	restEvery = 30 * time.Second
	// restBytes is the number of bytes that the process may allocate between two looks while it
	// counts as being at rest.
	restBytes = 32 << 20
	// returnBytes is the least number of unused bytes that is worth a garbage collection. The
	// process must also have allocated as many since the last one that the service made.
	returnBytes = 64 << 20
)

// memoryUse is how the process uses its memory, in bytes.
type memoryUse struct {
	allocated uint64 // allocated since the process started, freed or not
	mapped    uint64 // heap memory that the system has given to the process
	live      uint64 // of that, in use at the last garbage collection
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
	worth := now.mapped > now.live+max(returnBytes, now.live/8) && now.allocated-r.returned >= returnBytes
	if calm && worth {
		r.returned = now.allocated
	}
	return calm && worth
}

// returnMemory returns unused memory to the system whenever the process is at rest, until stop is
// closed.
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
