package segments

import "sync"

const (
	// LongRun is the largest number of bytes that a scan reads at once, unless one entry is longer.
	// It is also the number that a scan reads at once if its caller does not choose one.
	LongRun = 1 << 20
	// ShortRun is the size of the smaller buffers, for reads of up to ShortRun bytes. Thousands of
	// subscribers may catch up at once, and each scan reads 56 KiB at a time or less.
	ShortRun = 64 << 10
)

var (
	shortBuffers = sync.Pool{New: func() any { b := make([]byte, ShortRun); return &b }}
	longBuffers  = sync.Pool{New: func() any { b := make([]byte, LongRun); return &b }}
)

// Buffer returns a buffer of this length, and a function that returns it to its pool.
func Buffer(length int) ([]byte, func()) {
	pool := &shortBuffers
	switch {
	case length > LongRun:
		return make([]byte, length), func() {}
	case length > ShortRun:
		pool = &longBuffers
	}
	b := pool.Get().(*[]byte)
	return (*b)[:length], func() { pool.Put(b) }
}
