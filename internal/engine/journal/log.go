package journal

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
)

// log is the in-memory state of one log. It exists once the log was opened, has entries, or has a
// mark (the record of its last trim).
//
// A journal may have a million logs, so every field counts: a log takes 96 bytes, including its entry
// if it has only one.
type log struct {
	id engine.LogID

	mu      sync.RWMutex
	index   index.Entries
	mark    *mark // the last trim; nil if there was none
	open    bool
	dropped bool

	// attached is the open handle, whose judge the committer asks. It is nil while the log is not
	// open. A log is deleted together with its document: once the committer has accepted that
	// deletion, attached is the value doomed.
	attached atomic.Pointer[handle]
}

// mark is the record of a log's last trim. Most logs of a journal with a million logs were never
// trimmed.
type mark struct {
	low  weir.Seq     // all entries below this sequence are trimmed
	note []byte       // bytes that the trim stored; nil if there are none, or if the note is longer than keptNote and so only on disk
	at   index.Extent // position and size of the record
}

// lastMark returns the last trim of the log, or the zero mark if there was none. Called with l.mu
// held.
func (l *log) lastMark() mark {
	if l.mark == nil {
		return mark{}
	}
	return *l.mark
}

// doomed is the value of log.attached for a log whose document is deleted or is being deleted.
var doomed = &handle{}

// handle is an open log, as returned to callers of the engine.
type handle struct {
	*log
	j      *Journal
	judge  engine.Judge
	closed atomic.Bool
	ops    atomic.Int64 // appends and trims in flight, including those whose callers have left

	// Used by the committer only.
	commit int      // position of this log in group.commits
	staged weir.Seq // value of low after all trims, including those in flight
}

var _ engine.Sized = (*handle)(nil)

// perEntry is the memory that one entry of a long log takes, rounded up; see Costs in DESIGN.md.
const perEntry = 32

// Held implements engine.Engine. A journal keeps the index of every log in memory, whether the log
// is open or not.
func (j *Journal) Held(id engine.LogID) int64 {
	j.store.mu.RLock()
	l := j.store.logs.Get(id)
	j.store.mu.RUnlock()
	if l == nil {
		return 0
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.held()
}

// Held implements engine.Sized.
func (h *handle) Held() int64 {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.held()
}

func (l *log) held() int64 { return int64(l.index.Len())*perEntry + int64(len(l.lastMark().note)) }

// Outline implements engine.Engine.
func (j *Journal) Outline(id engine.LogID) (o engine.Outline, known bool) {
	l := j.store.log(id)
	if l == nil {
		return o, true
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	o.Low, o.Memory = l.lastMark().low, l.held()
	l.index.Ascend(0, func(it index.Item) bool {
		if o.Last, o.Newest = it.Seq, it.Time; o.Entries == 0 {
			o.First, o.Oldest = it.Seq, it.Time
		}
		o.Entries++
		o.Ended = it.Flags&engine.Ends != 0
		o.Oldest = min(o.Oldest, it.Time)
		if it.Kind == segments.KindBatch && it.Flags&engine.Lost == 0 {
			o.Batches++
			o.Bytes += int64(it.Size)
		}
		return true
	})
	return o, true
}

// detachOp detaches the judge of a handle. In the queue it comes after all ops of the handle that
// are in flight, and after the deletion of the document if a deletion is in flight.
type detachOp struct {
	h    *handle
	done chan error
}

func (o *detachOp) bound() (int, int) { return 0, 0 }
func (o *detachOp) class() class      { return freeing }
func (o *detachOp) settle(*group)     {}
func (o *detachOp) stage(*group)      { o.h.attached.CompareAndSwap(o.h, nil) }

// finish succeeds in a read-only journal too, so that its logs can be closed. A detached judge must
// get no more calls. So the announcer answers this op only after earlier deletions, because a
// deletion calls Dropped.
func (o *detachOp) finish(err error) {
	if errors.Is(err, engine.ErrReadOnly) {
		err = nil
	}
	o.h.j.announce.add(o, err)
}

func (o *detachOp) announce(_ *announcer, err error) { o.done <- err }

// Close implements engine.Log. If no op of the handle is in flight and the document is not being
// deleted, Close detaches the judge at once. This is the usual case. Close sets the field closed
// before it looks for ops in flight, and the method begin counts an op before it reads this field.
// So once Close has found no op in flight, no op can begin.
func (h *handle) Close() error {
	if h.closed.Swap(true) {
		return nil
	}
	if h.ops.Load() > 0 || !h.attached.CompareAndSwap(h, nil) {
		o := &detachOp{h, make(chan error, 1)}
		h.j.do(o)
		if err := <-o.done; err != nil {
			<-h.j.announce.done // the journal is closing: wait until it has settled the appends in flight
		}
	}
	h.mu.Lock()
	h.open = false
	h.mu.Unlock()
	return nil
}

// drop removes all entries after the deletion of the document is durable, and notifies the judge.
// The announcer calls it.
func (l *log) drop(j *Journal, h *handle) {
	l.mu.Lock()
	gone, old := l.index, l.lastMark().at
	l.index, l.mark, l.dropped = index.Entries{}, nil, true
	l.mu.Unlock()
	j.reclaim.forget(gone, old)
	if h != nil && h.judge != nil {
		h.judge.Dropped()
	}
}

// spare takes back what doom did, because the deletion could not be written. The argument is the
// handle that doom returned. If that handle was closed in the meantime, the log stays without a
// handle.
func (l *log) spare(h *handle) {
	if h != doomed && l.attached.CompareAndSwap(doomed, h) && h != nil && h.closed.Load() {
		l.attached.CompareAndSwap(h, nil)
	}
}

// CatchUp implements engine.Log. The judge always knows everything that was acknowledged.
func (h *handle) CatchUp(context.Context) error { return h.usable() }

// Attend implements engine.Log. It does nothing, because no other process writes to a journal.
func (h *handle) Attend() {}

// Leave implements engine.Log.
func (h *handle) Leave() {}

// begin counts an op as in flight. It returns engine.ErrClosed, and counts nothing, if the log or
// the journal is closed.
func (h *handle) begin() error {
	h.ops.Add(1)
	err := h.usable()
	if err != nil {
		h.ops.Add(-1)
	}
	return err
}

// usable returns engine.ErrClosed if the log or the journal is closed.
func (h *handle) usable() error {
	if h.closed.Load() || h.j.closing.Load() {
		return engine.ErrClosed
	}
	return nil
}

// appendOp is an append in flight.
type appendOp struct {
	h        *handle
	e        *engine.Entry
	sum      uint32
	key      string // the key for which digest was computed
	digest   weir.KeyDigest
	first    [8]byte
	item     index.Item
	admitted bool
	err      error
	done     func(error)
}

// Append implements engine.Log.
func (h *handle) Append(ctx context.Context, e *engine.Entry) error {
	if err := ctx.Err(); err != nil {
		return err // otherwise the outcome could be known before the method wait looks at ctx
	}
	w := h.j.waiters.get()
	e.Deferred = false
	h.Propose(e, w.done)
	return h.j.waiters.wait(ctx, w)
}

// Propose implements engine.Log.
func (h *handle) Propose(e *engine.Entry, done func(error)) {
	err := h.check(e)
	if err == nil {
		err = h.begin()
	}
	if err != nil {
		done(err)
		return
	}
	o, again := e.Room.(*appendOp)
	if !again {
		o = new(appendOp)
		e.Room = o
	}
	*o = appendOp{h: h, e: e, done: done}
	if e.Kind == engine.Batch {
		o.sum = segments.Sum(0, e.Payload) // computed in the caller's goroutine, because the single committer would be a bottleneck
		if o.key = e.Key; o.key != "" {
			o.digest = weir.DigestKey(o.key)
		}
	}
	h.j.do(o)
}

// check refuses entries that the format cannot represent or that do not fit in a segment.
func (h *handle) check(e *engine.Entry) error {
	switch {
	case e.Kind != engine.Batch && e.Kind != engine.GapClosed:
		return fmt.Errorf("append to log %d: unknown kind %d", h.id, e.Kind)
	case len(e.Payload) > index.MaxPayload || int64(len(e.Payload)) > h.j.dir.Size/2:
		return fmt.Errorf("append to log %d: payload of %d bytes is too large", h.id, len(e.Payload))
	case len(e.ContentType) > engine.MaxContentType || len(e.Key) > engine.MaxKey || len(e.Publisher) > weir.MaxPublisher || len(e.Tag) > engine.MaxTag:
		return fmt.Errorf("append to log %d: content type, key, publisher or tag is too long", h.id)
	}
	return nil
}

func (o *appendOp) bound() (int, int) {
	n := segments.Padded(segments.RecordSize + len(o.e.ContentType) + len(o.e.Key) + len(o.e.Publisher) + len(o.e.Tag) + segments.TagLength + len(o.e.Payload) + len(o.first))
	if o.e.Key != "" {
		n += segments.KeyRoom
	}
	return n, 1
}

func (o *appendOp) class() class { return growing }

// placed tells the proposer that the entry is in the queue.
func (o *appendOp) placed() {
	if p, ok := o.e.Proposer.(engine.Placeable); ok {
		p.Placed()
	}
}

// stage asks the judge and, if the entry is admitted, adds its record to the group.
func (o *appendOp) stage(g *group) {
	switch o.h.attached.Load() {
	case o.h:
	case doomed:
		o.err = engine.ErrDropped
		return
	default: // the log was closed while this append was queued
		o.err = engine.ErrClosed
		return
	}
	e := o.e
	if o.admitted = g.admit(o.h, e); !o.admitted {
		return
	}
	r := segments.Record{
		Kind: segments.Kind(e.Kind), Flags: e.Flags & index.FlagMask, Log: uint64(o.h.id), Seq: uint64(e.Seq), Time: int64(e.Time), Count: e.Count,
		ContentType: e.ContentType, Key: e.Key, Publisher: e.Publisher, Tag: e.Tag, Payload: e.Payload, PayloadSum: o.sum,
	}
	if e.Key == o.key { // the judge may have changed the key
		r.Digest = o.digest
	}
	if e.Kind == engine.GapClosed {
		binary.LittleEndian.PutUint64(o.first[:], uint64(e.First))
		r.Payload, r.PayloadSum = o.first[:], segments.Sum(0, o.first[:])
	}
	o.item = index.Item{
		Seq: e.Seq, Time: e.Time, Place: g.add(&r), Size: uint32(len(r.Payload)), Head: uint16(r.HeadLen()),
		Kind: r.Kind, Flags: r.Flags, Keyed: e.Key != "", Key: uint16(len(e.Key)), Tag: e.Tag != "",
	}
}

// settle adds the entry to the index. An entry below low, or of a deleted log, is on disk but no
// longer needed, so it is not added.
func (o *appendOp) settle(g *group) {
	if !o.admitted {
		return
	}
	l := o.h.log
	l.mu.Lock()
	dead := l.dropped || o.item.Seq < l.lastMark().low
	if !dead {
		if _, twice := l.index.Insert(o.item); twice {
			panic(fmt.Sprintf("log %d: the judge admitted sequence %d twice", l.id, o.item.Seq))
		}
	}
	l.mu.Unlock()
	if !dead {
		g.live += o.item.Bytes()
	}
}

// finish empties the op before it reports the outcome, because the caller may append the entry again
// at once.
func (o *appendOp) finish(err error) {
	if err == nil {
		err = o.err
	}
	h, done := o.h, o.done
	o.h, o.e, o.key, o.done = nil, nil, "", nil
	h.ops.Add(-1)
	done(err)
}

// trimOp removes the entries below low and stores a note.
type trimOp struct {
	h    *handle
	low  weir.Seq
	note []byte
	at   index.Extent
	err  error
	done chan error
}

// Trim implements engine.Log.
func (h *handle) Trim(ctx context.Context, low weir.Seq, note []byte) error {
	if len(note) > engine.MaxNote || int64(len(note)) > h.j.dir.Size/2 {
		return fmt.Errorf("trim log %d: note of %d bytes is too long", h.id, len(note))
	}
	if err := h.begin(); err != nil {
		return err
	}
	o := &trimOp{h: h, low: low, note: append([]byte{}, note...), done: make(chan error, 1)}
	h.j.do(o)
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (o *trimOp) bound() (int, int) { return segments.Padded(segments.RecordSize + len(o.note)), 1 }
func (o *trimOp) class() class      { return deleting }

// stage decides the new low of the log. The field handle.staged includes the trims that were staged
// before but are not settled yet, so low never goes down.
func (o *trimOp) stage(g *group) {
	if o.h.attached.Load() == doomed {
		o.err = engine.ErrDropped
		return
	}
	o.h.staged = max(o.h.staged, o.low)
	o.low = o.h.staged
	c := &o.h.j.commit
	r := segments.Record{
		Kind: segments.KindMark, Log: uint64(o.h.id), Seq: uint64(o.low), Time: int64(c.next), Payload: o.note, PayloadSum: segments.Sum(0, o.note),
	}
	c.next++
	o.at = index.Extent{Place: g.add(&r), Bytes: r.Bytes()}
}

// settle removes the trimmed entries from the index. The reclaimer later subtracts their bytes from
// the live bytes of their segments.
func (o *trimOp) settle(g *group) {
	if o.err != nil {
		return
	}
	l := o.h.log
	l.mu.Lock()
	old := l.lastMark().at
	var gone index.Entries
	if !l.dropped {
		l.mark = &mark{o.low, o.note, o.at}
		if len(o.note) > keptNote {
			l.mark.note = nil
		}
		gone = l.index.Cut(o.low)
		g.live += o.at.Bytes
	}
	l.mu.Unlock()
	o.h.j.reclaim.forget(gone, old)
}

func (o *trimOp) finish(err error) {
	if err == nil {
		err = o.err
	}
	o.h.ops.Add(-1)
	o.done <- err
}
