package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/engine"
)

// log is a log that this node has opened. One goroutine, the worker, does everything that must
// happen in the order of the log. It runs only while there is something to do. The worker asks the
// judge (engine.Judge, which applies the rules of the stream) about entries. It writes the admitted
// entries in groups, and receives the records that other nodes wrote. It reports both to the judge.
// So the judge never gets two calls at once, and the records that it knows are always a prefix of
// the log. All other goroutines only put requests into the queue or read the index, under mu.
type log struct {
	e        *Engine
	id       engine.LogID
	shard    *shard
	subject  string
	judge    engine.Judge
	follower engine.Follower // the judge, if it implements engine.Follower; otherwise nil

	// Only the worker uses these fields. Nodes that write to the same log take turns (see
	// turns.go).
	last     uint64    // JetStream sequence of the newest message that the judge knows
	position uint64    // position in the log of the newest record that the judge knows
	rival    time.Time // when another node last wrote to the log
	turn     time.Time // when this node's turn began; zero while it has none
	owed     time.Time // when this node gave up its turn; zero unless it is leaving the next turn to other nodes

	// wanted is when another node last asked for a turn, and freed is when another node last
	// announced that the log is free.
	wanted, freed atomic.Int64
	leaving       atomic.Bool // this node is leaving the next turn to other nodes

	// The lock asking is held while the judge is asked about requests. A caller that stops waiting
	// holds this lock while it sets request.left.
	asking sync.Mutex

	mu    sync.Mutex
	index []entry // entries sorted by sequence
	// removed is the number of entries that were removed from the index since it was last copied.
	removed int
	low     weir.Seq // the low mark: all entries below this sequence are trimmed
	note    uint64   // JetStream sequence of the message with the last trim, which holds the note for Judge.Restore; 0 if there was no trim
	queue   []*request
	// inbox holds the records that the line (the subscription to the shard) delivered, in order.
	// This node's own records are among them.
	inbox  []message
	heard  chan struct{} // wakes a worker that waits for the inbox to grow, or for a turn
	newest uint64        // JetStream sequence of the newest delivered message
	// told is the JetStream sequence of the newest message that was reported to the judge.
	told    uint64
	caught  chan struct{}       // closed when the field told rises; nil while no goroutine waits
	working bool                // the worker is running, or the log is still being opened
	idle    chan struct{}       // closed when the worker stops; nil while no goroutine waits
	fetched *fetch              // the run (part of the log) that Scan read last
	reads   map[uint64]*reading // messages that are being read, by JetStream sequence
	floor   uint64              // all messages with a lower JetStream sequence were purged
	closing bool                // the log takes no more appends
	// resumable says that the log was closed and another one can continue after its last record.
	resumable bool
	// over is set when the log cannot be used any more: ErrClosed, ErrDropped or ErrBehind.
	over   error
	gone   chan struct{} // closed when Judge.Dropped has been called
	giveUp chan struct{} // closed when Close stops waiting for the servers
	gaveUp sync.Once

	attendance attendance
}

var _ engine.Log = (*log)(nil)

// entry says where an entry is stored, and holds the fields that Headers returns.
type entry struct {
	seq      weir.Seq
	js       uint64
	position uint64
	time     weir.Time
	size     uint32
	parts    uint32
	offset   uint32
	keySize  uint16
	kind     engine.Kind
	flags    engine.Flags
}

func newLog(e *Engine, id engine.LogID, judge engine.Judge) *log {
	s := e.shard(id)
	follower, _ := judge.(engine.Follower)
	return &log{
		e: e, id: id, shard: s, subject: s.subject(id), judge: judge, follower: follower, working: true, heard: make(chan struct{}, 1),
		gone: make(chan struct{}), giveUp: make(chan struct{}), reads: map[uint64]*reading{},
	}
}

// restore reads the log and passes its headers to Judge.Restore. Nothing else happens on the log
// until the method start is called.
func (l *log) restore(ctx context.Context) error {
	for try := 1; ; try++ {
		err := l.restoreOnce(ctx)
		if !errors.Is(err, errTrimmed) || try == maxRereads {
			return err
		}
		l.index, l.removed, l.low, l.note, l.floor, l.last, l.position = nil, 0, 0, 0, 0, 0, 0
	}
}

// errTrimmed says that another node trimmed and purged the log while this node was reading it.
var errTrimmed = errors.New("the last note was purged")

func (l *log) restoreOnce(ctx context.Context) error {
	all, err := l.shard.readHeaders(ctx, l.subject, 1)
	if err != nil {
		return err
	}
	if len(all) > 0 {
		l.floor = all[0].js
	} else if err := l.shard.intact(ctx); err != nil {
		return err
	}
	var note []byte
	var trimmed *message
	for i, m := range all {
		l.last, l.position = m.js, m.position
		switch m.kind {
		case dropped:
			return engine.ErrDropped
		case trim:
			trimmed, l.note = &all[i], m.js
			l.low = max(l.low, m.Seq)
		case batch, gapClosed:
			if !l.insert(m) {
				return fmt.Errorf("%w: sequence %d occurs twice in the log", engine.ErrDamaged, m.Seq)
			}
		}
	}
	if err := beginsWhole(all, trimmed); err != nil {
		return err
	}
	l.cut(l.low)
	if trimmed != nil {
		note, err = l.payload(ctx, trimmed)
		if errors.Is(err, engine.ErrNotFound) {
			return errTrimmed
		}
		if err != nil {
			return fmt.Errorf("read the note: %w", err)
		}
		if note == nil {
			note = []byte{}
		}
	}
	return l.judge.Restore(note, l.restored(all))
}

// restored returns the headers of the entries in the index, in the form that Judge.Restore receives.
// The positions of the given records have no holes.
func (l *log) restored(all []message) iter.Seq[*engine.Header] {
	since := weir.Time(math.MinInt64)
	if f, ok := l.judge.(engine.Forgetful); ok {
		since = f.KeysSince()
	}
	return func(yield func(*engine.Header) bool) {
		for _, e := range l.index {
			h := all[e.position-all[0].position].Header
			if h.Time < since { // the digest of the key, which takes time, is not needed
				h.Count, h.Key = 0, ""
			}
			h = h.Restored()
			if h.KeySize = e.keySize; !yield(&h) {
				return
			}
		}
	}
}

// beginsWhole returns ErrDamaged if the first records of a log are missing although no trim removed
// them: then an operator or another program purged them. The parameter trimmed is the last trim of
// the log, or nil.
func beginsWhole(all []message, trimmed *message) error {
	oldest := uint64(1)
	if trimmed != nil {
		oldest = uint64(trimmed.First)
	}
	// Trims of earlier versions do not say which record is the oldest one that is needed.
	if len(all) > 0 && oldest > 0 && all[0].position > oldest {
		return fmt.Errorf("%w: the log begins with record %d, but records from %d on must be there", engine.ErrDamaged, all[0].position, oldest)
	}
	return nil
}

// start allows the worker to run. When start is called, the judge must know everything that was
// acknowledged before the time that the parameter begun holds.
func (l *log) start(begun time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest() // Close may already be waiting for the worker, which counted as working while the log was opened
	l.attendance.sure = begun
	l.tell()
	l.wake()
}

// started reports whether the method restore has read the whole log.
func (l *log) started() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.attendance.sure.IsZero()
}

// abandon undoes an opening that failed.
func (l *log) abandon() {
	l.mu.Lock()
	if l.over != nil {
		close(l.gone) // the log was dropped while it was being opened, so Judge.Dropped need not be called
	}
	l.over = engine.ErrClosed
	l.rest()
	l.mu.Unlock()
	l.e.detach(l)
}

// insert adds an entry to the index. It returns false if the index already contains the sequence.
// The caller holds l.mu, or no other goroutine knows the log yet.
func (l *log) insert(m message) bool {
	e := entry{m.Seq, m.js, m.position, m.Time, m.Size, m.parts, m.offset, uint16(len(m.Key)), m.Kind, m.Flags}
	i := len(l.index)
	if i > 0 && l.index[i-1].seq >= e.seq {
		var found bool
		if i, found = l.find(e.seq); found {
			return false
		}
	}
	if e.seq >= l.low {
		l.index = slices.Insert(l.index, i, e)
	}
	return true
}

// cut raises the low mark and removes the entries below it from the index. The caller holds l.mu.
func (l *log) cut(low weir.Seq) {
	l.low = max(l.low, low)
	i, _ := l.find(l.low)
	l.index = l.index[i:]
	// The array still holds the removed entries. If they are the larger part, a copy frees them.
	if l.removed += i; l.removed > len(l.index) {
		l.index, l.removed = append([]entry(nil), l.index...), 0
	}
}

func (l *log) find(seq weir.Seq) (int, bool) {
	return slices.BinarySearchFunc(l.index, seq, func(e entry, seq weir.Seq) int { return cmp.Compare(e.seq, seq) })
}

// usable returns nil while the log may be used. The caller holds l.mu.
func (l *log) usable(ctx context.Context) error {
	if l.over != nil {
		return l.over
	}
	return ctx.Err()
}

// CatchUp implements engine.Log. If the log is followed (the line delivers its messages as they are
// stored), CatchUp stores a fence, which is an empty message after all acknowledged ones. It waits
// until the line has reached the fence and the worker has reported everything before it to the
// judge. If the log is not followed, or the line is too slow, CatchUp asks the servers for the
// sequence of the newest message of the log. If the judge does not know this message, the worker
// reads the missing ones.
//
// The node may stop following the log while CatchUp waits for the fence. From then on the line
// leaves out the messages of the log, although it reaches the fence. So the fence counts only if the
// log was followed all the time.
func (l *log) CatchUp(ctx context.Context) error {
	begun := time.Now()
	l.mu.Lock()
	err, followed, ended := l.usable(ctx), l.attendance.followed && l.shard.live.Load(), l.attendance.ended
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if followed {
		try, cancel := context.WithTimeout(ctx, l.e.apart(l.e.opts.hearing))
		defer cancel()
		if l.shard.catchUp(try) == nil && l.await(try, ended) == nil {
			return nil
		}
	}
	newest, err := l.shard.last(ctx, l.subject)
	if err != nil {
		return err
	}
	last := newest.Seq
	l.mu.Lock()
	// last is 0 if the log has no message. Then the judge is up to date only if it knows no message
	// either. Otherwise messages that the judge knows were removed, and the refresh reports this as
	// an error.
	known := l.told >= last && (last > 0 || l.told == 0)
	if known && begun.After(l.attendance.sure) {
		l.attendance.sure = begun
	}
	err = l.usable(ctx)
	l.mu.Unlock()
	if known || err != nil {
		return err
	}
	return l.requestRefresh(ctx)
}

// await waits until the worker has reported to the judge all messages that the line has delivered
// so far. It fails if the node has stopped following the log since attendance.ended had the given
// value, because then the line has left out messages.
func (l *log) await(ctx context.Context, ended uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.attendance.ended != ended {
		return errUnfollowed
	}
	for newest := l.newest; l.told < newest; {
		if err := l.usable(ctx); err != nil {
			return err
		}
		if l.caught == nil {
			l.caught = make(chan struct{})
		}
		caught := l.caught
		l.mu.Unlock()
		select {
		case <-caught:
		case <-ctx.Done():
		}
		l.mu.Lock()
	}
	return l.usable(ctx)
}

// errUnfollowed says that the node stopped following a log while CatchUp waited for a fence.
var errUnfollowed = errors.New("the log is not followed any more")

// tell records that the worker has reported everything up to l.last to the judge. The caller holds
// l.mu.
func (l *log) tell() {
	l.told = max(l.told, l.last)
	if l.caught != nil {
		close(l.caught)
		l.caught = nil
	}
}

// Headers implements engine.Log. It holds l.mu while it calls the function visit.
func (l *log) Headers(start weir.Seq, visit func(engine.Header) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil {
		return
	}
	i, _ := l.find(start)
	for _, e := range l.index[i:] {
		if !visit(engine.Header{Seq: e.seq, Time: e.time, Kind: e.kind, Flags: e.flags, Size: e.size, KeySize: e.keySize}) {
			return
		}
	}
}

// Close waits until the worker has finished the appends that began before Close, but for at most
// Patience. Then it detaches the judge.
func (l *log) Close() error {
	l.mu.Lock()
	l.closing = true
	l.attendance.halt()
	l.mu.Unlock()
	l.settle()
	if l.over == nil {
		l.over = engine.ErrClosed
		// The judge of a later log may continue here (resume.go), so this log may stay in memory
		// for long. It must not keep what is not needed for that.
		l.resumable, l.judge, l.follower, l.fetched = true, nil, nil, nil
	}
	l.mu.Unlock()
	l.e.detach(l)
	return nil
}

// drop ends a log whose document was deleted. After the appends in flight have finished, the worker
// calls Judge.Dropped and closes the returned channel. The result is nil if the log was closed
// before.
func (l *log) drop() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.over {
	case nil:
		l.over = engine.ErrDropped
		l.attendance.halt()
		l.wake()
		return l.gone
	case engine.ErrDropped, errEnded:
		return l.gone
	}
	return nil
}
