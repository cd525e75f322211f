package jetstream

import (
	"encoding/binary"
	"time"

	"github.com/nats-io/nats.go"

	"weir/internal/engine"
)

// A write to a log succeeds only if no other node has written after the last message that the
// writing node knows. If several nodes wrote to one log without a rule, the writes of the node
// closest to the leader of the shard would succeed nearly every time, and the other nodes would
// decide and send in vain. Therefore the nodes take turns:
//
//   - A node whose write failed because another node had written first asks for a turn (message
//     wanted) and waits.
//   - The node whose write succeeded continues for a while. Then it announces that the log is free
//     (message free), and leaves the log to the others.
//
// These messages are not stored and may get lost. Only fairness depends on them, so no node waits
// long for one.

const (
	// turnFor is how long a node continues to write while other nodes want a turn.
	turnFor = 10 * time.Millisecond
	// turnMost is the longest time that a node waits for a turn. It is also the longest time that a
	// node that has given up its turn waits for another node to write.
	turnMost = 20 * time.Millisecond
	// handicap is how long a node that has had its turn still waits after another node has written,
	// so that nodes that have not had a turn can write first.
	handicap = 2 * time.Millisecond
)

// The messages about a log.
const (
	wanted = byte(1)
	free   = byte(2)
)

// say sends a message about the log to the other nodes.
func (l *log) say(what byte) {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 17), uint64(l.id))
	l.e.servers.Say(&nats.Msg{Subject: l.e.opts.Name + ".turn", Data: append(binary.BigEndian.AppendUint64(b, l.e.node), what)})
}

// hearTurns subscribes to the messages of other nodes about turns. If another node asks for a turn
// while this node is not writing to the log, or is leaving it to others, this node answers at once
// that the log is free.
func (e *Engine) hearTurns() error {
	_, err := e.servers.Hear(e.opts.Name+".turn", func(m *nats.Msg) {
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

// lost is called after another node has written first. It asks for a turn and waits for it. While
// it waits, it applies the records of other nodes.
func (l *log) lost() {
	began := time.Now()
	l.turn = time.Time{}
	l.say(wanted)
	l.linger(l.e.opts.turn, func() bool { return l.freed.Load() > began.UnixNano() })
}

// won is called after a successful write and continues this node's turn. If other nodes want a
// turn, won ends this node's turn after turnFor, or earlier if there is nothing left to write.
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

// yield waits if this node has left the next turn to other nodes. It waits until another node has
// written and the remaining nodes have had time to try.
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

// linger applies the records that other nodes write, until the function done returns true or the
// time limit has passed.
func (l *log) linger(limit time.Duration, done func() bool) {
	late := time.NewTimer(limit + time.Duration(l.e.waits.Add(1)%1021)) // no two end at the same time
	defer late.Stop()
	for l.follow(); !done(); l.follow() {
		l.mu.Lock()
		over := l.over != nil || l.closing
		l.mu.Unlock()
		select {
		case <-late.C:
			return
		default:
		}
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
