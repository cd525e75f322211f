package wire

import (
	"context"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
)

// inbox receives the answers of requests that get several answers. All requests share one
// subscription. A subscription for each would cost every server of the cluster something, because
// servers tell each other about subscriptions.
type inbox struct {
	mu      sync.Mutex
	prefix  string // of the subjects; empty before the first request
	count   uint64
	waiting map[string]*answers // by subject
	over    chan struct{}       // closed when the connection is closed
}

// answers are the answers to one request that have arrived and were not taken.
type answers struct {
	mu    sync.Mutex
	queue []*nats.Msg
	more  chan struct{}   // has an element if the queue may have grown
	over  <-chan struct{} // closed when no answer can arrive any more
}

// open returns the subject for the answers of a request.
func (b *inbox) open(nc *nats.Conn) (*answers, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.prefix == "" {
		prefix := nc.NewInbox() + "."
		sub, err := nc.Subscribe(prefix+"*", b.take)
		if err != nil {
			return nil, "", err
		}
		sub.SetPendingLimits(-1, -1) // the requests limit how much is in flight
		b.prefix, b.waiting = prefix, map[string]*answers{}
	}
	b.count++
	subject, a := b.prefix+strconv.FormatUint(b.count, 36), &answers{more: make(chan struct{}, 1), over: b.over}
	b.waiting[subject] = a
	return a, subject, nil
}

// close forgets a request. Answers that arrive later are dropped.
func (b *inbox) close(subject string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting, subject)
}

// end makes all requests fail. It may be called more than once.
func (b *inbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.over:
	default:
		close(b.over)
	}
}

// take receives an answer. It must not block, because answers to other requests wait behind this
// one.
func (b *inbox) take(m *nats.Msg) {
	b.mu.Lock()
	a := b.waiting[m.Subject]
	b.mu.Unlock()
	if a == nil {
		return
	}
	a.mu.Lock()
	a.queue = append(a.queue, m)
	a.mu.Unlock()
	select {
	case a.more <- struct{}{}:
	default:
	}
}

// next waits for the next answer.
func (a *answers) next(ctx context.Context) (*nats.Msg, error) {
	for {
		a.mu.Lock()
		if len(a.queue) > 0 {
			m := a.queue[0]
			a.queue = a.queue[1:]
			a.mu.Unlock()
			return m, nil
		}
		a.mu.Unlock()
		select {
		case <-a.more:
		case <-a.over:
			return nil, nats.ErrConnectionClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
