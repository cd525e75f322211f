package sim

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine/jetstream/wire"
)

// feeder is a push consumer: it sends the messages of a stream to a node. Most of its fields are
// guarded by servers.mu.
type feeder struct {
	k       *link
	l       *ledger
	server  int // the server on which the consumer runs
	headers bool
	next    uint64 // sequence of the next message to send
	count   uint64 // number of messages that were sent
	busy    bool   // messages are on their way
	dead    bool   // the server has lost the consumer
	quit    chan struct{}
	once    sync.Once

	mu    sync.Mutex
	queue []wire.Delivery // what has arrived
	some  chan struct{}   // has an element while the queue may have deliveries
}

// beatEvery is the interval at which an idle consumer sends a heartbeat. It is not half a second,
// because the second heartbeat would come at the same time as the timeout of the receiver.
const beatEvery = 499_337 * time.Microsecond

// Follow implements wire.Servers.
func (k *link) Follow(ctx context.Context, stream string, from uint64, headersOnly bool) (*wire.Feed, error) {
	return request(ctx, k, "follows "+stream, func() (*wire.Feed, error) {
		l := k.s.streams[stream]
		if l == nil {
			return nil, &js.APIError{Code: 404, ErrorCode: js.JSErrCodeStreamNotFound, Description: "stream not found"}
		}
		if err := k.most(); err != nil {
			return nil, err
		}
		r, server := k.s.copyFor(l, k)
		f := &feeder{k: k, l: l, server: server, headers: headersOnly, next: max(from, 1), quit: make(chan struct{}), some: make(chan struct{}, 1)}
		feed := &wire.Feed{Near: server == k.server, Next: f.receive, Close: f.end}
		feed.Pending = uint64(len(r.letters) - r.search(f.next))
		l.feeds = slices.DeleteFunc(l.feeds, (*feeder).ended)
		l.feeds = append(l.feeds, f)
		f.send()
		return feed, nil
	})
}

func (f *feeder) end() { f.once.Do(func() { close(f.quit) }) }

// ended reports whether the consumer sends nothing any more. The caller holds servers.mu.
func (f *feeder) ended() bool { return f.dead || f.isClosed() }

// isClosed reports whether the node has closed the feed or its connection.
func (f *feeder) isClosed() bool {
	select {
	case <-f.quit:
		return true
	case <-f.k.gone:
		return true
	default:
		return false
	}
}

// feed makes the consumers of a stream send what they have not sent yet. The caller holds
// servers.mu.
func (s *servers) feed(l *ledger) {
	for _, f := range l.feeds {
		f.send()
	}
}

// reaches reports whether the consumer's messages reach the node. The caller holds servers.mu.
func (f *feeder) reaches() bool {
	return !f.dead && !f.k.fails() && slices.Contains(f.k.s.reachable(f.server), f.k.server)
}

// send sends messages to the node, unless others are still on their way. The caller holds
// servers.mu.
func (f *feeder) send() {
	if f.busy || f.ended() || f.l.last < f.next || f.k.s.cut[f.server] || f.server == f.l.deposed {
		return
	}
	f.busy = true
	f.k.s.work.Go(func() {
		name, fate := f.k.s.wait(f.k.name + " receives " + f.l.config.Name)
		f.k.s.mu.Lock()
		defer f.k.s.mu.Unlock()
		f.k.s.chance(name)
		f.busy = false
		if f.ended() {
			return
		}
		r := f.k.s.copyOn(f.l, f.server)
		most := 1 + f.k.s.pick(20)
		lost := fate != nil || !f.reaches()
		for _, m := range r.letters[r.search(f.next):] {
			if most == 0 {
				break
			}
			f.count++
			f.next = m.seq + 1
			if most--; !lost {
				f.put(wire.Delivery{Stored: m.stored(!f.headers), Count: f.count})
			}
		}
		if most > 0 {
			f.next = max(f.next, r.last+1) // the other messages were deleted
		}
		f.send()
	})
}

func (f *feeder) put(d wire.Delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = append(f.queue, d)
	select {
	case f.some <- struct{}{}:
	default:
	}
}

func (f *feeder) take() (d wire.Delivery, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		return d, false
	}
	d = f.queue[0]
	f.queue = f.queue[1:]
	return d, true
}

// beat returns a heartbeat, if the consumer is idle and its messages reach the node.
func (f *feeder) beat() (d wire.Delivery, ok bool) {
	f.k.s.mu.Lock()
	defer f.k.s.mu.Unlock()
	if f.busy || !f.reaches() {
		return d, false
	}
	return wire.Delivery{Count: f.count, Beat: true, Passed: f.next - 1}, true
}

// receive waits for the next delivery.
func (f *feeder) receive(limit time.Duration) (wire.Delivery, error) {
	late := time.NewTimer(limit)
	defer late.Stop()
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		if f.isClosed() {
			return wire.Delivery{}, nats.ErrBadSubscription
		}
		if d, ok := f.take(); ok {
			return d, nil
		}
		select {
		case <-f.some:
		case <-f.quit:
		case <-f.k.gone:
		case <-beat.C:
			if d, ok := f.beat(); ok {
				return d, nil
			}
		case <-late.C:
			return wire.Delivery{}, nats.ErrTimeout
		}
	}
}
