package servicetest

import (
	"context"
	"sync/atomic"

	"weir/internal/engine"
	"weir/internal/engine/memory"
)

// Disk is an engine in memory that a test can fill up.
type Disk struct {
	engine.Engine
	refuse atomic.Pointer[func(payload []byte) bool]
}

// NewDisk returns an engine that has space.
func NewDisk() *Disk { return &Disk{Engine: memory.New()} }

// SetFull makes the engine report that it is full. The engine then refuses an entry if the function
// refuse returns true for its payload. SetFull(nil) makes space again.
func (d *Disk) SetFull(refuse func(payload []byte) bool) {
	if refuse == nil {
		d.refuse.Store(nil)
		return
	}
	d.refuse.Store(&refuse)
}

// Status implements engine.Engine.
func (d *Disk) Status() engine.Status {
	if d.refuse.Load() != nil {
		return engine.Status{State: engine.Full, Reason: engine.ErrFull}
	}
	return d.Engine.Status()
}

// Open implements engine.Engine.
func (d *Disk) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := d.Engine.Open(ctx, id, j)
	return &diskLog{l, d}, err
}

type diskLog struct {
	engine.Log
	d *Disk
}

// Append implements engine.Log.
func (l *diskLog) Append(ctx context.Context, e *engine.Entry) error {
	if refuse := l.d.refuse.Load(); refuse != nil && (*refuse)(e.Payload) {
		return engine.ErrFull
	}
	return l.Log.Append(ctx, e)
}

// Propose implements engine.Log.
func (l *diskLog) Propose(e *engine.Entry, done func(error)) {
	if refuse := l.d.refuse.Load(); refuse != nil && (*refuse)(e.Payload) {
		done(engine.ErrFull)
		return
	}
	l.Log.Propose(e, done)
}
