package record

import (
	"iter"
	"sync/atomic"

	"weir"
	"weir/internal/engine"
)

// Restored returns the headers 0 to n-1 in the form that Judge.Restore receives. Keys of entries
// that are older than since are not needed. The digests of keys take more time than the rest. So if
// there are many headers, a second goroutine stores the digests of the last ones in these headers,
// while the judge receives the first ones.
func Restored(n int, since weir.Time, header func(i int) *engine.Header) iter.Seq[*engine.Header] {
	return func(yield func(*engine.Header) bool) {
		ahead := digestAhead(n, func(i int) {
			if h := header(i); h.Time >= since && h.Key != "" {
				h.KeyDigest = weir.DigestKey(h.Key)
			}
		})
		defer ahead.end()
		for i := range n {
			ahead.await(i)
			h := *header(i)
			size := uint16(len(h.Key))
			if h.Time < since {
				h.Count, h.Key = 0, ""
			}
			h = h.Restored()
			if h.KeySize = size; !yield(&h) {
				return
			}
		}
	}
}

// digesting computes the digests of many headers. They are divided into blocks of perBlock headers.
// The goroutine that claims a block first computes its digests: one goroutine begins with the last
// block, and the caller with the first.
type digesting struct {
	blocks []block
	over   atomic.Bool   // the caller needs no more digests
	ended  chan struct{} // closed when the other goroutine has ended; nil if there is none
}

type block struct {
	claimed atomic.Bool
	done    chan struct{} // closed when the other goroutine has computed the digests of the block
}

// perBlock is the number of headers in a block. Fewer than four blocks need no second goroutine.
const perBlock = 1024

// digestAhead begins to call the function digest for the headers 0 to n-1, from the end.
func digestAhead(n int, digest func(i int)) *digesting {
	d := &digesting{}
	if n < 4*perBlock {
		return d
	}
	d.ended = make(chan struct{})
	d.blocks = make([]block, (n+perBlock-1)/perBlock)
	for k := range d.blocks {
		d.blocks[k].done = make(chan struct{})
	}
	go func() {
		defer close(d.ended)
		for k := len(d.blocks) - 1; k >= 0 && !d.over.Load() && d.blocks[k].claimed.CompareAndSwap(false, true); k-- {
			for i := k * perBlock; i < min(n, (k+1)*perBlock); i++ {
				digest(i)
			}
			close(d.blocks[k].done)
		}
	}()
	return d
}

// await is called before header i is used, for each header in order. If the other goroutine has
// claimed the block of the header, await waits for it.
func (d *digesting) await(i int) {
	if d.ended == nil || i%perBlock != 0 {
		return
	}
	if b := &d.blocks[i/perBlock]; !b.claimed.CompareAndSwap(false, true) {
		<-b.done
	}
}

// end waits until the other goroutine has ended. The caller needs no more digests.
func (d *digesting) end() {
	if d.over.Store(true); d.ended != nil {
		<-d.ended
	}
}
