package hub

import (
	"context"
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

// feed is a stream in use: its open log and its state in memory. It is also the judge that the
// engine asks about every entry of the log.
//
// The engine calls Admit for an entry before it writes it, and Commit once the entry is durable.
// Many entries can be in flight between the two calls. A feed therefore keeps two states:
//
//   - ahead contains every admitted entry. It decides on publishes, so that two batches in flight never
//     get the same sequence.
//   - state contains the durable entries only. Reads and subscriptions use it, so that no client sees a
//     batch that a crash could still lose (D5).
//
// pending holds the entries that are in ahead but not yet in state.
//
// With mu held, the feed calls no method of the log but Headers. Append, for example, waits until
// the engine has called Admit and Commit, and both need mu.
type feed struct {
	s    *Stream
	hub  *Hub
	log  engine.Log
	used atomic.Bool   // since the last sweep
	idle weir.Time     // since when it has not been used; only the sweeper reads and writes it
	kept *stream.State // what the last feed of the stream left, until Restore has used it

	users int // calls and subscriptions that use the feed; guarded by Stream.mu

	mu        sync.Mutex
	ahead     *stream.State // includes admitted entries
	state     *stream.State // durable entries only
	pending   []admitted    // entries in ahead that are not in state, in order
	trimmed   weir.Seq      // low mark of the last trim
	evicted   int64         // bytes evicted since the last trim
	untrimmed weir.Time     // when the sweeper first saw something to trim; 0: it has not
	dropped   bool          // the stream was deleted
	behind    bool          // shared stores only: the log must be reopened
	foreign   bool          // the newest entry was stored by another node
	newest    weir.Time     // time of the newest durable entry
	expiry    weir.Time     // no batch expires before this time
	timer     *time.Timer   // calls closeGaps
	tail      tail

	// For subscriptions, which do not take mu to read.
	view     atomic.Pointer[view] // set while there are subscriptions
	rows     rows                 // has its own lock
	turn     sync.Mutex           // taken before mu by subscriptions that need it, so that at most one competes with publishers
	fetching sync.Mutex           // held while reading batches of other nodes for the tail
	audience audience             // has its own lock
}

// admitted is an entry between Admit and Commit.
type admitted struct {
	header  stream.Header
	batch   weir.Batch // for the tail; only set if the stream had subscribers at the time
	at      int64      // when it was admitted, in meter time; only set with batch
	unknown bool       // a batch that was admitted without subscribers, so that batch is not set
	foreign bool       // a batch of another node, whose payload is read when a subscriber needs it
}

// acquire returns the feed of a stream and opens it if necessary. The caller must release it.
//
// Opening a log can take seconds, so it happens without a lock. One caller opens it, and the others
// wait on s.busy. If opening fails, all of them get the error: retrying one after the other would
// make the last caller wait for the sum of all attempts.
func (s *Stream) acquire(ctx context.Context) (*feed, error) {
	for {
		s.mu.Lock()
		if s.deleted {
			s.mu.Unlock()
			return nil, notFound(s.ID)
		}
		if f := s.feed; f != nil {
			if s.hub.shared && f.isBehind() {
				s.mu.Unlock()
				s.hub.closeFeed(s, true)
				continue
			}
			f.users++
			s.mu.Unlock()
			return f, nil
		}
		if busy := s.busy; busy != nil {
			s.mu.Unlock()
			select {
			case <-busy.done:
				if busy.err != nil {
					return nil, busy.err
				}
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		busy := &transition{done: make(chan struct{})}
		s.busy = busy
		s.mu.Unlock()
		f, err := s.open()
		s.mu.Lock()
		if err == nil {
			f.users = 1
			s.feed, s.summary = f, nil
		}
		s.busy, busy.err = nil, err
		s.mu.Unlock()
		close(busy.done)
		return f, err
	}
}

// transition is the opening or closing of a feed, for other callers to wait for.
type transition struct {
	done chan struct{} // closed at the end
	err  error         // why opening failed; valid once done is closed
}

// open opens the log of a stream.
func (s *Stream) open() (*feed, error) {
	select {
	case <-s.hub.closing:
		return nil, errStopped
	default:
	}
	f := &feed{s: s, hub: s.hub, kept: s.hub.folded.take(s)}
	log, err := s.hub.engine.Open(context.Background(), s.log, f)
	if err != nil {
		if known := clientError(s.ID, err); known != err {
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

// release ends the use of a feed that acquire returned. It does not close the log: the sweeper
// does, after the feed has been idle for idleFor.
func (f *feed) release() {
	if !f.used.Load() { // a load first, so that busy cores do not contend for the cache line
		f.used.Store(true)
	}
	f.s.mu.Lock()
	f.users--
	f.s.mu.Unlock()
}

// closeFeed closes the log of a stream and leaves a summary, from which the stream object can be
// answered without reopening the log. It does nothing if the feed is in use, has open gaps or
// entries in flight, or has evicted batches that are not trimmed yet. With force it closes the feed
// in any case; callers that still use it get errors from the closed log.
func (h *Hub) closeFeed(s *Stream, force bool) {
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
	sum := f.summarize()
	if f.timer != nil {
		f.timer.Stop()
	}
	var kept *stream.State
	if !h.shared && !force {
		kept = f.ahead.Back(f.state, 0)
	}
	f.mu.Unlock()
	busy := &transition{done: make(chan struct{})}
	s.feed, s.busy = nil, busy
	s.mu.Unlock()

	f.log.Close()
	h.catalog.setOpen(s, false)
	if h.shared {
		sum.until = min(sum.until, h.now().Add(idleCheckEvery))
	}
	s.mu.Lock()
	s.busy, s.summary = nil, &sum
	if kept != nil && !s.deleted {
		h.folded.put(s, kept)
	}
	s.mu.Unlock()
	close(busy.done)
	if sum.until != never {
		h.sweeper.checkBy(s, sum.until)
	}
}

// summarize returns what remains known while the log is closed. Called with f.mu held.
func (f *feed) summarize() summary {
	return summary{cursor: f.state.Cursor(), bytes: f.state.Bytes(), until: f.nextExpiry()}
}

// headers visits the log's entries as headers of package stream.
func (f *feed) headers(from weir.Seq, visit func(stream.Header) bool) {
	f.log.Headers(from, func(h engine.Header) bool { return visit(toRules(h)) })
}

// toRules converts a header of the engine to one of package stream.
func toRules(h engine.Header) stream.Header {
	lost := h.Flags&engine.Lost != 0
	if h.Kind == engine.Batch && lost {
		h.First = h.Seq // a single lost batch is a run of length 1
	}
	return stream.Header{
		Closed: h.Kind == engine.GapClosed && !lost, First: h.First, Seq: h.Seq, Time: h.Time, Size: h.Size, Key: h.Key,
		Late: h.Flags&engine.Late != 0, Lost: lost,
	}
}

// evict evicts the batches that exceed the age or size limit at now. Every read calls it first, so
// that clients never see an expired batch, whenever the sweeper last ran. Called with f.mu held.
func (f *feed) evict(now weir.Time) {
	if f.shrink(now) {
		f.wake() // a subscription below the low mark has a gap to report
	}
}

// shrink is evict without waking subscriptions. It tells whether it evicted anything.
func (f *feed) shrink(now weir.Time) bool {
	before := f.state.Bytes()
	if max(now, f.newest) < f.expiry && before <= f.s.MaxBytes {
		return false // the common case costs two comparisons
	}
	n := f.state.Evict(now, f.headers)
	f.expiry = f.nextExpiry()
	if n == 0 {
		return false
	}
	f.evicted += before - f.state.Bytes()
	f.hub.counts.evicted.Add(uint64(n))
	f.hub.counts.evictedBytes.Add(uint64(before - f.state.Bytes()))
	f.ahead.Raise(f.state.Low())
	f.tail.raise(f, f.state.Low())
	f.schedule() // a sequence that kept the gaps above it open may be gone
	return true
}

// never is later than any other time.
const never = weir.Time(math.MaxInt64)

// nextExpiry returns a time before which no batch expires. It stops at the first batch that is not
// late, because all batches above that one are younger.
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

// KeysSince implements engine.Forgetful: older keys have ended (D25).
func (f *feed) KeysSince() weir.Time { return f.hub.now().Add(-weir.IdempotencyKeyLife) }

// Restore implements engine.Judge.
func (f *feed) Restore(note []byte, entries iter.Seq[engine.Header]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.kept; s != nil { // entries is left alone: reading it is what takes time
		f.ahead, f.state, f.kept = s, s.Fork(), nil
		f.trimmed = s.Low()
		return nil
	}
	s, err := stream.Restore(f.s.rules(f.hub.opts.GapGrace), f.s.CreatedAt, note, ruleHeaders(entries), f.hub.now())
	if err != nil {
		return err
	}
	f.ahead, f.state = s, s.Fork()
	f.trimmed = s.Low()
	return nil
}

// Admit implements engine.Judge: it decides on an entry at its position in the log, completes it
// and applies it to the state ahead. The verdict goes back to the publisher in the proposal.
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
	f.s.order.moved(p.cursor)
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

// Commit implements engine.Judge: the first n pending entries are durable, so they move to the
// visible state and to the tail, and subscribers wake up.
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
			continue // a late batch: while it was in flight, a batch above it was evicted, and it with that
		}
		a.header.Key = "" // only the state ahead remembers keys
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
	f.shrink(f.hub.now())
	f.wake()
}

// Dropped implements engine.Judge: the stream was deleted, here or on another node. The catalog
// learns of it from documentChanged.
func (f *feed) Dropped() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped = true
	if f.timer != nil {
		f.timer.Stop()
	}
	f.tail.clear(f)
	f.s.order.end()
	f.wake()
}
