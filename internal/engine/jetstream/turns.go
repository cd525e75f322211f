package jetstream

import (
	"encoding/binary"
	"time"

	"github.com/nats-io/nats.go"

	"weir/internal/engine"
)

// Of several processes that write to one log, the one closest to its leader would win again and again, and the others would decide and send
// for nothing. So they take turns. Who lost says that it wants one, and waits; who won goes on for a while, says that the log is free, and
// leaves it to the others. These are words that may be lost: nothing but fairness rests on them, and nobody waits long for one.

const (
	// turnFor is how long a process goes on while others want a turn.
	turnFor = 10 * time.Millisecond
	// turnMost is how long a turn is waited for that nobody gives, or left to others of which none takes it.
	turnMost = 20 * time.Millisecond
	// handicap is how much later who had a turn begins than those that had none, after one of them wrote.
	handicap = 2 * time.Millisecond
)

// What is said of a log.
const (
	wanted = byte(1)
	free   = byte(2)
)

// say says something of a log.
func (l *log) say(what byte) {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 17), uint64(l.id))
	l.e.nc.Publish(l.e.opts.Name+".turn", append(binary.BigEndian.AppendUint64(b, l.e.node), what))
}

// hearTurns listens to what others say. Of a log that we do not write to, or leave to others, they are told at once that it is free.
func (e *Engine) hearTurns() error {
	_, err := e.nc.Subscribe(e.opts.Name+".turn", func(m *nats.Msg) {
		if len(m.Data) != 17 || binary.BigEndian.Uint64(m.Data[8:]) == e.node {
			return
		}
		l := e.opened(engine.LogID(binary.BigEndian.Uint64(m.Data)))
		if l == nil {
			return
		}
		if m.Data[16] == free {
			l.freed.Store(time.Now().UnixNano())
			l.signal()
			return
		}
		l.wanted.Store(time.Now().UnixNano())
		l.mu.Lock()
		idle := !l.working
		l.mu.Unlock()
		if idle || l.leaving.Load() {
			l.say(free)
		}
	})
	return err
}

// lost says that we want a turn, and waits for it. What others write meanwhile is followed.
func (l *log) lost() {
	began := time.Now()
	l.turn = time.Time{}
	l.say(wanted)
	l.linger(l.e.opts.turn, func() bool { return l.freed.Load() > began.UnixNano() })
}

// won goes on with our turn, or ends it when others want one. Without more to write it ends at once.
func (l *log) won(begun time.Time) {
	if l.turn.IsZero() {
		l.turn = begun
	}
	if time.Since(time.Unix(0, l.wanted.Load())) > l.e.opts.turn {
		return
	}
	l.mu.Lock()
	more := len(l.queue) > 0
	l.mu.Unlock()
	if !more || time.Since(l.turn) > turnFor {
		l.owed, l.turn = time.Now(), time.Time{}
		l.leaving.Store(true)
		l.wanted.Store(0)
		l.say(free)
	}
}

// yield leaves the log to others, if they are owed a turn: until one of them has written, and the rest had the time to try before us.
func (l *log) yield() {
	if l.owed.IsZero() {
		return
	}
	wrote := func() bool { return l.rival.After(l.owed) }
	if l.linger(l.e.opts.turn-time.Since(l.owed), wrote); wrote() {
		l.linger(handicap-time.Since(l.rival), func() bool { return false })
	}
	l.owed = time.Time{}
	l.leaving.Store(false)
}

// linger follows what others write until something is so, but not for long.
func (l *log) linger(most time.Duration, so func() bool) {
	late := time.NewTimer(most)
	defer late.Stop()
	for l.follow(); !so(); l.follow() {
		l.mu.Lock()
		over := l.over != nil || l.closing
		l.mu.Unlock()
		if over {
			return
		}
		select {
		case <-l.heard:
		case <-late.C:
			return
		case <-l.e.ctx.Done():
			return
		}
	}
}
