package jetstream

import (
	"encoding/binary"
	"sync/atomic"
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

// turns decides when this node writes to a log that other nodes write to as well.
type turns struct {
	l *log
	// Only the worker uses these fields.
	rival time.Time // when another node last wrote to the log
	turn  time.Time // when this node's turn began; zero while it has none
	owed  time.Time // when this node gave up its turn; zero unless it is leaving the next turn to other nodes

	// wanted is when another node last asked for a turn, and freed is when another node last
	// announced that the log is free.
	wanted, freed atomic.Int64
	leaving       atomic.Bool // this node is leaving the next turn to other nodes
}

// say sends a message about the log to the other nodes.
func (t *turns) say(what byte) {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 17), uint64(t.l.id))
	t.l.e.client.Say(&nats.Msg{Subject: t.l.e.opts.Name + ".turn", Data: append(binary.BigEndian.AppendUint64(b, t.l.e.node), what)})
}

// hearTurns subscribes to the messages of other nodes about turns. If another node asks for a turn
// while this node is not writing to the log, or is leaving it to others, this node answers at once
// that the log is free.
func (e *Engine) hearTurns() error {
	_, err := e.client.Hear(e.opts.Name+".turn", func(m *nats.Msg) {
		if len(m.Data) != 17 || binary.BigEndian.Uint64(m.Data[8:]) == e.node {
			return
		}
		l := e.opened(engine.LogID(binary.BigEndian.Uint64(m.Data)))
		if l == nil {
			return
		}
		if m.Data[16] == free {
			l.turns.freed.Store(time.Now().UnixNano())
			l.signal()
			return
		}
		l.turns.wanted.Store(time.Now().UnixNano())
		l.mu.Lock()
		idle := !l.working
		l.mu.Unlock()
		if idle || l.turns.leaving.Load() {
			l.turns.say(free)
		}
	})
	return err
}

// lost is called after another node has written first. It asks for a turn and waits for it. While
// it waits, it applies the records of other nodes.
func (t *turns) lost() {
	began := time.Now()
	t.turn = time.Time{}
	t.say(wanted)
	t.linger(t.l.e.opts.turn, func() bool { return t.freed.Load() > began.UnixNano() })
}

// won is called after a successful write and continues this node's turn. If other nodes want a
// turn, won ends this node's turn after turnFor, or earlier if there is nothing left to write.
func (t *turns) won(begun time.Time) {
	if t.turn.IsZero() {
		t.turn = begun
	}
	if time.Since(time.Unix(0, t.wanted.Load())) > t.l.e.opts.turn {
		return
	}
	t.l.mu.Lock()
	more := len(t.l.queue) > 0
	t.l.mu.Unlock()
	if !more || time.Since(t.turn) > turnFor {
		t.owed, t.turn = time.Now(), time.Time{}
		t.leaving.Store(true)
		t.wanted.Store(0)
		t.say(free)
	}
}

// yield waits if this node has left the next turn to other nodes. It waits until another node has
// written and the remaining nodes have had time to try.
func (t *turns) yield() {
	if t.owed.IsZero() {
		return
	}
	wrote := func() bool { return t.rival.After(t.owed) }
	if t.linger(t.l.e.opts.turn-time.Since(t.owed), wrote); wrote() {
		t.linger(handicap-time.Since(t.rival), func() bool { return false })
	}
	t.owed = time.Time{}
	t.leaving.Store(false)
}

// linger applies the records that other nodes write, until the function done returns true or the
// time limit has passed.
func (t *turns) linger(limit time.Duration, done func() bool) {
	late := time.NewTimer(limit + time.Duration(t.l.e.client.Waits.Add(1)%1021)) // no two end at the same time
	defer late.Stop()
	for t.l.follow(); !done(); t.l.follow() {
		t.l.mu.Lock()
		over := t.l.over != nil || t.l.closing
		t.l.mu.Unlock()
		select {
		case <-late.C:
			return
		default:
		}
		if over {
			return
		}
		select {
		case <-t.l.heard:
		case <-late.C:
			return
		case <-t.l.e.client.Life.Done():
			return
		}
	}
}
