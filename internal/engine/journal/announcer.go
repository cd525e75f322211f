package journal

import (
	"context"
	"sync"

	"weir/internal/engine"
)

// announcer is the goroutine that tells watchers of document changes, in order of revisions, and
// then answers the callers that made them. The caller may have left, and the watchers hear of the
// change all the same.
//
// It has a queue of its own, which has no bound but that of the journal's queue. So a watcher that
// takes a while, for example because it ends thousands of subscriptions, delays document changes
// but neither the writer nor the answers to appends.
type announcer struct {
	mu     sync.Mutex
	queue  []announcement
	closed bool
	signal chan struct{} // holds one signal
	done   chan struct{} // closed when everything was announced and the journal is closing

	telling  sync.Mutex // held while watchers run
	watchers []watcher
}

// announcement is a finished op that the announcer answers.
type announcement struct {
	op  announced
	err error // the outcome
}

// announced is an op whose outcome must not be known before earlier changes were announced.
type announced interface {
	// announce answers the caller of the op, after it told the watchers what they must know first.
	announce(a *announcer, err error)
}

// watcher is a function that was passed to Watch.
type watcher struct {
	visit func(engine.Change)
	from  engine.Revision // changes up to this one were part of what Watch itself reported
}

func (a *announcer) init() { a.signal, a.done = make(chan struct{}, 1), make(chan struct{}) }

// add queues the outcome of an op. It never blocks. After close, no change can be waiting to be
// announced, and the op is answered at once.
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
	a.wake()
}

func (a *announcer) wake() {
	select {
	case a.signal <- struct{}{}:
	default:
	}
}

// close lets run end once the queue is empty. The teller calls it after the last settled op.
func (a *announcer) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.wake()
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

// tell tells all watchers of a change.
func (a *announcer) tell(c engine.Change) {
	a.telling.Lock()
	defer a.telling.Unlock()
	for _, w := range a.watchers {
		if c.Revision > w.from {
			w.visit(c)
		}
	}
}

// Watch implements engine.Documents. Changes that are settled and not announced yet are part of
// what the store holds now, so the watcher hears of them here and not a second time.
func (j *Journal) Watch(_ context.Context, visit func(engine.Change)) error {
	if j.closing.Load() {
		return engine.ErrClosed
	}
	a := &j.announce
	a.telling.Lock()
	defer a.telling.Unlock()
	docs, revision := j.store.everything()
	for _, doc := range docs {
		visit(engine.Change{Document: doc})
	}
	a.watchers = append(a.watchers, watcher{visit, revision})
	return nil
}

// CatchUp implements engine.Documents. A change is acknowledged after the watchers have received it,
// so they always know everything.
func (j *Journal) CatchUp(context.Context) error {
	if j.closing.Load() {
		return engine.ErrClosed
	}
	return nil
}

// Shared implements engine.Documents: the lock of the directory keeps other processes out.
func (j *Journal) Shared() bool { return false }
