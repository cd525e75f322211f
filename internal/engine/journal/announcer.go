package journal

import (
	"context"
	"sync"

	"weir/internal/engine"
)

// announcer is the goroutine that tells the watchers (the functions that were passed to Watch)
// about every document change, in order of revisions. After the watchers know a change, the
// announcer answers the caller that made it. It tells the watchers even if that caller has left.
//
// The announcer has a queue of its own, which has no limit. A slow watcher, for example one that
// ends thousands of subscriptions, therefore delays document changes, but not the writer, and not
// the answers to appends.
type announcer struct {
	mu     sync.Mutex
	queue  []announcement
	closed bool
	signal signal        // wakes the method run
	done   chan struct{} // closed when the method run ends: the journal is closing and everything was announced

	telling  sync.Mutex // held while watchers run
	watchers []watcher
}

// announcement is a finished op (an operation such as the creation of a document) whose caller
// waits for the announcer's answer.
type announcement struct {
	op  announced
	err error // the outcome of op
}

// announced is an op whose caller must get the outcome only after the watchers know every earlier
// document change.
type announced interface {
	// announce first tells the watchers about the change that the op made, if it made one. Then it
	// answers the caller of the op.
	announce(a *announcer, err error)
}

// watcher is a function that was passed to Watch.
type watcher struct {
	visit func(engine.Change)
	from  engine.Revision // Watch itself reported the changes up to this revision
}

func (a *announcer) init() { a.signal, a.done = make(signal, 1), make(chan struct{}) }

// add queues the outcome of an op, normally without blocking. If the method close was called
// before, add waits until everything in the queue was announced, and then announces the op itself.
func (a *announcer) add(op announced, err error) {
	a.mu.Lock()
	closed := a.closed
	if !closed {
		a.queue = append(a.queue, announcement{op, err})
	}
	a.mu.Unlock()
	if closed {
		<-a.done
		op.announce(a, err)
		return
	}
	a.signal.wake()
}

// close makes the method run return once the queue is empty. The teller, the goroutine that wakes
// the callers of durable ops, calls close after the last op.
func (a *announcer) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.signal.wake()
}

func (a *announcer) run() {
	defer close(a.done)
	var batch []announcement
	for {
		a.mu.Lock()
		batch, a.queue = a.queue, batch[:0]
		closed := a.closed
		a.mu.Unlock()
		for _, n := range batch {
			n.op.announce(a, n.err)
		}
		switch clear(batch); {
		case len(batch) > 0:
		case closed:
			return
		default:
			<-a.signal
		}
	}
}

// tell calls all watchers with a change, except those that learned of the change from Watch itself.
func (a *announcer) tell(c engine.Change) {
	a.telling.Lock()
	defer a.telling.Unlock()
	for _, w := range a.watchers {
		if c.Revision > w.from {
			w.visit(c)
		}
	}
}

// Watch implements engine.Documents. The store already contains changes that were applied in memory
// but not announced yet. Watch reports them to the watcher as part of the current documents, and
// the announcer does not report them to this watcher again.
func (j *Journal) Watch(_ context.Context, of engine.Prefixes, visit func(engine.Change)) error {
	if j.closing.Load() {
		return engine.ErrClosed
	}
	a := &j.announce
	a.telling.Lock()
	defer a.telling.Unlock()
	docs, revision := j.store.chosen(of)
	for _, doc := range docs {
		visit(engine.Change{Document: doc.Full()})
	}
	a.watchers = append(a.watchers, watcher{of.Only(visit), revision})
	return nil
}

// CatchUp implements engine.Documents. It has nothing to wait for: a change is acknowledged only
// after the watchers have received it.
func (j *Journal) CatchUp(context.Context) error {
	if j.closing.Load() {
		return engine.ErrClosed
	}
	return nil
}

// Shared implements engine.Documents. The result is false, because the lock on the directory keeps
// other processes out.
func (j *Journal) Shared() bool { return false }
