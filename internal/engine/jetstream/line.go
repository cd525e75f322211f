package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine"
)

// line follows one JetStream stream in its order, and tells how far it has come. It has a consumer of its own: those of nats.go
// take up to half a minute to notice that a server died, and as long again to try another.
type line struct {
	e       *Engine
	stream  string
	fence   string // a subject of the stream that holds nothing
	headers bool   // without payloads
	take    func(m *nats.Msg, seq uint64)
	ctx     context.Context // ends with the line
	cancel  context.CancelFunc
	work    sync.WaitGroup

	mu      sync.Mutex
	over    bool
	seen    uint64        // the newest message that was taken
	changed chan struct{} // closed when seen rises; nil while nobody waits

	asking, next *question
}

// question is a catchUp on its way. Whoever comes after it was sent waits for the next one.
type question struct {
	done chan struct{}
	err  error
}

const (
	// beat is how often a server tells that it has nothing to tell: when two of them do not come, it is asked anew.
	beat = 500 * time.Millisecond
	// fenceLife is how long a fence stays, and fenceWait how long it is waited for before another is stored: it may be gone
	// before a consumer that was lost is replaced.
	fenceLife = "3s"
	fenceWait = 2 * time.Second
)

// begin hands the messages behind a place to take, in order, one at a time.
func (l *line) begin(e *Engine, from uint64) {
	l.e, l.seen = e, from
	l.ctx, l.cancel = context.WithCancel(e.ctx)
	l.work.Go(func() {
		for l.ctx.Err() == nil {
			err := l.follow(l.ctx)
			if l.ctx.Err() == nil {
				e.opts.Logger.Debug("follow anew", "stream", l.stream, "error", err)
				pause(l.ctx, retry/4)
			}
		}
	})
}

func (l *line) end() {
	if l.cancel == nil {
		return
	}
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.cancel()
	l.work.Wait()
}

// follow makes a consumer and takes what it brings, until something is missing.
func (l *line) follow(ctx context.Context) error {
	inbox := l.e.nc.NewInbox()
	sub, err := l.e.nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer sub.Unsubscribe()
	sub.SetPendingLimits(-1, -1) // the server is told how much may be on its way
	name, err := l.consumer(ctx, inbox)
	if err != nil {
		return err
	}
	// A server forgets it anyway when nobody listens any more: that it is told so is not waited for.
	defer l.e.nc.Publish("$JS.API.CONSUMER.DELETE."+l.stream+"."+name, nil)
	for delivered := uint64(0); ; {
		try, cancel := context.WithTimeout(ctx, 5*beat/2)
		m, err := sub.NextMsgWithContext(try)
		cancel()
		if err != nil {
			return err
		}
		if m.Header.Get("Status") != "" {
			if err := l.beaten(m, delivered); err != nil {
				return err
			}
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if delivered++; meta.Sequence.Consumer != delivered {
			return errors.New("messages are missing")
		}
		if m.Subject != l.fence {
			l.take(m, meta.Sequence.Stream)
		}
		l.reached(meta.Sequence.Stream)
	}
}

// consumer asks for one that sends everything behind what was seen.
func (l *line) consumer(ctx context.Context, inbox string) (name string, err error) {
	l.mu.Lock()
	from := l.seen + 1
	l.mu.Unlock()
	ask, err := json.Marshal(map[string]any{"stream_name": l.stream, "config": map[string]any{
		"deliver_subject": inbox, "deliver_policy": "by_start_sequence", "opt_start_seq": from, "ack_policy": "none", "replay_policy": "instant",
		"headers_only": l.headers, "idle_heartbeat": beat, "flow_control": true, "mem_storage": true, "num_replicas": 1, "inactive_threshold": 10 * beat,
	}})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	answer, err := l.e.nc.RequestWithContext(ctx, "$JS.API.CONSUMER.CREATE."+l.stream, ask)
	if err != nil {
		return "", err
	}
	var got struct {
		Error *jetstream.APIError `json:"error"`
		Name  string              `json:"name"`
	}
	if err := json.Unmarshal(answer.Data, &got); err != nil {
		return "", err
	}
	if got.Error != nil {
		return "", got.Error
	}
	return got.Name, nil
}

// beaten answers what a server says between messages: that it is there, or that it waits for us.
func (l *line) beaten(m *nats.Msg, delivered uint64) error {
	if m.Header.Get("Status") != "100" {
		return fmt.Errorf("the consumer is over: %s %s", m.Header.Get("Status"), m.Header.Get("Description"))
	}
	if m.Reply != "" {
		return m.Respond(nil)
	}
	if stalled := m.Header.Get("Nats-Consumer-Stalled"); stalled != "" {
		if err := l.e.nc.Publish(stalled, nil); err != nil {
			return err
		}
	}
	if last, err := strconv.ParseUint(m.Header.Get("Nats-Last-Consumer"), 10, 64); err == nil && last > delivered {
		return errors.New("messages are missing")
	}
	return nil
}

// reached says how far it has come.
func (l *line) reached(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = max(l.seen, seq)
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// reach waits until a message was taken.
func (l *line) reach(ctx context.Context, seq uint64) error {
	for {
		l.mu.Lock()
		if l.seen >= seq {
			l.mu.Unlock()
			return nil
		}
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-l.ctx.Done():
			return engine.ErrClosed
		}
	}
}

// catchUp returns when everything was taken that was acknowledged to anybody before the call. Nobody can be asked for that: a
// server that leads no more may not know it yet. So a message is stored, and waited for: all that was acknowledged is before it.
func (l *line) catchUp(ctx context.Context) error {
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return engine.ErrClosed
	}
	q := l.next
	if q == nil {
		q = &question{done: make(chan struct{})}
		if l.asking == nil {
			l.asking = q
			l.work.Go(func() { l.ask(q) })
		} else {
			l.next = q
		}
	}
	l.mu.Unlock()
	select {
	case <-q.done:
		return q.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ask answers questions until there is none.
func (l *line) ask(q *question) {
	for q != nil {
		q.err = l.pass()
		l.mu.Lock()
		l.asking, l.next = l.next, nil
		next := l.asking
		l.mu.Unlock()
		close(q.done)
		q = next
	}
}

// pass stores fences until one comes by.
func (l *line) pass() error {
	ctx, cancel := context.WithTimeout(l.ctx, l.e.opts.Patience)
	defer cancel()
	var err error
	for again := true; again; {
		var at uint64
		at, err = trying(ctx, l.e, func(ctx context.Context) (uint64, error) {
			m := &nats.Msg{Subject: l.fence, Header: nats.Header{jetstream.MsgTTLHeader: {fenceLife}}}
			return l.e.publish(ctx, []*nats.Msg{m})
		})
		if err == nil {
			wait, enough := context.WithTimeout(ctx, fenceWait)
			err = l.reach(wait, at)
			enough()
		}
		again = errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
	}
	switch {
	case l.ctx.Err() != nil:
		err = engine.ErrClosed
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: how far %s is was not heard within %v", engine.ErrUnavailable, l.stream, l.e.opts.Patience)
	}
	return err
}
