package api

import (
	"time"

	"github.com/klauspost/compress/zstd"

	"weir/internal/budget"
)

// FirstRead is the size up to which a body needs no memory from the shared budget.
const FirstRead = firstRead

// MostLater is the size of the largest body that ServeLater takes.
const MostLater = secondRead

// Parked is a response that an event loop continues.
type Parked = parked

// ZstdMemory is the memory that a long response borrows for its zstd encoder.
const ZstdMemory = zstdMemory

// NewZstd returns a new encoder of the kind that compresses long responses.
func NewZstd() *zstd.Encoder { return newZstd(1) }

// HelloFrame and HeartbeatFrame are the frames of a subscription that carry no batch.
var (
	HelloFrame     = helloFrame
	HeartbeatFrame = heartbeatFrame
)

// PageToken returns the page token for a position in a project's list of streams.
var PageToken = pageToken

// SetMemory replaces the memory budgets for large bodies and batches, and sets how long a call
// waits for memory. Call SetMemory before the first request.
func SetMemory(h *Handler, bodies, batches *budget.Budget, wait time.Duration) {
	h.Bodies, h.Batches, h.memoryWait = bodies, batches, wait
}
