// Package meter counts what happens on hot paths, for as little as it can cost: plain atomic words, no label, no map, no
// lock. What the numbers are called and who is shown them is decided elsewhere.
package meter

import (
	"sync/atomic"
	"time"
)

// Shards is how many copies there are of counters that many cores count at once. Each caller picks one (by anything that
// spreads), so that cores do not fight over a cache line; whoever reads adds them up.
const Shards = 8

// Pad ends a shard: the next one begins on another cache line, and on another one than the processor fetches along.
type Pad [128]byte

// Bounds are the inclusive upper ends of the ranges of a histogram, in increasing order; what is above the last one is
// counted too.
type Bounds [16]int64

// Latencies are bounds in nanoseconds, for what takes from a tenth of a millisecond to ten seconds.
var Latencies = Bounds{
	100_000, 250_000, 500_000,
	1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000, 250_000_000, 500_000_000,
	1_000_000_000, 2_500_000_000, 5_000_000_000, 10_000_000_000,
}

// Sizes are bounds of how many things come together.
var Sizes = Bounds{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768}

// Histogram counts values by range. The zero value is ready. It has always the same bounds: who observes names them.
type Histogram struct {
	counts [len(Bounds{}) + 1]atomic.Uint64
	sum    atomic.Int64
}

// Observe counts n values v. A negative value, of a clock that stepped, counts as 0.
func (h *Histogram) Observe(b *Bounds, v int64, n uint64) {
	v = max(v, 0)
	i := 0
	for i < len(b) && v > b[i] { // most values are small, so that this is shorter than halving
		i++
	}
	h.counts[i].Add(n)
	h.sum.Add(v * int64(n))
}

// Distribution is what histograms counted.
type Distribution struct {
	Counts [len(Bounds{}) + 1]uint64 // by range; the last is above all bounds
	Sum    int64
}

// Add adds what a histogram counted so far.
func (d *Distribution) Add(h *Histogram) {
	for i := range h.counts {
		d.Counts[i] += h.counts[i].Load()
	}
	d.Sum += h.sum.Load()
}

// Count is how many values there were.
func (d *Distribution) Count() uint64 {
	n := uint64(0)
	for _, c := range d.Counts {
		n += c
	}
	return n
}

// epoch is when the process began. Only what has passed since then is ever looked at.
var epoch = time.Now()

// Now is the time since the process began, in nanoseconds. It asks the monotonic clock alone, for half the price of
// time.Now.
func Now() int64 { return int64(time.Since(epoch)) }

// At is a moment that time.Now returned, as Now would have.
func At(t time.Time) int64 { return int64(t.Sub(epoch)) }
