package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir"
	"weir/internal/engine"
)

// log is one opening of a log. Everything along its order happens on one goroutine, the worker,
// which runs only while there is something to do. The worker asks the judge, writes groups, follows
// what other nodes wrote, and reports both to the judge. So the judge never sees two calls at once,
// and its view always matches a prefix of the log. All other goroutines only put requests into the
// queue or read the index, under mu.
type log struct {
	e        *Engine
	id       engine.LogID
	shard    *shard
	subject  string
	judge    engine.Judge
	follower engine.Follower // the judge, if it is one; otherwise nil

	// Used by the worker only.
	last     uint64    // JetStream sequence of the newest message that the judge knows
	position uint64    // its position in the log
	rival    time.Time // when another node last wrote
	turn     time.Time // when this node's turn began; zero while it has none
	owed     time.Time // when this node gave its turn up; zero unless other nodes are owed one

	// When another node last asked for a turn or announced the log as free.
	wanted, freed atomic.Int64
	leaving       atomic.Bool // other nodes are owed a turn

	// Held while the judge is asked; a caller that stops waiting takes it to set request.left.
	asking sync.Mutex

	mu    sync.Mutex
	index []entry // sorted by sequence; holds nothing below low
	low   weir.Seq
	note  uint64 // JetStream sequence of the last trim; 0 if there was none
	queue []*request
	// Records delivered by the line, in order; this node's own among them.
	inbox  []message
	heard  chan struct{} // wakes a worker that waits for the inbox to grow, or for a turn
	newest uint64        // JetStream sequence of the newest delivered message
	// JetStream sequence of the newest message that was reported to the judge.
	told    uint64
	caught  chan struct{}       // closed when told rises; nil while no goroutine waits
	working bool                // the worker is running, or the log is still being opened
	idle    chan struct{}       // closed when the worker stops; nil while no goroutine waits
	fetched *fetch              // the last run that was read
	reads   map[uint64]*reading // messages being read at the moment, by JetStream sequence
	floor   uint64              // all messages with a lower JetStream sequence were purged
	closing bool                // the log takes no more appends
	// Why the log cannot be used any more: ErrClosed, ErrDropped or ErrBehind.
	over   error
	gone   chan struct{} // closed when the judge was told that the log was dropped
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

// restore reads the log and hands it to the judge. Nothing else happens on the log until start.
func (l *log) restore(ctx context.Context) error {
	for try := 1; ; try++ {
		err := l.restoreOnce(ctx)
		if !errors.Is(err, errTrimmed) || try == maxRereads {
			return err
		}
		l.index, l.low, l.note, l.floor, l.last, l.position = nil, 0, 0, 0, 0, 0
	}
}

// errTrimmed says that another node trimmed and purged the log while it was read.
var errTrimmed = errors.New("the last note was purged")

func (l *log) restoreOnce(ctx context.Context) error {
	all, err := l.shard.readHeaders(ctx, l.subject, 1)
	if err != nil {
		return err
	}
	if len(all) > 0 {
		l.floor = all[0].js
	}
	var note []byte
	var trimmed *message
	headers := map[uint64]engine.Header{}
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
			h := m.Header
			h.Count, h.ContentType, h.Publisher = 0, "", ""
			headers[m.position] = h
		}
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
	return l.judge.Restore(note, func(yield func(engine.Header) bool) {
		for _, e := range l.index {
			if !yield(headers[e.position]) {
				return
			}
		}
	})
}

// start lets the worker run. The judge knows everything that was acknowledged before begun.
func (l *log) start(begun time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest() // a Close may have been waiting since before the log was open
	l.attendance.sure = begun
	l.tell()
	l.wake()
}

// started reports whether the log has been read completely.
func (l *log) started() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.attendance.sure.IsZero()
}

// abandon undoes an opening that failed.
func (l *log) abandon() {
	l.mu.Lock()
	if l.over != nil {
		close(l.gone) // it was dropped, and the judge never knew it
	}
	l.over = engine.ErrClosed
	l.rest()
	l.mu.Unlock()
	l.e.detach(l)
}

// insert adds an entry to the index. It returns false if the sequence is already there. The caller
// holds l.mu, or no other goroutine knows the log yet.
func (l *log) insert(m message) bool {
	e := entry{m.Seq, m.js, m.position, m.Time, m.Size, m.parts, m.offset, m.Kind, m.Flags}
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
	if l.index = l.index[i:]; len(l.index) == 0 {
		l.index = nil // the removed entries are freed here, or when the slice next grows
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

// CatchUp implements engine.Log. If the log is followed, a fence behind all acknowledged
// messages is written, and CatchUp waits until the line has delivered it and the worker has
// reported everything before it. Otherwise, or if the line is too slow, it asks the servers for the
// newest message of the log, and the worker reads the missing ones only if the judge does not know
// it.
func (l *log) CatchUp(ctx context.Context) error {
	begun := time.Now()
	l.mu.Lock()
	err, followed := l.usable(ctx), l.attendance.followed && l.shard.live.Load()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if followed {
		try, cancel := context.WithTimeout(ctx, l.e.opts.hearing)
		defer cancel()
		if l.shard.catchUp(try) == nil && l.await(try) == nil {
			return nil
		}
	}
	last, err := l.shard.last(ctx, l.subject)
	if err != nil {
		return err
	}
	l.mu.Lock()
	// A log without any message counts as known only if the judge knows none either. Otherwise its
	// messages were removed, and the refresh reports that.
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

// await waits until everything delivered so far was reported to the judge.
func (l *log) await(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
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

// tell marks everything the worker knows as reported to the judge. The caller holds l.mu.
func (l *log) tell() {
	l.told = max(l.told, l.last)
	if l.caught != nil {
		close(l.caught)
		l.caught = nil
	}
}

// Headers visits the entries under the log's lock.
func (l *log) Headers(from weir.Seq, visit func(engine.Header) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != nil {
		return
	}
	i, _ := l.find(from)
	for _, e := range l.index[i:] {
		if !visit(engine.Header{Seq: e.seq, Time: e.time, Kind: e.kind, Flags: e.flags, Size: e.size}) {
			return
		}
	}
}

// Close lets the worker finish the appends made before, for at most as long as servers may take to
// answer, and detaches the judge.
func (l *log) Close() error {
	l.mu.Lock()
	l.closing = true
	l.attendance.halt()
	l.mu.Unlock()
	l.settle()
	l.mu.Lock()
	if l.over == nil {
		l.over = engine.ErrClosed
	}
	l.mu.Unlock()
	l.e.detach(l)
	return nil
}

// drop ends a log whose document was deleted. After the appends in flight have finished, the worker
// tells the judge and closes the returned channel. The result is nil if the log was closed before.
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
