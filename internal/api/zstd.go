package api

import (
	"context"
	"net/http"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// This file compresses responses to GET requests with zstd (D37). A response is one frame, because
// a client may read only the first frame.
//
// Subscriptions are never compressed with zstd. Subscribers share compressed batches, and a zstd
// block cannot be shared. A block may refer to the last three distances that the blocks before it
// used, and these differ from subscriber to subscriber.

const (
	// zstdWindow is how far back a match may be. A larger window saves hardly any bytes of JSON
	// events, and takes more memory.
	zstdWindow = 64 << 10

	// zstdMemory is the memory that an encoder takes while it compresses a long response.
	zstdMemory = 768 << 10
)

// newZstd returns an encoder that starts no goroutine for a long response, and that lets at most
// this many goroutines compress short responses at the same time.
func newZstd(concurrency int) *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(zstdWindow),
		zstd.WithLowerEncoderMem(true), zstd.WithEncoderConcurrency(concurrency))
	if err != nil {
		panic("api: create a zstd encoder: " + err.Error()) // an option above is invalid
	}
	return e
}

// shortZstd compresses the short responses. All calls share it, so its memory does not grow with
// the number of calls: a call waits while each processor compresses another response.
var shortZstd = sync.OnceValue(func() *zstd.Encoder { return newZstd(runtime.GOMAXPROCS(0)) })

// longZstd is a pool of encoders for long responses. A response keeps its encoder until it is sent,
// and borrows the memory for it from the budget (borrowEncoder).
var longZstd = sync.Pool{New: func() any { return newZstd(1) }}

// zstdStream is a packer that compresses a long response as one zstd frame.
type zstdStream struct {
	e   *zstd.Encoder
	out sink
}

func newZstdStream() *zstdStream {
	s := &zstdStream{e: longZstd.Get().(*zstd.Encoder)}
	s.e.Reset(&s.out)
	return s
}

// sink appends what is written to it.
type sink struct{ b []byte }

func (s *sink) Write(b []byte) (int, error) {
	s.b = append(s.b, b...)
	return len(b), nil
}

// The encoder returns only errors of the writer, and a sink has none. So the methods below ignore
// the errors of the encoder.

func (s *zstdStream) add(b, data []byte) []byte {
	s.out.b = b
	_, _ = s.e.Write(data)
	_ = s.e.Flush()
	return s.out.b
}

// end also returns the encoder to the pool. If a response is cut off, end is not called, and the
// encoder is garbage.
func (s *zstdStream) end(b []byte) []byte {
	s.out.b = b
	_ = s.e.Close()
	s.e.Reset(nil)
	longZstd.Put(s.e)
	return s.out.b
}

// borrowEncoder borrows the memory of an encoder from the budget, and reports whether there was
// enough. It does not wait: the response can do without zstd. The encoder has a loan of its own. If
// its memory were part of c.loan, that loan would be a large one, and each run of a page would have
// to wait until there is memory for large loans.
func (c *call) borrowEncoder() bool {
	now, cancel := context.WithCancel(c.r.Context())
	cancel()
	control := http.NewResponseController(c.w)
	loan := c.h.Batches.Open(c.holder(), zstdMemory, func() { _ = control.SetWriteDeadline(longAgo) })
	if loan.Grow(now, zstdMemory) != nil {
		return false
	}
	c.encoder = loan
	return true
}
