package hub

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/stream"
)

// This file brings the contiguous publishes of a stream into order. A contiguous publish is refused
// if it would open a gap, so it needs the batch below it to be stored first (D38). A publisher with
// many batches in flight sends them in order, but the requests reach the hub in any order: each
// request has its own goroutine, and perhaps its own connection. If requests did not wait, nearly
// all of them would be refused, because they overtake the request that was sent first.
//
// A request therefore waits twice for the request with the sequence below its own. Before its body
// is read, it waits until that other request arrives. After its body is read, it waits until the
// other request's entry is in the queue of the log. Waiting only avoids refusals. The rules of
// package stream still decide, in the order of the log, whether a batch is stored.

const (
	// localPatience is how long a request waits before it also follows what other nodes store,
	// because the batch below may have been sent to another node. Most requests wait for less time.
	localPatience = 5 * time.Millisecond

	// arrivalPatience is how long a request waits for the arrival of the request with the sequence
	// below its own.
	arrivalPatience = 500 * time.Millisecond

	// turnPatience is how long a request whose body has been read waits for the request with the
	// sequence below its own, whose body may still be arriving.
	turnPatience = 30 * time.Second
)

// order holds the contiguous publishes of a stream that are in progress. It is a part of
// type traffic, and not of the feed, so that it survives when the log is reopened.
type order struct {
	// Requests read the fields cursor and over without a lock to decide whether to wait. The cursor
	// includes entries that are not durable yet.
	cursor atomic.Uint64
	over   atomic.Bool // the stream was deleted, or its log must be reopened

	waiting atomic.Int32  // number of requests that wait; while it is 0, a change of the cursor needs no lock
	waits   atomic.Uint32 // number of times that a request began to wait

	mu    sync.Mutex
	turns map[weir.Seq]turn
	most  int // the largest number of elements that this map has held
}

// turn describes a sequence for which contiguous publishes are in progress. There is one such
// request, or more if the client sent the batch again.
type turn struct {
	requests int
	queued   bool          // the entry of one of these requests is in the log's queue
	changed  chan struct{} // closed when the turn of the sequence below may have changed; nil if no request waits
}

// keptTurns limits the memory that an empty order keeps: a map that has never held more turns than
// this is kept, so that the next publish need not allocate one.
const keptTurns = 64

func (o *order) enter(seq weir.Seq) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.turns == nil {
		o.turns, o.most = make(map[weir.Seq]turn), 0
	}
	t := o.turns[seq]
	t.requests++
	o.turns[seq] = t
	o.most = max(o.most, len(o.turns))
	o.tell(seq + 1)
}

func (o *order) leave(seq weir.Seq) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.turns[seq]
	if t.requests--; t.requests > 0 {
		o.turns[seq] = t
	} else if delete(o.turns, seq); len(o.turns) == 0 && o.most > keptTurns {
		o.turns = nil
	}
	o.tell(seq + 1)
}

// none reports whether no contiguous publish is in progress.
func (o *order) none() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.turns) == 0
}

// queue records that the entry of a request for seq is in the log's queue.
func (o *order) queue(seq weir.Seq) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if t, ok := o.turns[seq]; ok {
		t.queued = true
		o.turns[seq] = t
		o.tell(seq + 1)
	}
}

// tell wakes the requests for seq, which wait for the sequence below. Called with o.mu held.
func (o *order) tell(seq weir.Seq) {
	if t := o.turns[seq]; t.changed != nil {
		close(t.changed)
		t.changed = nil
		o.turns[seq] = t
	}
}

// moved records the cursor of feed.ahead, the state that includes entries that are not durable yet.
// It wakes the requests for the sequence above the cursor.
func (o *order) moved(cursor weir.Seq) {
	o.cursor.Store(uint64(cursor))
	if o.waiting.Load() > 0 {
		o.mu.Lock()
		o.tell(cursor + 1)
		o.mu.Unlock()
	}
}

// begin records that the log is open, with this cursor.
func (o *order) begin(cursor weir.Seq) {
	o.over.Store(false)
	o.moved(cursor)
}

// end wakes all requests: the stream was deleted, or its log must be reopened.
func (o *order) end() {
	o.over.Store(true)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, seq := range slices.Sorted(maps.Keys(o.turns)) {
		o.tell(seq)
	}
}

// has reports whether a request for seq is in progress.
func (o *order) has(seq weir.Seq) bool {
	present, _ := o.look(seq)
	return present
}

// look reports whether a request for seq is in progress, and whether the entry of such a request is
// in the log's queue.
func (o *order) look(seq weir.Seq) (present, queued bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t, present := o.turns[seq]
	return present, t.queued
}

// change returns a channel that is closed when the turn of the sequence below seq may have changed.
// The caller must have called enter with seq.
func (o *order) change(seq weir.Seq) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.turns[seq]
	if t.changed == nil {
		t.changed = make(chan struct{})
		o.turns[seq] = t
	}
	return t.changed
}

// enter adds a contiguous publish to the order of its stream, unless enter has already done so.
func (p *Publish) enter(f *feed) {
	if p.Contiguous && p.ordered == nil {
		p.ordered = &f.way.order
		p.ordered.enter(p.Seq)
	}
}

// leave removes a publish from the order of its stream.
func (p *Publish) leave() {
	if o := p.ordered; o != nil {
		p.ordered = nil
		o.leave(p.Seq)
	}
}

// early reports whether v refuses p only because batches below p are missing. Those batches may be
// in flight, so the verdict may change.
func (p *Publish) early(v stream.Verdict, cursor weir.Seq) bool {
	return v.Outcome == stream.Refused && v.Err.Code == weir.SequenceNotNext && p.Seq <= cursor+weir.MaxAhead
}

// awaitArrival waits until the request for the sequence below p has arrived, or p.Seq is the next
// sequence. It reports whether one of the two happened in time.
func (p *Publish) awaitArrival(ctx context.Context, f *feed) bool {
	return p.await(ctx, f, arrivalPatience, func(present, _ bool) bool { return present })
}

// awaitTurn waits until an entry for the sequence below p is in the log's queue, or p.Seq is the
// next sequence. It gives up after turnPatience, or if a request for the sequence below has been
// missing for arrivalPatience.
func (p *Publish) awaitTurn(ctx context.Context, f *feed) {
	for end := time.Now().Add(turnPatience); time.Now().Before(end); {
		gone := false
		done := p.await(ctx, f, turnPatience, func(present, queued bool) bool {
			gone = !present
			return queued || gone
		})
		if !done || !gone || !p.awaitArrival(ctx, f) {
			return
		}
	}
}

// await waits until p.Seq is the next sequence, or the function enough returns true for the
// sequence below. It returns false if the time given by patience passed first, if ctx ended first,
// or if the hub is closing.
func (p *Publish) await(ctx context.Context, f *feed, patience time.Duration, enough func(present, queued bool) bool) bool {
	o := &f.way.order
	if o.isNext(p.Seq) || enough(o.look(p.Seq-1)) {
		return true
	}
	o.waiting.Add(1) // before the check below, so that a later change wakes this request
	defer o.waiting.Add(-1)
	sooner := time.Duration(o.waits.Add(1)%1000) * time.Microsecond // so that no two requests give up at the same time
	late := time.NewTimer(localPatience - sooner)
	defer late.Stop()
	attends := false
	for {
		changed := o.change(p.Seq)
		if o.isNext(p.Seq) || enough(o.look(p.Seq-1)) {
			return true
		}
		select {
		case <-changed:
		case <-late.C:
			if attends {
				return false
			}
			attends = true
			f.log.Attend()
			defer f.log.Leave()
			late.Reset(patience - sooner)
		case <-ctx.Done():
			return false
		case <-f.hub.closing:
			return false
		}
	}
}

// isNext reports whether a request for seq need not wait: no sequence is missing between the cursor
// and seq, the stream was deleted, or its log must be reopened.
func (o *order) isNext(seq weir.Seq) bool {
	return uint64(seq) <= o.cursor.Load()+1 || o.over.Load()
}
