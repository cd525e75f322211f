// Package meter provides counters cheap enough for hot paths: atomic words without labels, maps or
// locks. Package metrics gives the numbers their names.
package meter

import (
	"sync/atomic"
	"time"
)

// Shards is the number of shards of a busy counter. Each shard holds a part of the count. A caller
// picks a shard by any criterion that spreads callers, so that CPU cores do not contend for one
// cache line. A reader adds up all shards.
const Shards = 8

// Pad separates shards, so that no two share a cache line. It is as long as two cache lines,
// because processors also prefetch the neighbouring line.
type Pad [128]byte

// Bounds are the inclusive upper bounds of a histogram's buckets, in increasing order. One more
// bucket counts the values above the last bound.
type Bounds [16]int64

// Latencies are bounds in nanoseconds, from 0.1 ms to 10 s.
var Latencies = Bounds{
	100_000, 250_000, 500_000,
	1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000, 250_000_000, 500_000_000,
	1_000_000_000, 2_500_000_000, 5_000_000_000, 10_000_000_000,
}

// Sizes are bounds for counts, such as the number of batches in a group.
var Sizes = Bounds{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768}

// Histogram counts values by bucket. The zero value is ready to use. It does not store its bounds:
// every call to Observe must pass the same bounds.
type Histogram struct {
	counts [len(Bounds{}) + 1]atomic.Uint64
	sum    atomic.Int64
}

// Observe counts n occurrences of the value v. A negative value, from a clock that stepped back,
// counts as 0.
func (h *Histogram) Observe(b *Bounds, v int64, n uint64) {
	v = max(v, 0)
	i := 0
	for i < len(b) && v > b[i] { // most values are small, so this is faster than a binary search
		i++
	}
	h.counts[i].Add(n)
	h.sum.Add(v * int64(n))
}

// Distribution is a snapshot of one or more histograms.
type Distribution struct {
	Counts [len(Bounds{}) + 1]uint64 // by bucket; the last bucket is for values above all bounds
	Sum    int64                     // of all values
}

// Add adds the current counts of a histogram.
func (d *Distribution) Add(h *Histogram) {
	for i := range h.counts {
		d.Counts[i] += h.counts[i].Load()
	}
	d.Sum += h.sum.Load()
}

// Count returns the number of values.
func (d *Distribution) Count() uint64 {
	n := uint64(0)
	for _, c := range d.Counts {
		n += c
	}
	return n
}

// epoch is when the process started. Only differences to it are used.
var epoch = time.Now()

// Now returns the time since the process started, in nanoseconds. It reads only the monotonic
// clock, which costs half as much as time.Now.
func Now() int64 { return int64(time.Since(epoch)) }

// At converts a result of time.Now to the value that Now would have returned at that time.
func At(t time.Time) int64 { return int64(t.Sub(epoch)) }
