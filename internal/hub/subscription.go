package hub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/budget"
	"weir/internal/deflate"
	"weir/internal/engine"
	"weir/internal/meter"
	"weir/internal/stream"
)

// From is where a subscription starts (D15): Head, Oldest or After(n).
type From = stream.From

// Head and Oldest are the starts that are not given by a sequence.
var (
	Head   = stream.Head   // above the cursor; if no batch was ever stored, at the first batch
	Oldest = stream.Oldest // at the oldest batch that is still stored
)

// After returns the start above sequence n. n may be above the cursor.
func After(n weir.Seq) From { return stream.After(n) }

// run is the approximate number of bytes that one call to Next returns. A stalled subscriber
// therefore holds about this much memory. A subscriber that catches up gets long runs if few others
// do: they take less CPU time. The memory for all long runs together is limited to 15 MiB.
const (
	run      = 24 << 10
	longRun  = 56 << 10 // the journal reads this much into one of its smaller buffers
	mostLong = 256
)

// runs and longRuns are pools of buffers for frames (encoded batches) that are read from the log.
var (
	runs     = sync.Pool{New: func() any { b := make([]byte, 0, run+4<<10); return &b }}
	longRuns = sync.Pool{New: func() any { b := make([]byte, 0, longRun+4<<10); return &b }}
)

// Subscription is a position in a stream. It holds no queue of batches. Next reads the batches at
// the position from the tail (the recent batches in memory) or from the log. If there are none,
// Next waits until the waker wakes the row (a group of subscriptions) that the subscription belongs
// to. A slow subscriber therefore costs no memory beyond one run, and never slows down publishers or
// other subscribers.
//
// A Subscription must be used by one goroutine at a time.
type Subscription struct {
	f      *feed
	row    *row
	next   weir.Seq // the first sequence that Next has not returned yet
	timer  *time.Timer
	armed  bool         // the timer is running
	shard  uint32       // index into counters.delivered
	since  time.Time    // when Next was last called
	buffer *runBuffers  // the buffers of the last run, until the caller has sent it; otherwise nil
	older  *[]byte      // buffer of the last run, if that run was read from the log
	long   bool         // the last run was a long one, and its memory is in use
	whole  bool         // the last run was read from the log, and more batches follow it there
	loan   *budget.Loan // memory borrowed for large frames; see memory.go
	pinned *frame       // the large frame of the tail that is being sent, if any

	zip *deflate.Member // set by Compress: Next returns compressed frames

	sleeper Sleeper // set while the subscription is parked

	before, after *Subscription // neighbours in the audience, the list of the stream's subscriptions
	position      atomic.Uint64 // copy of next, for Stats
	handed        handed        // the last run, until countSent has counted it
}

// runBuffers are the buffers for a run.
type runBuffers struct {
	recent []*frame // frames of the tail
	frames [][]byte // their encoded bytes
}

// runBuffersPool holds runBuffers that no subscription uses. A waiting subscription has none.
var runBuffersPool = sync.Pool{New: func() any { return new(runBuffers) }}

// Event is the result of Next: a run of frames, a gap, or neither if nothing happened in time.
type Event struct {
	// Frames are encoded batches in order. One element may hold several batches. The elements are
	// shared with other subscribers: do not modify them, and do not use them after the next call to
	// Next or Close.
	Frames [][]byte
	// Sole is set if Frames has a single element, the loan of the subscription (see ChargeTo)
	// covers the memory of this element, and nothing else refers to this memory. The caller may
	// then release the memory before it calls Next again: it drops its reference in Frames and
	// shrinks the loan.
	Sole bool
	// Gap is set instead of Frames if batches were evicted before they could be sent, or were lost.
	Gap *Gap
}

// Gap is a range of sequences, inclusive, that the subscriber will not receive.
type Gap struct {
	From, To weir.Seq
	Lost     bool // the batches were not evicted, but lost: a repair of the store gave them up
}

// Next returns these errors when the subscription has ended. After ErrStopping the subscriber
// should reconnect: the server is shutting down, or the stream's log had to be reopened.
var (
	ErrDeleted  = errors.New("the stream was deleted")
	ErrExpired  = errors.New("the lifetime of the stream has ended")
	ErrEnded    = errors.New("the stream is closed, and everything was sent")
	ErrStopping = errors.New("the server is shutting down")
)

// Subscribe starts a subscription. It fails with StreamNotFound or StorageUnavailable. The caller
// must close the subscription.
//
// On a shared store, Head needs the current cursor and fails if the other nodes cannot be reached.
// Other starts do not need the cursor: the subscription waits for the batches that this node does
// not know yet.
func (s *Stream) Subscribe(ctx context.Context, from From) (*Subscription, error) {
	f, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	s.use(ctx)
	f.log.Attend()
	if err := f.catchUp(ctx); err != nil && from == Head {
		f.log.Leave()
		f.release()
		return nil, err
	}
	f.turn.Lock()
	defer f.turn.Unlock()
	f.mu.Lock()
	if isGone(f) {
		f.mu.Unlock()
		f.log.Leave()
		f.release() // after unlocking f.mu: release takes Stream.mu, which comes before f.mu in the lock order
		return nil, notFound(s.ID)
	}
	defer f.mu.Unlock()
	f.evict(s.hub.now())
	joinTail(f)
	f.show()
	all := openHall(f)
	sub := &Subscription{f: f, row: all.rows.join(), next: f.state.Resolve(from), shard: s.hub.counts.joined.Add(1) % meter.Shards}
	sub.position.Store(uint64(sub.next))
	all.audience.join(sub)
	return sub, nil
}

// Compress makes Next return frames that are compressed and belong to one gzip member. It returns
// the state of the member. If the caller sends other parts of the member itself, it must add them
// to this state. A frame of the tail is compressed once for all subscribers; a run that was read
// from the log is compressed as a whole. Between two calls of Next, compression takes no memory
// except the state of the member. Compress must be called before Next.
func (s *Subscription) Compress() *deflate.Member {
	s.zip = new(deflate.Member)
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	s.f.tail.packs = true
	return s.zip
}

// Position returns the sequence after which the subscription continues. A later subscription that
// starts after this sequence (see After) misses nothing. The second result is false if the
// subscription has yet to receive sequence 0, because no sequence lies before 0.
func (s *Subscription) Position() (weir.Seq, bool) { return max(s.next, 1) - 1, s.next > 0 }

// Close ends the subscription and frees its memory.
func (s *Subscription) Close() {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.freeMemory()
	s.loan.End()
	s.Unpark()
	all := s.f.hall.Load()
	all.audience.leave(s)
	all.rows.leave(s.row)
	s.f.turn.Lock()
	s.f.mu.Lock()
	s.f.tail.leave(s.f)
	s.f.mu.Unlock()
	s.f.turn.Unlock()
	s.f.log.Leave()
	s.f.release()
}

// Next returns the next frames or the next gap. A subscriber receives every batch once, in
// increasing order. If there is nothing to send, Next waits. If there is still nothing when maxWait
// has passed, Next returns an empty Event, and the caller should send a keep-alive. One call
// returns about 24 or 56 KiB of frames, or a single larger frame. By calling Next again, the caller
// says that it has sent the previous frames.
//
// It fails with the error of the context, or with ErrDeleted, ErrExpired, ErrEnded or ErrStopping.
func (s *Subscription) Next(ctx context.Context, maxWait time.Duration) (Event, error) {
	s.since = time.Now()
	s.freeMemory()
	s.countSent()
	for {
		step, v, err := s.await(ctx, maxWait)
		if err != nil || step.Kind == stream.Wait {
			return Event{}, err
		}
		if gap, err := s.pass(step); gap != nil || err != nil {
			return Event{Gap: gap}, err
		}
		logged := s.next < v.low
		frames, err := s.read(ctx, v, step, maxWait)
		if errors.Is(err, errNoMemory) {
			return Event{}, nil // the caller sends a keep-alive and calls Next again
		}
		if err != nil || len(frames) > 0 {
			return Event{Frames: frames, Sole: logged && len(frames) == 1 && s.older == nil}, err
		}
	}
}

// pass advances the position to the first batch of a step. If the step has no batches, pass returns
// the gap that the step reports, or ErrEnded.
func (s *Subscription) pass(step stream.Step) (*Gap, error) {
	switch step.Kind {
	case stream.End:
		return nil, ErrEnded
	case stream.Gap, stream.Loss:
		s.next = step.Last + 1
		return &Gap{step.First, step.Last, step.Kind == stream.Loss}, nil
	}
	s.next = step.First // skips sequence 0 if it was never stored
	return nil, nil
}

// await returns the next step at the position of the subscription, and the view that the step
// belongs to. If there is nothing to do, await waits. If there is still nothing when maxWait has
// passed since s.since, it returns a step of kind stream.Wait.
func (s *Subscription) await(ctx context.Context, maxWait time.Duration) (stream.Step, *view, error) {
	for {
		step, v, err := s.look()
		if err != nil || step.Kind != stream.Wait {
			return step, v, err
		}
		changed := s.row.wait()
		if s.f.view.Load() != v || s.f.hub.endsSubscriptions() {
			continue // the view changed before there was a channel to wait on
		}
		if more, err := s.wait(ctx, changed, maxWait); !more {
			return step, v, err
		}
	}
}

// look returns the next step at the position of the subscription, and the view that the step
// belongs to. It does not wait.
func (s *Subscription) look() (stream.Step, *view, error) {
	f := s.f
	v := f.current(f.hub.now())
	switch {
	case v.dropped:
		return stream.Step{}, v, s.deleted()
	case f.hub.endsSubscriptions() || v.behind:
		return stream.Step{}, v, ErrStopping
	}
	step := v.rules.Next(s.next)
	if step.Kind == stream.End && lifeEnded(f.s) {
		return step, v, s.deleted()
	}
	return step, v, nil
}

// wait returns true when there may be something to send, and false when maxWait has passed since
// Next was called. It leaves the timer running from one call to the next. When the timer fires,
// wait checks whether the time has really passed. Resetting the timer for every batch would cost
// more than everything else that wait does.
func (s *Subscription) wait(ctx context.Context, changed <-chan struct{}, maxWait time.Duration) (bool, error) {
	for {
		if !s.armed {
			s.armed = true
			left := maxWait - time.Since(s.since)
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
			if s.armed = false; time.Since(s.since) >= maxWait {
				return false, nil
			}
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// read returns the frames of a step, from the tail or from the log, and advances the position. If
// batches were evicted while it read, it may return no frames and no error. The next step then
// reports the evicted batches as a gap.
func (s *Subscription) read(ctx context.Context, v *view, step stream.Step, maxWait time.Duration) ([][]byte, error) {
	f := s.f
	if s.next < v.low {
		if err := s.reserveMemory(ctx, step, maxWait); err != nil {
			return nil, err
		}
		return s.readLog(ctx, step)
	}
	i := seek(v.frames, s.next)
	if i < len(v.frames) && v.frames[i].isLarge() {
		r := v.frames[i]
		if err := s.pin(ctx, r, maxWait); err != nil {
			return nil, err
		}
		// pin may have waited for memory. A frame that was evicted meanwhile must not be sent.
		v = f.current(f.hub.now())
		if i = seek(v.frames, s.next); i == len(v.frames) || v.frames[i] != r {
			s.unpin()
			return nil, nil // the frame has left the tail: the next step reads the batch from the log or reports a gap
		}
	}
	if s.buffer == nil {
		s.buffer = runBuffersPool.Get().(*runBuffers)
	}
	recent, frames := s.buffer.recent[:0], s.buffer.frames[:0]
	size := 0
	for ; i < len(v.frames) && v.frames[i].seq <= step.Last && size < run; i++ {
		if r := v.frames[i]; r.isLarge() && r != s.pinned {
			break // a large frame is sent alone, once there is memory for it
		}
		recent = append(recent, v.frames[i])
		size += v.frames[i].size
	}
	if s.next = step.Last + 1; i < len(v.frames) && v.frames[i].seq <= step.Last {
		s.next = v.frames[i].seq
	}
	err := f.fetch(ctx, recent)
	for _, r := range recent {
		b := r.encoded(f.hub, f.s.Mode)
		if b == nil {
			s.next = r.seq
			break
		}
		s.handed.bytes += len(b)
		if s.zip != nil {
			part := r.packed(b)
			s.zip.Add(part)
			b = part.Bytes
		}
		frames = append(frames, b)
	}
	if s.handed.batches = len(frames); len(recent) > 0 {
		s.handed.at = recent[0].at
	}
	clear(recent)
	s.buffer.recent, s.buffer.frames = recent, frames
	if err == nil || len(frames) > 0 {
		return frames, nil
	}
	return nil, s.readError(err)
}

// deleted returns the error of a subscription to a stream that was deleted. The log may have ended
// before the catalog knows of the deletion.
func (s *Subscription) deleted() error {
	of := s.f.s
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.lapsed || !of.deleted && seemsLapsed(of) {
		return ErrExpired
	}
	return ErrDeleted
}

// readError translates an error of the log for the subscriber.
func (s *Subscription) readError(err error) error {
	switch {
	case errors.Is(err, engine.ErrDropped):
		return s.deleted()
	case errors.Is(err, engine.ErrBehind):
		return ErrStopping // a subscriber that reconnects gets a reopened log
	}
	return fmt.Errorf("read stream %s from %d: %w", s.f.s.ID, s.next, err)
}

// readLog reads a run of batches from the log and encodes them into one piece of memory.
func (s *Subscription) readLog(ctx context.Context, step stream.Step) ([][]byte, error) {
	f := s.f
	limit := s.limit()
	s.older = s.takeBuffer()
	frames := (*s.older)[:0]
	next, batches := step.Last+1, 0
	var b weir.Batch // declared here, because Frame moves it to the heap
	err := f.log.Scan(ctx, s.next, limit, func(e *engine.Entry) bool {
		if e.Seq > step.Last {
			return false
		}
		if e.Kind == engine.Batch {
			b = batch(e)
			frames = f.hub.opts.Frame(frames, f.s.Mode, &b)
			batches++
		}
		if len(frames) >= limit {
			next = e.Seq + 1
			return false
		}
		return true
	})
	s.keep(frames) // keeps only the frames, because the payloads are not needed any more
	if err != nil {
		return nil, s.readError(err)
	}
	if f.view.Load().rules.Low() > s.next {
		return nil, nil // batches were evicted while we read: the next step reports the gap
	}
	s.whole = next <= step.Last
	s.next, s.handed = next, handed{batches: batches, bytes: len(frames)}
	if len(frames) == 0 {
		return nil, nil
	}
	if s.zip != nil {
		frames = s.pack(frames)
	}
	return [][]byte{frames}, nil
}

// keep keeps the memory of a run, and returns all other memory of the subscription. The run was
// encoded into the buffer s.older. If append has moved it to a larger buffer, keep puts s.older
// back into the pool. The larger buffer is never put into the pool.
func (s *Subscription) keep(run []byte) {
	s.loan.Shrink(int64(cap(run)))
	if s.older != nil && cap(run) == cap(*s.older) {
		*s.older = run
		return
	}
	if s.older != nil {
		giveBuffer(s.older)
	}
	s.older = nil
}

// pack compresses a run that was read from the log, and gives the memory of the run back.
func (s *Subscription) pack(run []byte) []byte {
	plain := s.older
	s.older = s.takeBuffer()
	part := deflate.Compress((*s.older)[:0], run)
	s.zip.Add(&part)
	if plain != nil {
		giveBuffer(plain)
	}
	s.keep(part.Bytes)
	return part.Bytes
}

// lengthen decides whether the next run that is read from the log may be a long one.
func (s *Subscription) lengthen() {
	if long := &s.f.hub.long; s.whole && !s.long && long.Add(1) > mostLong {
		long.Add(-1)
	} else if s.whole {
		s.long = true
	}
}

// shorten gives up the right to a long run.
func (s *Subscription) shorten() {
	if s.long {
		s.long = false
		s.f.hub.long.Add(-1)
	}
}

// limit returns the approximate length of the next run.
func (s *Subscription) limit() int {
	if s.long {
		return longRun
	}
	return run
}

// takeBuffer returns a buffer for a run that is read from the log.
func (s *Subscription) takeBuffer() *[]byte {
	if s.long {
		return longRuns.Get().(*[]byte)
	}
	return runs.Get().(*[]byte)
}

// giveBuffer returns a buffer to its pool.
func giveBuffer(b *[]byte) {
	if cap(*b) > longRun {
		longRuns.Put(b)
		return
	}
	runs.Put(b)
}
