package hub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/meter"
	"weir/internal/stream"
)

// From is where a subscription starts (D15): Head, Oldest or After(n).
type From = stream.From

// The starts that are not a sequence.
var (
	Head   = stream.Head
	Oldest = stream.Oldest
)

// After is above sequence n, which may lie in the future.
func After(n weir.Seq) From { return stream.After(n) }

// run is about how many bytes of frames one Next returns: all that a subscriber holds that does not go on.
const run = 24 << 10

// runs is memory for frames that were read from the log.
var runs = sync.Pool{New: func() any { b := make([]byte, 0, run+4<<10); return &b }}

// Subscription is a cursor and a wake-up.
type Subscription struct {
	f      *feed
	next   weir.Seq // the first sequence that it wants
	timer  *time.Timer
	armed  bool      // the timer runs
	since  time.Time // the last time that there was something to send
	recent []*frame  // room for the next run, kept while it is small
	frames [][]byte
	older  *[]byte // the last run, if it came from the log
	held   int64   // of the memory for large frames

	before, after *Subscription // in the audience
	stand         atomic.Uint64 // next, for others to see
	shard         uint32        // where it counts
	handed        handed        // what it was given last
}

// keptRun is how much room a subscription keeps while it waits.
const keptRun = 4

// Event is what a subscriber gets next: a run of frames, a gap, or nothing for now.
type Event struct {
	Frames [][]byte // encoded batches, in order, one or more in a piece, until the next Next; shared, nobody writes into them
	Gap    *Gap     // instead of frames: what was evicted before it could be sent, or is lost
}

// Gap is a range of sequences that the subscriber will not get, inclusive.
type Gap struct {
	From, To weir.Seq
	Lost     bool // not evicted: given up when the store was repaired
}

// Why a subscription is over.
var (
	ErrDeleted  = errors.New("the stream was deleted")
	ErrStopping = errors.New("the server shuts down")
)

// Subscribe begins a subscription at from. StreamNotFound or ErrStopping when it cannot. End it with Close.
func (s *Stream) Subscribe(ctx context.Context, from From) (*Subscription, error) {
	f, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	f.attend()
	if err := f.catchUp(ctx); err != nil && from == Head { // another start can wait for what it does not know
		f.leave()
		f.release()
		return nil, err
	}
	f.mu.Lock()
	if f.dropped {
		f.mu.Unlock()
		f.leave()
		f.release() // takes the stream's lock, which comes before the feed's
		return nil, notFound(s.ID)
	}
	defer f.mu.Unlock()
	f.evict(s.hub.now())
	f.tail.join(f)
	sub := &Subscription{f: f, next: f.state.Resolve(from), shard: s.hub.counts.joined.Add(1) % meter.Shards}
	sub.stand.Store(uint64(sub.next))
	f.audience.join(sub)
	return sub, nil
}

// Close ends the subscription.
func (s *Subscription) Close() {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.giveBack()
	s.f.audience.leave(s)
	s.f.mu.Lock()
	s.f.tail.leave(s.f)
	s.f.mu.Unlock()
	s.f.leave()
	s.f.release()
}

// Next returns what comes next, waiting for it at most until the context ends (its error) or wait has passed (an empty
// Event: time for a heartbeat). The frames of one call are about 24 KiB at most, unless one frame is larger.
// ErrDeleted, ErrStopping: it is over.
func (s *Subscription) Next(ctx context.Context, wait time.Duration) (Event, error) {
	f := s.f
	s.since = time.Now()
	s.giveBack()
	s.settle()
	for {
		f.mu.Lock()
		if f.dropped {
			f.mu.Unlock()
			return Event{}, ErrDeleted
		}
		if f.hub.isStopping() || f.behind {
			f.mu.Unlock()
			return Event{}, ErrStopping
		}
		f.evict(f.hub.now())
		step := f.state.Next(s.next)
		if step.Kind == stream.Wait {
			changed := f.changed
			if changed == nil {
				changed = make(chan struct{})
				f.changed = changed
			}
			f.mu.Unlock()
			if more, err := s.wait(ctx, changed, wait); !more {
				return Event{}, err
			}
			continue
		}
		if step.Kind == stream.Gap || step.Kind == stream.Loss {
			s.next = step.Last + 1
			f.mu.Unlock()
			return Event{Gap: &Gap{step.First, step.Last, step.Kind == stream.Loss}}, nil
		}
		s.next = step.First                    // above a 0 that was never stored
		frames, err := s.read(ctx, step, wait) // unlocks
		if errors.Is(err, errNoMemory) {
			return Event{}, nil // a heartbeat, and then it waits again
		}
		if err != nil || len(frames) > 0 {
			return Event{Frames: frames}, err
		}
	}
}

// wait returns true when there may be something to send. The timer is left running from one wait to the next, and looked
// at when it fires: setting it anew for every batch would cost more than the rest.
func (s *Subscription) wait(ctx context.Context, changed <-chan struct{}, wait time.Duration) (bool, error) {
	for {
		if !s.armed {
			s.armed = true
			left := wait - time.Since(s.since)
			if s.timer == nil {
				s.timer = time.NewTimer(left)
			} else {
				s.timer.Reset(left)
			}
		}
		select {
		case <-changed:
			return true, nil
		case <-s.timer.C:
			if s.armed = false; time.Since(s.since) >= wait {
				return false, nil
			}
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// read returns the frames of a step, from the tail or from the log, and moves on. It is called with the feed's lock
// held and gives it back.
func (s *Subscription) read(ctx context.Context, step stream.Step, wait time.Duration) ([][]byte, error) {
	f := s.f
	if s.next < f.tail.low {
		f.mu.Unlock()
		if err := s.hold(ctx, step, wait); err != nil {
			return nil, err
		}
		return s.readLog(ctx, step)
	}
	recent, frames := s.recent[:0], s.frames[:0]
	size := 0
	i := f.tail.find(s.next)
	for ; i < len(f.tail.frames) && f.tail.frames[i].seq <= step.Last && size < run; i++ {
		recent = append(recent, f.tail.frames[i])
		size += f.tail.frames[i].size
	}
	if s.next = step.Last + 1; i < len(f.tail.frames) && f.tail.frames[i].seq <= step.Last {
		s.next = f.tail.frames[i].seq
	}
	f.mu.Unlock()
	err := f.fetch(ctx, recent)
	for _, r := range recent {
		b := r.encoded(f.hub, f.s.Mode)
		if b == nil {
			s.next = r.seq
			break
		}
		frames = append(frames, b)
		s.handed.bytes += len(b)
	}
	if s.handed.batches = len(frames); len(recent) > 0 {
		s.handed.at = recent[0].at
	}
	if clear(recent); cap(recent) <= keptRun && cap(frames) <= keptRun {
		s.recent, s.frames = recent, frames
	} else {
		s.recent, s.frames = nil, nil
	}
	if err == nil || len(frames) > 0 {
		return frames, nil // none: something was evicted while we read, and what it was is told next
	}
	return nil, s.unread(err)
}

// unread is why nothing could be read.
func (s *Subscription) unread(err error) error {
	switch {
	case errors.Is(err, engine.ErrDropped):
		return ErrDeleted
	case errors.Is(err, engine.ErrBehind):
		return ErrStopping // whoever comes back finds the log opened again
	}
	return fmt.Errorf("read stream %s from %d: %w", s.f.s.ID, s.next, err)
}

// largeRun is what a subscriber may hold without asking.
const largeRun = 64 << 10

var errNoMemory = errors.New("no memory for a large frame yet")

// hold takes memory for the next run, when a batch in it is large, and waits for it at most as long as for a batch. A
// subscriber that stalls holds it until it is cut off.
func (s *Subscription) hold(ctx context.Context, step stream.Step, wait time.Duration) error {
	s.giveBack()
	size := 0
	s.f.log.Headers(s.next, func(h engine.Header) bool {
		if h.Seq <= step.Last {
			size += int(h.Size)
		}
		return h.Seq < step.Last && size < run
	})
	if size <= largeRun {
		return nil
	}
	patience, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var err error
	// What is read, and the frame that is made of it.
	s.held, err = s.f.hub.opts.Memory.Take(patience, string(s.f.s.Project), 2*int64(size))
	if err != nil && ctx.Err() == nil {
		return errNoMemory
	}
	return err
}

// readLog reads older batches, a run of them into one piece.
func (s *Subscription) readLog(ctx context.Context, step stream.Step) ([][]byte, error) {
	f := s.f
	s.older = runs.Get().(*[]byte)
	frames := (*s.older)[:0]
	next, batches := step.Last+1, 0
	err := f.log.Scan(ctx, s.next, run, func(e *engine.Entry) bool {
		if e.Seq > step.Last {
			return false
		}
		if e.Kind == engine.Batch {
			b := batch(e)
			frames = f.hub.opts.Frame(frames, f.s.Mode, &b)
			batches++
		}
		if len(frames) >= run {
			next = e.Seq + 1
			return false
		}
		return true
	})
	if cap(frames) == cap(*s.older) {
		*s.older = frames
	} else {
		runs.Put(s.older) // a large frame has memory of its own
		s.older = nil
	}
	if err != nil {
		return nil, s.unread(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.Low() > s.next {
		return nil, nil // something was evicted while we read: what, is told next
	}
	s.next, s.handed = next, handed{batches: batches, bytes: len(frames)}
	if len(frames) == 0 {
		return nil, nil
	}
	return append(s.frames[:0], frames), nil
}

// giveBack gives the memory of the last run to others.
func (s *Subscription) giveBack() {
	if s.older != nil {
		runs.Put(s.older)
		s.older = nil
	}
	if s.held > 0 {
		s.f.hub.opts.Memory.Give(string(s.f.s.Project), s.held)
		s.held = 0
	}
}
