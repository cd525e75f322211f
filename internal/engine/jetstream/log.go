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

// log is one opening of a log. All that happens along its order happens on one goroutine, the worker, which runs while
// there is something to do: it decides, writes, follows what others wrote, and calls the judge.
type log struct {
	e       *Engine
	id      engine.LogID
	shard   *shard
	subject string
	judge   engine.Judge

	// Of the worker alone.
	last     uint64    // the JetStream sequence of the newest message that the judge has seen
	position uint64    // its number in the log
	rival    time.Time // when another process last wrote
	turn     time.Time // when ours began, while we have one
	owed     time.Time // when it ended, while others are owed one

	wanted, freed atomic.Int64 // when another process last said so
	leaving       atomic.Bool  // others are owed a turn

	asking sync.Mutex // held while a judge is asked; whoever stops waiting for an append takes it to say so

	mu      sync.Mutex
	index   []entry // by sequence; nothing is below low
	low     weir.Seq
	note    uint64 // the JetStream sequence of the last trim; 0: none
	queue   []*request
	inbox   []message // what others wrote, or ourselves, in order
	heard   chan struct{}
	newest  uint64        // the newest message that was heard of
	told    uint64        // the newest message that the judge was told of
	caught  chan struct{} // closed when told rises; nil while nobody waits
	working bool
	idle    chan struct{}       // closed when the worker stops; nil while nobody waits
	fetched *fetch              // the last run that was read
	reads   map[uint64]*reading // by JetStream sequence
	floor   uint64              // everything before it was purged
	closing bool                // takes no more appends
	over    error               // ErrClosed or ErrDropped, for good
	gone    chan struct{}       // closed when the judge was told of the drop
	giveUp  chan struct{}       // closed when nobody waits for the servers any more
	gaveUp  sync.Once

	attendance attendance
}

var _ engine.SharedLog = (*log)(nil)

// entry is where an entry is, and as much of it as Headers tells.
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
	return &log{
		e: e, id: id, shard: s, subject: s.subject(id), judge: judge, working: true, heard: make(chan struct{}, 1),
		gone: make(chan struct{}), giveUp: make(chan struct{}), reads: map[uint64]*reading{},
	}
}

// restore reads the log and shows it to the judge. Until start nothing else happens on it.
func (l *log) restore(ctx context.Context) error {
	for try := 1; ; try++ {
		err := l.restoreOnce(ctx)
		if !errors.Is(err, errTrimmed) || try == maxRereads {
			return err
		}
		l.index, l.low, l.note, l.floor, l.last, l.position = nil, 0, 0, 0, 0, 0
	}
}

// errTrimmed says that others trimmed and purged the log while it was read.
var errTrimmed = errors.New("the last note is gone")

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
				return fmt.Errorf("%w: sequence %d is in the log twice", engine.ErrDamaged, m.Seq)
			}
			h := m.Header
			h.Count, h.ContentType = 0, ""
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

// start lets the worker go. Everything is known that was acknowledged before it was begun to read the log.
func (l *log) start(begun time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest() // somebody may wait since before it was open, to close it
	l.attendance.sure = begun
	l.tell()
	l.wake()
}

// started tells whether it has been read.
func (l *log) started() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.attendance.sure.IsZero()
}

// abandon takes back an opening that failed.
func (l *log) abandon() {
	l.mu.Lock()
	if l.over != nil {
		close(l.gone) // dropped, and the judge never knew of it
	}
	l.over = engine.ErrClosed
	l.rest()
	l.mu.Unlock()
	l.e.detach(l)
}

// insert puts an entry at its place; false when there is one already. With l.mu held, or before anybody else knows the log.
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

// cut raises the low mark. With l.mu held.
func (l *log) cut(low weir.Seq) {
	l.low = max(l.low, low)
	i, _ := l.find(l.low)
	if l.index = l.index[i:]; len(l.index) == 0 {
		l.index = nil // the memory in front comes back when the slice next grows, or is empty
	}
}

func (l *log) find(seq weir.Seq) (int, bool) {
	return slices.BinarySearchFunc(l.index, seq, func(e entry, seq weir.Seq) int { return cmp.Compare(e.seq, seq) })
}

// usable is nil while the log may be used. With l.mu held.
func (l *log) usable(ctx context.Context) error {
	if l.over != nil {
		return l.over
	}
	return ctx.Err()
}

// CatchUp implements engine.SharedLog.
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

// await waits until the judge was told of all that was heard.
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

// tell says that the judge knows all that the worker knows. With l.mu held.
func (l *log) tell() {
	l.told = max(l.told, l.last)
	if l.caught != nil {
		close(l.caught)
		l.caught = nil
	}
}

// Headers visits under the log's lock.
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

// Close lets the worker finish what was appended before, as long as servers may take to answer, and detaches the judge.
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

// drop ends a log whose document is gone. The worker tells the judge when what is in flight is settled, and then closes
// what is returned; nil: the log was closed before.
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
