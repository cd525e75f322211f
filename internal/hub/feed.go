package hub

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/meter"
	"weir/internal/stream"
)

// feed is a stream in use: its log, and where it stands. It is the log's judge.
type feed struct {
	s    *Stream
	hub  *Hub
	log  engine.Log
	used atomic.Bool // since the sweeper looked
	idle weir.Time   // since when it was not; of the sweeper

	users int // guarded by Stream.mu

	mu        sync.Mutex
	ahead     *stream.State // decides: as far as entries are admitted
	state     *stream.State // what everybody sees: as far as entries are durable
	pending   []admitted    // what lies between the two, in order
	trimmed   weir.Seq      // low of the last trim
	evicted   int64         // bytes evicted since
	untrimmed weir.Time     // since when there is something to trim; 0: not known
	changed   chan struct{} // closed when something changed; nil while nobody waits
	dropped   bool
	behind    bool        // the log must be opened again; of a store that is shared
	foreign   bool        // the newest entry is another node's
	newest    weir.Time   // of the durable entries
	expiry    weir.Time   // nothing expires before
	timer     *time.Timer // closes gaps
	tail      tail
	fetching  sync.Mutex // one at a time reads what other nodes published
	audience  audience   // has a lock of its own
}

// admitted is an entry that is on its way to the disk.
type admitted struct {
	header  stream.Header
	batch   weir.Batch // of a batch while somebody subscribes; for the tail
	at      int64      // when it was admitted, by the meter; with the batch
	unknown bool       // of a batch: nobody subscribed, and batch is not set
	foreign bool       // of a batch: another node's, which is read when somebody wants it
}

// acquire returns the feed of a stream, which is opened if nobody uses it yet. Give it back with release.
func (s *Stream) acquire(ctx context.Context) (*feed, error) {
	for {
		s.mu.Lock()
		if s.deleted {
			s.mu.Unlock()
			return nil, notFound(s.ID)
		}
		if f := s.feed; f != nil {
			if s.hub.shared != nil && f.isBehind() {
				s.mu.Unlock()
				s.hub.fold(s, true)
				continue
			}
			f.users++
			s.mu.Unlock()
			return f, nil
		}
		if busy := s.busy; busy != nil {
			s.mu.Unlock()
			select {
			case <-busy.over:
				if busy.err != nil {
					return nil, busy.err // trying again may take as long, and so for everybody who waits
				}
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		busy := &turn{over: make(chan struct{})}
		s.busy = busy
		s.mu.Unlock()
		f, err := s.open()
		s.mu.Lock()
		if err == nil {
			f.users = 1
			s.feed, s.resting = f, nil
		}
		s.busy, busy.err = nil, err
		s.mu.Unlock()
		close(busy.over)
		return f, err
	}
}

// turn is what is being done with a feed, which others wait for.
type turn struct {
	over chan struct{}
	err  error // of an opening, when it is over
}

func (s *Stream) open() (*feed, error) {
	select {
	case <-s.hub.closing:
		return nil, errStopped
	default:
	}
	f := &feed{s: s, hub: s.hub}
	log, err := s.hub.engine.Open(context.Background(), s.log, f)
	if errors.Is(err, engine.ErrDropped) {
		s.mu.Lock()
		s.deleted = true
		s.mu.Unlock()
		s.hub.catalog.remove(s)
	}
	if err != nil {
		if known := outcome(s.ID, err); known != err {
			return nil, known
		}
		return nil, fmt.Errorf("open stream %s: %w", s.ID, err)
	}
	f.mu.Lock()
	f.log = log
	f.evict(s.hub.now())
	f.schedule()
	f.mu.Unlock()
	s.hub.catalog.setOpen(s, true)
	return f, nil
}

func (f *feed) release() {
	if !f.used.Load() {
		f.used.Store(true)
	}
	f.s.mu.Lock()
	f.users--
	f.s.mu.Unlock()
}

// fold closes the log of a stream that nobody uses, and keeps what the stream object needs.
func (h *Hub) fold(s *Stream, force bool) {
	s.mu.Lock()
	f := s.feed
	if f == nil || s.busy != nil || (f.users > 0 && !force) {
		s.mu.Unlock()
		return
	}
	f.mu.Lock()
	_, waiting := f.ahead.NextDue()
	if (waiting || len(f.pending) > 0 || f.trimmed < f.state.Low()) && !force {
		f.mu.Unlock()
		s.mu.Unlock()
		return
	}
	rest := f.rest()
	if f.timer != nil {
		f.timer.Stop()
	}
	f.mu.Unlock()
	busy := &turn{over: make(chan struct{})}
	s.feed, s.busy = nil, busy
	s.mu.Unlock()

	f.log.Close()
	h.catalog.setOpen(s, false)
	if h.shared != nil {
		rest.until = min(rest.until, h.now().Add(lookEvery))
	}
	s.mu.Lock()
	s.busy, s.resting = nil, &rest
	s.mu.Unlock()
	close(busy.over)
	if rest.until != never {
		h.sweeper.later(s, rest.until)
	}
}

// rest is what can be said of the stream while its log is closed. With f.mu held.
func (f *feed) rest() resting {
	return resting{cursor: f.state.Cursor(), bytes: f.state.Bytes(), until: f.nextExpiry()}
}

// headers visits the log's entries in the rules' words.
func (f *feed) headers(from weir.Seq, visit func(stream.Header) bool) {
	f.log.Headers(from, func(h engine.Header) bool { return visit(rules(h)) })
}

func rules(h engine.Header) stream.Header {
	lost := h.Flags&engine.Lost != 0
	if h.Kind == engine.Batch && lost {
		h.First = h.Seq
	}
	return stream.Header{
		Closed: h.Kind == engine.GapClosed && !lost, First: h.First, Seq: h.Seq, Time: h.Time, Size: h.Size, Key: h.Key,
		Late: h.Flags&engine.Late != 0, Lost: lost,
	}
}

// evict takes away what is too old or too much at now. With f.mu held.
func (f *feed) evict(now weir.Time) {
	before := f.state.Bytes()
	if max(now, f.newest) < f.expiry && before <= f.s.MaxBytes {
		return // as nearly always: a look at two numbers
	}
	n := f.state.Evict(now, f.headers)
	f.expiry = f.nextExpiry()
	if n == 0 {
		return
	}
	f.evicted += before - f.state.Bytes()
	f.hub.counts.evicted.Add(uint64(n))
	f.hub.counts.evictedBytes.Add(uint64(before - f.state.Bytes()))
	f.ahead.Raise(f.state.Low())
	f.tail.raise(f, f.state.Low())
	f.wake() // who waits below the low mark is told of the loss
}

// never is later than everything.
const never = weir.Time(math.MaxInt64)

// nextExpiry is the moment before which nothing expires. A batch that is not late has only younger ones above it.
func (f *feed) nextExpiry() weir.Time {
	oldest := never
	f.headers(f.state.Low(), func(h stream.Header) bool {
		if !h.Closed {
			oldest = min(oldest, h.Time)
		}
		return h.Closed || h.Late
	})
	if oldest == never {
		return never
	}
	return oldest.Add(time.Duration(f.s.RetentionSeconds) * time.Second)
}

// wake tells everybody who waits that something changed. With f.mu held.
func (f *feed) wake() {
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// Restore implements engine.Judge.
func (f *feed) Restore(note []byte, entries iter.Seq[engine.Header]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	headers := func(yield func(stream.Header) bool) {
		for h := range entries {
			if !yield(rules(h)) {
				return
			}
		}
	}
	s, err := stream.Restore(f.s.rules(f.hub.opts.GapGrace), f.s.CreatedAt, note, headers, f.hub.now())
	if err != nil {
		return err
	}
	f.ahead, f.state = s, s.Fork()
	f.trimmed = s.Low()
	return nil
}

// Admit implements engine.Judge: the verdict on an entry at its place in the log.
func (f *feed) Admit(e *engine.Entry) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.hub.opts.Now()
	now := weir.TimeOf(at)
	p, ok := e.Proposer.(*proposal)
	if !ok {
		return f.admitMarker(e, now)
	}
	p.verdict = f.ahead.Decide(p.rules, now)
	if p.verdict.Outcome != stream.Stored || p.probe {
		return false
	}
	h := p.verdict.Header
	h.Size = uint32(len(e.Payload))
	e.Seq, e.Time, e.Key = h.Seq, h.Time, h.Key
	if h.Late {
		e.Flags = engine.Late
	}
	f.ahead.Apply(h)
	f.foreign = false
	p.cursor = f.ahead.Cursor().Cursor
	a := admitted{header: h, unknown: true}
	if f.tail.wanted() {
		a.unknown = false
		a.batch = weir.Batch{Seq: h.Seq, Time: h.Time, Events: e.Count, ContentType: e.ContentType, Payload: e.Payload}
		a.at = meter.At(at)
	}
	f.pending = append(f.pending, a)
	f.schedule()
	return true
}

// admitMarker closes the gaps whose grace is over. They may have been filled meanwhile.
func (f *feed) admitMarker(e *engine.Entry, now weir.Time) bool {
	m, due := f.ahead.Due(now)
	if !due {
		return false
	}
	e.First, e.Seq, e.Time = m.First, m.Seq, m.Time
	f.ahead.Apply(m)
	f.pending = append(f.pending, admitted{header: m})
	return true
}

// Commit implements engine.Judge: what was decided is durable, and seen from here on.
func (f *feed) Commit(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	batches, bytes := uint64(0), uint64(0)
	for i := range f.pending[:n] {
		a := &f.pending[i]
		if !a.header.Closed {
			batches, bytes = batches+1, bytes+uint64(a.header.Size)
		}
		if !a.header.Closed && a.header.Seq < f.state.Low() {
			continue // it came late, and what overtook it was evicted meanwhile: it went with that
		}
		a.header.Key = "" // keys are the business of the state ahead
		f.state.Apply(a.header)
		f.newest = a.header.Time
		if !a.header.Closed {
			f.expiry = min(f.expiry, a.header.Time.Add(time.Duration(f.s.RetentionSeconds)*time.Second))
			f.tail.add(f, a)
		}
		*a = admitted{}
	}
	f.hub.counts.published.Add(batches)
	f.hub.counts.publishedBytes.Add(bytes)
	f.hub.counts.gaps.Add(uint64(n) - batches)
	if f.pending = f.pending[n:]; len(f.pending) == 0 {
		f.pending = nil
	}
	f.evict(f.hub.now())
	f.wake()
}

// Dropped implements engine.Judge.
func (f *feed) Dropped() {
	f.mu.Lock()
	f.dropped = true
	if f.timer != nil {
		f.timer.Stop()
	}
	f.tail.clear(f)
	f.wake()
	f.mu.Unlock()
	f.s.mu.Lock()
	f.s.deleted = true
	f.s.mu.Unlock()
	f.hub.catalog.remove(f.s)
}

// leisure is how much longer a node waits with the gaps below an entry that another one stored.
const leisure = 200 * time.Millisecond

// schedule sees to it that gaps are closed when their grace is over. A clock that stepped back is noticed within a
// grace. With f.mu held.
func (f *feed) schedule() {
	due, waiting := f.ahead.NextDue()
	if !waiting {
		return
	}
	wait := min(max(due.Std().Sub(f.hub.opts.Now()), 0)+time.Millisecond, f.hub.opts.GapGrace+time.Millisecond)
	if f.foreign {
		wait += leisure // the node that stored it closes its gaps, unless it is gone
	}
	if f.timer == nil {
		f.timer = time.AfterFunc(wait, f.closeGaps)
	} else {
		f.timer.Reset(wait)
	}
}

// closeGaps proposes a marker. It runs on a goroutine of its own, when a timer fires.
func (f *feed) closeGaps() {
	select {
	case <-f.hub.closing:
		return
	default:
	}
	f.s.mu.Lock()
	if f.s.feed != f {
		f.s.mu.Unlock()
		return
	}
	f.users++
	f.s.mu.Unlock()
	defer f.release()
	f.mu.Lock()
	_, due := f.ahead.Due(f.hub.now())
	f.mu.Unlock()
	var err error
	if due {
		err = f.log.Append(context.Background(), &engine.Entry{Header: engine.Header{Kind: engine.GapClosed}})
		if err != nil && !errors.Is(err, engine.ErrDropped) && !errors.Is(err, engine.ErrClosed) {
			f.hub.opts.Logger.Warn("gaps stay open", "stream", f.s.ID, "error", err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.dropped || f.behind:
	case err != nil: // the store is full, or nobody answers: a gap that stays open longer harms nobody
		f.timer.Reset(gapsAgain)
	default:
		f.schedule()
	}
}

// gapsAgain is how soon it is tried again to close gaps.
const gapsAgain = time.Second
