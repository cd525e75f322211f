package hub

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/stream"
)

// This file brings the contiguous publishes of a stream (D38) into order. A publisher with many
// batches in flight sends them in order, but the requests reach the hub in any order: each has its
// own goroutine, and perhaps its own connection. Without waiting, nearly all of them would be refused
// for coming before the one that was sent first.
//
// A request therefore waits for the request of the sequence below it: first for its arrival, before
// the body is read, and then until its entry has a place in the log's queue. The waiting only saves
// refusals. Whether a batch is stored is decided by the rules, along the order of the log.

const (
	// localPatience is how long a request waits before it listens to other nodes: the batch below may
	// have been sent to one of them. Most requests do not wait as long.
	localPatience = 5 * time.Millisecond

	// arrivalPatience is how long a request waits for the arrival of the request below it.
	arrivalPatience = 500 * time.Millisecond

	// turnPatience is how long a request whose body was read waits for the request below it, which
	// may still be receiving its own body.
	turnPatience = 30 * time.Second
)

// order holds the contiguous publishes of a stream that are in progress. They belong to the stream
// and not to its feed, so that they outlive a log that must be reopened.
type order struct {
	waiting atomic.Int32 // requests that wait; if there are none, a change of the cursor needs no lock

	mu    sync.Mutex
	turns map[weir.Seq]turn
	most  int // the largest number of turns since the map was made
}

// turn is a sequence for which contiguous publishes are in progress: one, unless the client sent it
// again.
type turn struct {
	requests int
	queued   bool          // an entry of one of them has a place in the log's queue
	changed  chan struct{} // closed when the sequence below may have changed; nil if no request waits
}

// keptTurns is how many turns an empty map may have had to be kept, so that a publish allocates
// nothing.
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

// queue notes that the entry of a request has a place in the log's queue.
func (o *order) queue(seq weir.Seq) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if t, ok := o.turns[seq]; ok {
		t.queued = true
		o.turns[seq] = t
		o.tell(seq + 1)
	}
}

// tell wakes the requests that wait for the sequence below seq. Called with o.mu held.
func (o *order) tell(seq weir.Seq) {
	if t := o.turns[seq]; t.changed != nil {
		close(t.changed)
		t.changed = nil
		o.turns[seq] = t
	}
}

// moved wakes the requests for the sequence above the cursor.
func (o *order) moved(cursor weir.Seq) {
	if o.waiting.Load() > 0 {
		o.mu.Lock()
		o.tell(cursor + 1)
		o.mu.Unlock()
	}
}

// end wakes all requests: the stream was deleted, or its log must be reopened.
func (o *order) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for seq := range o.turns {
		o.tell(seq)
	}
}

// has reports whether there is a request for a sequence.
func (o *order) has(seq weir.Seq) bool {
	present, _ := o.look(seq)
	return present
}

// look reports whether there is a request for a sequence, and whether an entry of one has a place in
// the log's queue.
func (o *order) look(seq weir.Seq) (present, queued bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t, present := o.turns[seq]
	return present, t.queued
}

// change returns a channel that is closed when the sequence below seq may have changed. The caller
// must be in the order with seq.
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

// enter puts a contiguous publish into the order of its stream, unless it is there.
func (p *Publish) enter(s *Stream) {
	if p.Contiguous && p.ordered == nil {
		s.order.enter(p.Seq)
		p.ordered = s
	}
}

// leave takes a publish out of the order of its stream.
func (p *Publish) leave() {
	if s := p.ordered; s != nil {
		p.ordered = nil
		s.order.leave(p.Seq)
	}
}

// early reports whether a verdict may change because the batches below p are on their way.
func (p *Publish) early(v stream.Verdict, cursor weir.Seq) bool {
	return v.Outcome == stream.Refused && v.Err.Code == weir.SequenceNotNext && p.Seq <= cursor+weir.MaxAhead
}

// arrives waits until the request for the sequence below p is there, or the sequence of p is the next
// one, and reports whether either is true.
func (p *Publish) arrives(ctx context.Context, f *feed) bool {
	return p.await(ctx, f, arrivalPatience, func(present, _ bool) bool { return present })
}

// comes waits until an entry for the sequence below p has a place in the log's queue, or the sequence
// of p is the next one. It gives up if there is no request for the sequence below for some time.
func (p *Publish) comes(ctx context.Context, f *feed) {
	if _, queued := f.s.order.look(p.Seq - 1); queued || p.isNext(f) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()
	for {
		gone := false
		done := p.await(ctx, f, turnPatience, func(present, queued bool) bool {
			gone = !present
			return queued || gone
		})
		if !done || !gone || !p.arrives(ctx, f) {
			return
		}
	}
}

// await waits until the sequence of p is the next one, or enough is true of the sequence below it.
// It returns false if patience or ctx ended first.
func (p *Publish) await(ctx context.Context, f *feed, patience time.Duration, enough func(present, queued bool) bool) bool {
	o := &f.s.order
	if p.isNext(f) || enough(o.look(p.Seq-1)) {
		return true
	}
	o.waiting.Add(1) // before the first look: a change after it wakes this request
	defer o.waiting.Add(-1)
	late := time.NewTimer(localPatience)
	defer late.Stop()
	attends := false
	for {
		changed := o.change(p.Seq)
		if p.isNext(f) || enough(o.look(p.Seq-1)) {
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
			late.Reset(patience)
		case <-ctx.Done():
			return false
		case <-f.hub.closing:
			return false
		}
	}
}

// isNext reports whether there is no reason to wait for the sequences below p: none is missing above
// the cursor, or the stream is gone.
func (p *Publish) isNext(f *feed) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return p.Seq <= f.ahead.Cursor().Cursor+1 || f.dropped || f.behind
}
