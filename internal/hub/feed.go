package hub

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/meter"
	"weir/internal/stream"
)

// feed is a stream in use: its open log and its state in memory. It also implements engine.Judge,
// which the engine asks about every entry of the log.
//
// The engine calls Admit before it writes an entry, and Commit once the entry is durable. Many
// entries can be in flight between the two calls. A feed therefore keeps two states:
//
//   - f.ahead contains every admitted entry. Decisions on publishes use it, so that two batches in
//     flight never get the same sequence.
//   - f.state contains the durable entries only. Reads and subscriptions use it, so that no client
//     sees a batch that a crash could still lose (D5).
//
// f.pending holds the entries that are in f.ahead but not yet in f.state.
//
// While the feed holds mu, the only method of the log that it calls is Headers. Other methods could
// deadlock: Append, for example, waits until the engine has called Admit and Commit, and both need
// mu.
type feed struct {
	s    *Stream
	hub  *Hub
	log  engine.Log
	way  *traffic
	used atomic.Bool // the feed was used since the last sweep
	idle weir.Time   // when the feed became idle; only the sweeper reads and writes this field
	kept *fold       // the state that the stream's previous feed left; nil once the engine has called Restore or Resume

	users int // calls and subscriptions that use the feed; guarded by Stream.mu

	mu       sync.Mutex
	ahead    *stream.State // includes admitted entries
	state    *stream.State // durable entries only
	pending  pending       // entries in ahead that are not in state, in order
	trimmed  weir.Seq      // low mark of the last trim; all batches below this mark are evicted
	evicted  int64         // charge (size counted against MaxBytes) of the batches evicted since the last trim
	trimFrom weir.Time     // when the sweeper first found evicted batches after the last trim; 0 if it has found none yet
	dropped  bool          // the stream was deleted
	behind   bool          // shared stores only: the log must be reopened
	foreign  bool          // the newest entry was stored by another node
	newest   weir.Time     // time of the newest durable entry
	expiry   weir.Time     // no batch expires before this time
	bounds   *bounds       // the limits that ahead and state apply; the function adopt sets them
	loose    []*loosened   // changes to larger limits that are in progress
	held     heldFrom      // the missing sequences whose grace period is paused
	timer    *time.Timer   // calls closeGaps
	tail     *tail         // set by the first subscription; most streams have none

	// The fields below are for subscriptions, which read without taking mu.
	view     atomic.Pointer[view] // set while there are subscriptions
	hall     atomic.Pointer[hall] // set by the first subscription
	turn     sync.Mutex           // a subscription takes it before mu, so that at most one subscription competes with publishers for mu
	trimming bool                 // a trim runs; guarded by sweeper.trims.mu
	fetching chan struct{}        // shared stores only: has an element while a subscription reads batches of other nodes into the tail
}

// admitted is an entry between Admit and Commit.
type admitted struct {
	header  stream.Header
	batch   weir.Batch // for the tail (recent batches in memory); only set if the stream had subscribers
	at      int64      // when the entry was admitted, by the clock of package meter; only set with batch
	unknown bool       // batch is not set, because the stream had no subscribers when Admit was called
	foreign bool       // another node stored the batch; its payload is read when a subscriber needs it
	lapses  bool       // the entry ends the log because the lifetime of the stream has ended
}

// closeFeed closes the log of a stream and leaves a summary. The summary is enough to answer
// requests for the stream object without reopening the log. closeFeed does nothing if the feed is
// in use, has open gaps or entries in flight, or has evicted batches that are not trimmed (removed
// from the log) yet. On a shared store it also does nothing while a request is being received,
// because other nodes are told only of streams with a feed (see elsewhere.go). If the parameter force is true,
// closeFeed closes the feed in any case, and callers that still use the feed get errors from the
// closed log.
func (h *Hub) closeFeed(s *Stream, force bool) {
	s.mu.Lock()
	f := s.traffic.open()
	if f == nil || s.traffic.inTransition() || (f.users > 0 && !force) {
		s.mu.Unlock()
		return
	}
	f.mu.Lock()
	settled := isSettled(f) && len(f.loose) == 0 && (!h.shared || f.way.holds.none())
	f.mu.Unlock()
	if !settled && !force {
		s.mu.Unlock()
		return
	}
	f.way.feed, f.way.busy = nil, true
	s.mu.Unlock()

	var left engine.Log
	var size int64
	if h.shared {
		left, size = f.log, closedLog+logBytes(f)
	}
	f.log.Close()
	// The state is final only now: Close has waited for appends whose callers have left.
	f.mu.Lock()
	if f.timer != nil {
		f.timer.Stop()
	}
	sum, settled, limits := f.summarize(), isSettled(f), f.bounds
	var kept *stream.State
	if settled && !force && (h.shared || isCostly(f.ahead)) {
		kept = f.ahead.Back(f.state, 0)
		f.ahead = f.state // the old f.ahead is unusable after Back, but a concurrent Glance may still use this feed to evict batches
	}
	f.mu.Unlock()
	h.catalog.setOpen(s, false)
	if h.shared {
		sum.until = min(sum.until, h.now().Add(idleCheckEvery))
	}
	s.mu.Lock()
	if limits != s.bounds.Load() { // the limits have changed, and the feed has not applied them, so the summary is not valid
		sum, settled = summary{}, false
	}
	s.summary = sum
	if !force && f.way.idle() {
		s.traffic = nil
	}
	if kept != nil && !s.deleted {
		h.folded.put(&fold{s, kept, left, stream.Memory(kept) + size})
	}
	f.way.end(nil)
	s.mu.Unlock()
	measureClosed(f)
	if !settled {
		h.sweeper.checkBy(s, h.now())
	} else if sum.until != never {
		h.sweeper.checkBy(s, s.checkTime(sum.until))
	}
}

// isSettled reports whether nothing remains to be done for the stream until a batch expires: it has
// no open gap, no entry in flight, and no evicted batch that is not trimmed. Called with f.mu held.
func isSettled(f *feed) bool {
	_, waiting := f.ahead.NextDue()
	return !waiting && len(f.pending.all()) == 0 && !untrimmed(f)
}

// summarize returns the summary of the durable state. Called with f.mu held.
func (f *feed) summarize() summary {
	return summary{cursor: f.state.Cursor(), bytes: f.state.Bytes(), until: f.expiry}
}

// headers visits the log's entries as headers of package stream.
func (f *feed) headers(from weir.Seq, visit func(stream.Header) bool) {
	f.log.Headers(from, func(h engine.Header) bool { return visit(toRules(&h)) })
}

// toRules converts a header of the engine to one of package stream.
func toRules(h *engine.Header) (r stream.Header) {
	convert(&r, h)
	return r
}

// convert sets all fields of r, one after another, because building a new Header and copying it
// would take twice the time. Opening a long log calls convert for each entry.
func convert(r *stream.Header, h *engine.Header) {
	lost := h.Flags&engine.Lost != 0
	r.Closed = h.Kind == engine.GapClosed && !lost
	r.First, r.Seq, r.Time, r.Size = h.First, h.Seq, h.Time, h.Size
	r.Key, r.KeySize, r.Count = h.KeyDigest, h.KeySize, h.Count
	r.Late, r.Lost, r.Ends = h.Flags&engine.Late != 0, lost, h.Flags&engine.Ends != 0
	r.Writer = stream.ParseTag(h.Tag)
	if h.Kind == engine.Batch && lost {
		r.First = h.Seq // a single lost batch is a run of length 1
	}
	if h.Key != "" {
		r.KeySize, r.Key = uint16(len(h.Key)), weir.DigestKey(h.Key)
	}
}

// evict evicts the batches that exceed the size limit, or the age limit at the time now. Every read
// calls evict first, so that clients never see an expired batch, even if the sweeper has not run
// since the batch expired. Called with f.mu held.
func (f *feed) evict(now weir.Time) {
	if f.shrink(now) {
		f.wake() // subscriptions whose position is below the low mark must report a gap
	}
}

// shrink does the same as evict, but wakes no subscriptions. It reports whether it evicted
// anything.
func (f *feed) shrink(now weir.Time) bool {
	adopt(f)
	bytes, charge := f.state.Bytes(), stream.Charge(f.state)
	if max(now, f.newest) < f.expiry && charge <= f.bounds.maxBytes {
		return false // the common case costs two comparisons
	}
	n := f.state.Evict(now, f.headers)
	f.expiry = nextExpiry(f)
	if n == 0 {
		return false
	}
	f.evicted += max(charge-stream.Charge(f.state), 1) // lost batches have no charge, but must be trimmed too
	f.hub.counts.evicted.Add(uint64(n))
	f.hub.counts.evictedBytes.Add(uint64(bytes - f.state.Bytes()))
	f.ahead.Raise(f.state.Low())
	f.tail.raise(f, f.state.Low())
	f.updateHeld(now) // the held sequence, which kept the gaps above it open, may have been evicted
	f.schedule()
	return true
}

// never is later than any other time.
const never = weir.Time(math.MaxInt64)

// nextExpiry returns a time before which no batch expires. The search stops at the first batch that
// is not late (a late batch is one that filled a gap), because all batches above it are younger.
func nextExpiry(f *feed) weir.Time {
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
	return oldest.Add(f.bounds.retention())
}

// Admit implements engine.Judge: it decides on an entry at the entry's position in the log. It sets
// the sequence, the time and the flags of an entry that it admits, and applies the entry to
// f.ahead. The publisher finds the verdict in its proposal.
func (f *feed) Admit(e *engine.Entry) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.hub.opts.Now()
	now := weir.TimeOf(at)
	p, ok := e.Proposer.(*proposal)
	if !ok {
		c, _ := e.Proposer.(*closing)
		return f.admitMarker(e, now, c)
	}
	if lifeEnded(f.s) {
		p.verdict = stream.Verdict{Outcome: stream.Refused, Err: notFound(f.s.ID)}
		return false
	}
	adopt(f)
	p.verdict = f.ahead.Decide(p.rules, now)
	if p.verdict.Outcome == stream.Stored && !p.verdict.Header.Late && f.s.refusesBatches() != nil {
		p.verdict = stream.Verdict{Outcome: stream.Refused, Err: errIndexFull}
	}
	if p.verdict.Outcome != stream.Stored || p.probe {
		return false
	}
	if !lifeOf(f.s).admits(now) {
		p.verdict = stream.Verdict{Outcome: stream.Refused, Err: notFound(f.s.ID)}
		return false
	}
	h := p.verdict.Header
	h.Size, h.Count = uint32(len(e.Payload)), e.Count
	e.Seq, e.Time = h.Seq, h.Time
	if h.KeySize == 0 {
		e.Key = "" // if the publisher chose the sequence, its key is ignored (D25)
	}
	if h.Late {
		e.Flags = engine.Late
	}
	if h.Ends {
		e.Flags |= engine.Ends
	}
	opens := h.Seq > f.ahead.Cursor().Cursor+1 // the new gap may contain a sequence for which a request is being received
	f.ahead.Apply(h)
	if h.Seq == f.held.seq || opens && f.held.seq == stream.NoneHeld {
		f.updateHeld(now)
	}
	f.foreign = false
	p.cursor = f.ahead.Cursor().Cursor
	f.way.order.moved(p.cursor)
	a := admitted{header: h, unknown: true}
	if f.tail.wanted() {
		a.unknown, p.kept = false, true
		a.batch = weir.Batch{Seq: h.Seq, Time: h.Time, Events: e.Count, ContentType: e.ContentType, Payload: e.Payload}
		a.at = meter.At(at)
	}
	f.pending.add(a)
	f.schedule()
	return true
}

// Commit implements engine.Judge: the first n pending entries are durable, so they move to f.state
// and to the tail, and subscribers wake up.
func (f *feed) Commit(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	batches, bytes, gaps := uint64(0), uint64(0), uint64(0)
	for i := range f.pending.all()[:n] {
		a := &f.pending.all()[i]
		if !a.header.Closed {
			batches, bytes = batches+1, bytes+uint64(a.header.Size)
		} else if !a.header.Ends || a.header.First < a.header.Seq {
			gaps++
		}
		if !a.header.Closed && a.header.Seq < f.state.Low() {
			continue // a late batch: while it was in flight, a batch above it was evicted, which evicts this one too
		}
		a.header.Key = weir.KeyDigest{} // only f.ahead remembers keys; KeySize stays, because it counts in the charge
		f.state.Apply(a.header)
		f.newest = a.header.Time
		if a.lapses {
			die(f.s)
		}
		if !a.header.Closed {
			f.expiry = min(f.expiry, a.header.Time.Add(f.bounds.retention()))
			f.tail.add(f, a)
		}
	}
	f.hub.counts.published.Add(batches)
	f.hub.counts.publishedBytes.Add(bytes)
	f.s.work.add(batches, bytes)
	f.hub.counts.gaps.Add(gaps)
	f.pending.drop(n)
	setEnded(f)
	f.shrink(f.hub.now())
	f.wake()
}

// setEnded records whether the stream is closed. A stream whose lifetime has ended does not count as
// closed, although its log has ended. Called with f.mu held.
func setEnded(f *feed) { f.s.ended.Store(stream.Ended(f.state) && !lifeEnded(f.s)) }

// pending holds the entries of a feed between Admit and Commit. It has no memory while there are none,
// as in most open feeds of a server with many streams.
type pending struct{ entries *[]admitted }

// mostPending is the largest capacity of a list that other feeds use again. Otherwise all lists would
// grow as long as the longest.
const mostPending = 1024

var pendings = sync.Pool{New: func() any { return new([]admitted) }}

func (p *pending) all() []admitted {
	if p.entries == nil {
		return nil
	}
	return *p.entries
}

func (p *pending) add(a admitted) {
	if p.entries == nil {
		p.entries = pendings.Get().(*[]admitted)
	}
	*p.entries = append(*p.entries, a)
}

// drop removes the first n entries.
func (p *pending) drop(n int) {
	all := p.all()
	if n == 0 {
		return
	}
	left := copy(all, all[n:]) // few entries are in flight, so this costs less than a new array
	clear(all[left:])
	if *p.entries = all[:left]; left == 0 {
		if cap(all) <= mostPending {
			pendings.Put(p.entries)
		}
		p.entries = nil
	}
}

// Dropped implements engine.Judge: the stream was deleted, here or on another node. The catalog
// learns of the deletion from documentChanged.
func (f *feed) Dropped() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped = true
	if f.timer != nil {
		f.timer.Stop()
	}
	f.tail.clear(f)
	f.way.order.end()
	f.wake()
}
