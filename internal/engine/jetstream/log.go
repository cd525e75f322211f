package jetstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/jetstream/record"
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

	attendance // follows what other nodes write
	reader     // reads entries
	writer     writer
	turns      turns

	// Only the worker uses these fields.
	last     uint64 // JetStream sequence of the newest message that the judge knows
	position uint64 // position in the log of the newest record that the judge knows

	mu    sync.Mutex
	index index
	queue []*request
	// inbox holds the records that the line (the subscription to the shard) delivered, in order.
	// This node's own records are among them.
	inbox  []record.Record
	heard  chan struct{} // wakes a worker that waits for the inbox to grow, or for a turn
	newest uint64        // JetStream sequence of the newest delivered message
	// told is the JetStream sequence of the newest message that was reported to the judge.
	told    uint64
	caught  chan struct{} // closed when the field told rises; nil while no goroutine waits
	working bool          // the worker is running, or the log is still being opened
	idle    chan struct{} // closed when the worker stops; nil while no goroutine waits
	closing bool          // the log takes no more appends
	// resumable says that the log was closed, and that it can be opened again without reading it as a
	// whole: the new log then continues after the last record (see resume).
	resumable bool
	// over is set when the log cannot be used any more: ErrClosed, ErrDropped or ErrBehind.
	over   error
	gone   chan struct{} // closed when Judge.Dropped has been called
	giveUp chan struct{} // closed when Close stops waiting for the servers
	gaveUp sync.Once
}

var _ engine.Log = (*log)(nil)

func newLog(e *Engine, id engine.LogID, judge engine.Judge) *log {
	s := e.shard(id)
	follower, _ := judge.(engine.Follower)
	l := &log{
		e: e, id: id, shard: s, subject: s.subject(id), judge: judge, follower: follower, working: true, heard: make(chan struct{}, 1),
		gone: make(chan struct{}), giveUp: make(chan struct{}),
	}
	l.attendance.l, l.reader.l, l.writer.l, l.turns.l = l, l, l, l
	return l
}

// start allows the worker to run. The judge must already know everything that was acknowledged before
// the time begun.
func (l *log) start(begun time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest() // Close may already be waiting for the worker, which counted as working while the log was opened
	l.attendance.sure = begun
	l.tell()
	l.wake()
}

// started reports whether the log has been opened completely, that is, whether start() has run.
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
	err, followed, ended := l.usable(ctx), l.attendance.followed && l.shard.Live(), l.attendance.ended
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if followed {
		try, cancel := context.WithTimeout(ctx, l.e.client.Apart(l.e.opts.hearing))
		defer cancel()
		if l.shard.CatchUp(try) == nil && l.await(try, ended) == nil {
			return nil
		}
	}
	newest, err := l.shard.Last(ctx, l.subject)
	if err != nil {
		return err
	}
	last := newest.Seq
	l.mu.Lock()
	// last is 0 if the log has no message. Then the judge is up to date only if it knows no message
	// either. Otherwise messages known to the judge have been removed, and the refresh reports this
	// as an error.
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
// so far. The counter attendance.ended says how often the node has stopped following the log. If it no
// longer equals the parameter ended, the line has left out messages, and await fails.
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
	for _, e := range l.index.from(start) {
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
		// The judge of a later log may continue here (opening.go), so this log may stay in memory
		// for long. It must not keep what is not needed for that.
		l.resumable, l.judge, l.follower, l.fetched = true, nil, nil, nil
		l.index.pack()
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
