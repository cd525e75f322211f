package api

import (
	"time"

	"weir/internal/budget"
)

// FirstRead is the size up to which a body needs no memory of the budget.
const FirstRead = firstRead

// HelloFrame and HeartbeatFrame are the frames of a subscription that carry no batch.
var (
	HelloFrame     = helloFrame
	HeartbeatFrame = heartbeatFrame
)

// PageToken is the position at which a list continues.
var PageToken = pageToken

// SetMemory replaces the budgets for large bodies and batches, and how long a call waits for them.
// Call it before the first request.
func SetMemory(h *Handler, bodies, batches *budget.Budget, wait time.Duration) {
	h.Bodies, h.Batches, h.memoryWait = bodies, batches, wait
}
