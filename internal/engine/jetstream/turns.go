package jetstream

import (
	"encoding/binary"
	"slices"
	"sync"
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
//     wanted) and waits. All nodes remember which nodes asked, in the order of their messages.
//   - The node whose write succeeded has the turn. It continues for a while, or until it has nothing
//     left to write. Then it gives the turn to the node that asked first (message given). If it
//     wants to write again, it asks like any other node.
//
// These messages are not stored and may get lost. Only fairness depends on them, so no node waits
// long for one.

const (
	// turnFor is how long a node continues to write while another node wants a turn. If n nodes want
	// one, the node continues only for turnFor/n.
	turnFor = 10 * time.Millisecond
	// turnMost is the longest time that a node waits for a turn.
	turnMost = 20 * time.Millisecond
)

// The messages about a log.
const (
	wanted = byte(1)
	freed  = byte(2) // any other node may write now; only earlier versions of the program send this
	given  = byte(3) // a node gives its turn away; contains the node that has it now, and the JetStream sequence of the last message before its turn
)

// turns decides when this node writes to a log that other nodes write to as well.
type turns struct {
	l *log
	// Only the worker uses these fields.
	rival time.Time // when another node last wrote to the log
	turn  time.Time // when this node's turn began; zero while it has none

	mu    sync.Mutex
	asked []asker // the other nodes that want a turn; the node that asked first comes first
	// holds says that this node has the turn. It gets the turn when another node gives it, or when
	// its own write succeeds. It loses the turn when another node writes a message whose JetStream
	// sequence is above t.after.
	holds bool
	after uint64
	gave  time.Time // when this node gave its turn to another node; zero after yield
}

// asker is a node that wants a turn, and when it asked.
type asker struct {
	node uint64
	at   time.Time
}

// say sends a message about the log to the other nodes. Only the kind given has numbers: the node that
// has the turn, and a sequence.
func (t *turns) say(what byte, numbers ...uint64) {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 33), uint64(t.l.id))
	b = append(binary.BigEndian.AppendUint64(b, t.l.e.node), what)
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	t.l.e.client.Say(&nats.Msg{Subject: t.l.e.opts.Name + ".turn", Data: b})
}

// hearTurns subscribes to the messages of other nodes about turns.
func (e *Engine) hearTurns() error {
	_, err := e.client.Hear(e.opts.Name+".turn", func(m *nats.Msg) {
		if len(m.Data) != 17 && len(m.Data) != 33 || binary.BigEndian.Uint64(m.Data[8:]) == e.node {
			return
		}
		l := e.opened(engine.LogID(binary.BigEndian.Uint64(m.Data)))
		if l == nil {
			return
		}
		switch what := m.Data[16]; {
		case what == wanted:
			l.turns.ask(binary.BigEndian.Uint64(m.Data[8:]))
		case what == freed:
			l.turns.take(e.node, 0)
		case what == given && len(m.Data) == 33:
			l.turns.take(binary.BigEndian.Uint64(m.Data[17:]), binary.BigEndian.Uint64(m.Data[25:]))
		}
	})
	return err
}

// ask is called when another node asks for a turn. A node that asks again keeps its place.
func (t *turns) ask(node uint64) {
	t.mu.Lock()
	if i := t.find(node); i >= 0 {
		t.asked[i].at = time.Now()
	} else {
		t.asked = append(t.asked, asker{node, time.Now()})
	}
	t.mu.Unlock()
	t.giveIdle()
}

// find returns the place of a node among those that want a turn, or -1. The caller holds t.mu.
func (t *turns) find(node uint64) int {
	return slices.IndexFunc(t.asked, func(a asker) bool { return a.node == node })
}

// take is called when another node gives its turn to a node, which may be this one. The turn begins
// after the message with this JetStream sequence.
func (t *turns) take(node, after uint64) {
	t.mu.Lock()
	if i := t.find(node); i >= 0 {
		t.asked = slices.Delete(t.asked, i, i+1)
	}
	own := node == t.l.e.node
	if own {
		t.holds, t.after = true, max(t.after, after)
	}
	t.mu.Unlock()
	if own {
		t.l.signal()
		t.giveIdle()
	}
}

// giveIdle gives a turn away that this node does not use.
func (t *turns) giveIdle() {
	t.l.mu.Lock()
	idle := !t.l.working
	t.l.mu.Unlock()
	if idle {
		t.give()
	}
}

// give gives the turn, if this node has it, to the node that asked first. It ignores nodes that
// have stopped waiting.
func (t *turns) give() {
	t.mu.Lock()
	t.forget()
	if !t.holds || len(t.asked) == 0 {
		t.mu.Unlock()
		return
	}
	next, after := t.asked[0].node, t.after
	t.asked = slices.Delete(t.asked, 0, 1)
	t.holds, t.gave = false, time.Now()
	t.mu.Unlock()
	t.say(given, next, after)
}

// forget removes the nodes that have stopped waiting for a turn. The caller holds t.mu.
func (t *turns) forget() {
	t.asked = slices.DeleteFunc(t.asked, func(a asker) bool { return time.Since(a.at) > t.l.e.opts.turn })
}

// overtaken is called after another node has written the message with this JetStream sequence.
func (t *turns) overtaken(at uint64) {
	t.rival = time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds = t.holds && at <= t.after
}

// lost is called after another node has written first. It asks for a turn and waits for it.
func (t *turns) lost() {
	t.turn = time.Time{}
	t.await(t.l.e.opts.turn)
}

// won is called after a successful write and continues this node's turn. If other nodes want a
// turn, won ends this node's turn after its share of turnFor, or earlier if there is nothing left to
// write.
func (t *turns) won(begun time.Time) {
	if t.turn.IsZero() {
		t.turn = begun
	}
	t.l.mu.Lock()
	more := len(t.l.queue) > 0
	t.l.mu.Unlock()
	t.mu.Lock()
	t.holds, t.after = true, t.l.last
	t.forget()
	others := len(t.asked)
	t.mu.Unlock()
	if others > 0 && (!more || time.Since(t.turn) > turnFor/time.Duration(others)) {
		t.turn = time.Time{}
		t.give()
	}
}

// yield waits for another turn if this node has given its turn to another node just now.
func (t *turns) yield() {
	t.mu.Lock()
	gave := t.gave
	t.gave = time.Time{}
	t.mu.Unlock()
	if limit := t.l.e.opts.turn - time.Since(gave); limit > 0 {
		t.await(limit)
	}
}

// await asks for a turn and waits until this node has one, or the time limit has passed. While it
// waits, it applies the records of other nodes.
func (t *turns) await(limit time.Duration) {
	t.say(wanted)
	late := time.NewTimer(limit + time.Duration(t.l.e.client.Waits.Add(1)%1021)) // a few nanoseconds more, so that no two waits end at the same time
	defer late.Stop()
	for t.l.follow(); !t.ready(); t.l.follow() {
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

// ready reports whether this node has the turn and knows all messages that were stored before it. A
// node that does not follow the log is ready as well: it learns of those messages when its write
// fails, and follows the log from then on.
func (t *turns) ready() bool {
	t.l.mu.Lock()
	followed := t.l.attendance.followed
	t.l.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.holds && (t.l.last >= t.after || !followed)
}
