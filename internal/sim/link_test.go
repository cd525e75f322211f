package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"weir/internal/engine/jetstream/wire"
)

// link is the connection of a node to the simulated servers.
type link struct {
	s      *servers
	name   string // of the process
	server int    // the server to which the node is connected
	gone   chan struct{}

	mu     sync.Mutex
	closed bool
	down   bool // the node cannot reach any server
	hears  []*ear
}

var _ wire.Servers = (*link)(nil)

// connect returns a new connection to a server.
func (s *servers) connect(name string, server int) *link {
	k := &link{s: s, name: name, server: server, gone: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links = append(s.links, k)
	return k
}

// fails reports whether messages on the link get lost.
func (k *link) fails() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.closed || k.down
}

// request sends a request to the servers and waits for the answer. The function run executes the
// request on a server, with servers.mu held. If run returns errLost, no server answers.
func request[T any](ctx context.Context, k *link, what string, run func() (T, error)) (T, error) {
	var none T
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	if !k.isOpen() {
		return none, nats.ErrConnectionClosed
	}
	k.s.work.Go(func() {
		name, fate := k.s.pass(k.name + " " + what)
		if errors.Is(fate, errLost) || k.isOpen() && k.fails() {
			return
		}
		k.s.mu.Lock()
		k.s.chance(name)
		value, err := run()
		k.s.mu.Unlock()
		if fate == nil && !errors.Is(err, errLost) && !k.fails() {
			answered <- answer{value, err}
		}
	})
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-k.gone:
		return none, nats.ErrConnectionClosed
	}
}

func (k *link) isOpen() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.closed
}

// Store implements wire.Servers. A leader that accepts a write may store it a while later.
func (k *link) Store(ctx context.Context, msgs []*nats.Msg) (uint64, error) {
	var list []*nats.Msg
	for _, m := range msgs {
		list = append(list, &nats.Msg{Subject: m.Subject, Header: clone(m.Header), Data: slices.Clone(m.Data)})
	}
	subject := list[0].Subject
	p, err := request(ctx, k, "writes "+subject, func() (*proposal, error) {
		l, stale, err := k.s.leads(k, k.s.streamOf(subject), k.s.pick(2) == 0)
		if err != nil {
			return nil, errLost
		}
		if stale {
			if err := l.refusal(l.copies[l.deposed], list[0]); err != nil {
				return nil, err
			}
			return nil, errLost
		}
		if err := l.refusal(l.lead(), list[0]); err != nil {
			return nil, err
		}
		p := &proposal{subject: subject, agreed: make(chan struct{})}
		for _, m := range list {
			p.letters = append(p.letters, &letter{subject: m.Subject, header: m.Header, data: m.Data, expires: lifetime(m.Header)})
		}
		l.proposals = append(l.proposals, p)
		if k.s.pick(4) > 0 || k.s.gate == nil {
			k.s.store(l, p)
			return p, nil
		}
		k.s.work.Go(func() { // the replicas agree a while later
			_, _ = k.s.wait("the servers agree on a write of " + k.name + " to " + subject)
			k.s.mu.Lock()
			defer k.s.mu.Unlock()
			k.s.store(l, p)
		})
		return p, nil
	})
	if err != nil {
		return 0, err
	}
	select {
	case <-p.agreed:
		return p.letters[len(p.letters)-1].seq, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-k.gone:
		return 0, nats.ErrConnectionClosed
	}
}

func clone(h nats.Header) nats.Header {
	return maps.Clone(h) // the values are never changed
}

func (m *letter) stored(payload bool) wire.Stored {
	got := wire.Stored{Seq: m.seq, Subject: m.subject, Header: clone(m.header)}
	if payload {
		got.Data = slices.Clone(m.data)
	}
	return got
}

var errNoMessage = &js.APIError{Code: 404, ErrorCode: js.JSErrCodeMessageNotFound, Description: "no message found"}

// Message implements wire.Servers.
func (k *link) Message(ctx context.Context, stream string, q wire.Query) (wire.Stored, error) {
	return request(ctx, k, "asks the leader of "+stream, func() (wire.Stored, error) {
		l, stale, err := k.s.leads(k, stream, k.s.pick(2) == 0)
		if err != nil {
			return wire.Stored{}, err
		}
		r := l.copies[max(l.deposed, 0)]
		if !stale {
			r = l.lead()
		}
		if q.LastFor != "" {
			if m := r.newest(q.LastFor); m != nil {
				return m.stored(true), nil
			}
		} else if i := r.search(q.Seq); i < len(r.letters) && r.letters[i].seq == q.Seq {
			return r.letters[i].stored(true), nil
		}
		return wire.Stored{}, errNoMessage
	})
}

// Read implements wire.Servers.
func (k *link) Read(ctx context.Context, stream string, q wire.Query) (all []wire.Stored, upTo uint64, err error) {
	ctx, cancel := k.s.within(ctx, time.Second)
	defer cancel()
	type answer struct {
		all  []wire.Stored
		upTo uint64
	}
	what := cmp.Or(q.LastFor, q.NextFor, strings.Join(q.Newest, " "), fmt.Sprint(stream, " at ", q.Seq))
	a, err := request(ctx, k, "reads "+what, func() (a answer, err error) {
		l := k.s.streams[stream]
		if l == nil {
			return a, errLost
		}
		r, _ := k.s.copyFor(l, k)
		switch {
		case q.Newest != nil:
			for _, subject := range q.Newest {
				if m := r.newest(subject); m != nil {
					a.all, a.upTo = append(a.all, m.stored(true)), r.last
				}
			}
			slices.SortFunc(a.all, func(a, b wire.Stored) int { return cmp.Compare(a.Seq, b.Seq) })
			a.all = slices.CompactFunc(a.all, func(a, b wire.Stored) bool { return a.Seq == b.Seq })
		case q.LastFor != "":
			if m := r.newest(q.LastFor); m != nil {
				a.all = append(a.all, m.stored(true))
			}
		default:
			bytes := 0
			for _, m := range r.letters[r.search(q.Seq):] {
				if q.NextFor == "" && m.seq > q.Seq || len(a.all) > 0 && (len(a.all) >= q.Batch || q.MaxBytes > 0 && bytes >= q.MaxBytes) {
					break
				}
				if q.NextFor == "" || q.NextFor == m.subject {
					a.all = append(a.all, m.stored(true))
					bytes += len(m.data)
				}
			}
		}
		return a, nil
	})
	return a.all, a.upTo, err
}

// Headers implements wire.Servers.
func (k *link) Headers(ctx context.Context, stream, subject string, from uint64, visit func(wire.Stored) error) error {
	ctx, cancel := k.s.within(ctx, 2*time.Second)
	defer cancel()
	all, err := request(ctx, k, "reads the headers of "+subject, func() (all []wire.Stored, err error) {
		l := k.s.streams[stream]
		if l == nil || len(k.s.reachable(k.server)) <= k.s.n/2 {
			return nil, errLost
		}
		r, _ := k.s.copyFor(l, k)
		for _, m := range r.letters[r.search(from):] {
			if m.subject == subject {
				all = append(all, m.stored(false))
			}
		}
		return all, nil
	})
	for _, m := range all {
		if err := visit(m); err != nil {
			return err
		}
	}
	return err
}

// Purge implements wire.Servers.
func (k *link) Purge(ctx context.Context, stream, subject string, below uint64) error {
	_, err := request(ctx, k, "purges "+subject, func() (bool, error) {
		l, stale, err := k.s.leads(k, stream, false)
		if err != nil || stale {
			return false, errLost
		}
		if n := len(l.proposals); n > 0 {
			k.s.store(l, l.proposals[n-1])
		}
		if below == 0 {
			below = l.last + 1
		}
		l.changes = append(l.changes, change{subject: subject, below: below})
		l.lead()
		return true, nil
	})
	return err
}

// Stream implements wire.Servers. It does not wait for the scheduler, because nodes call it
// often.
func (k *link) Stream(ctx context.Context, name string) (*js.StreamInfo, error) {
	return direct(ctx, k, func() (*js.StreamInfo, error) {
		l, stale, err := k.s.leads(k, name, false)
		if err != nil {
			return nil, err
		}
		if stale {
			return k.s.info(l, l.copies[l.deposed]), nil
		}
		return k.s.info(l, l.lead()), nil
	})
}

// direct is like request, but does not wait for the scheduler.
func direct[T any](ctx context.Context, k *link, run func() (T, error)) (T, error) {
	ctx, cancel := k.s.within(ctx, 5*time.Second)
	defer cancel()
	var none T
	if !k.isOpen() {
		return none, nats.ErrConnectionClosed
	}
	if !k.fails() {
		k.s.mu.Lock()
		value, err := run()
		k.s.mu.Unlock()
		if !errors.Is(err, errLost) {
			return value, err
		}
	}
	select {
	case <-ctx.Done():
		return none, ctx.Err()
	case <-k.gone:
		return none, nats.ErrConnectionClosed
	}
}

// most returns an error unless the node reaches a majority of the servers. The caller holds
// servers.mu.
func (k *link) most() error {
	if len(k.s.reachable(k.server)) <= k.s.n/2 {
		return errLost
	}
	return nil
}

// Create implements wire.Servers.
func (k *link) Create(ctx context.Context, c js.StreamConfig) (*js.StreamInfo, error) {
	return direct(ctx, k, func() (*js.StreamInfo, error) {
		if err := k.most(); err != nil {
			return nil, err
		}
		if l := k.s.streams[c.Name]; l != nil {
			if !maps.Equal(l.config.Metadata, c.Metadata) {
				return nil, js.ErrStreamNameAlreadyInUse
			}
			return k.s.info(l, l.copies[max(l.leader, 0)]), nil
		}
		c.Metadata = maps.Clone(c.Metadata)
		l := &ledger{config: c, created: time.Now(), leader: len(k.s.streams) % k.s.n, deposed: -1}
		if k.s.cut[l.leader] {
			l.leader = k.server
		}
		for range k.s.n {
			l.copies = append(l.copies, &replica{})
		}
		k.s.streams[c.Name] = l
		return k.s.info(l, l.copies[l.leader]), nil
	})
}

// Update implements wire.Servers.
func (k *link) Update(ctx context.Context, c js.StreamConfig) error {
	_, err := direct(ctx, k, func() (bool, error) {
		l := k.s.streams[c.Name]
		if l == nil {
			return false, js.ErrStreamNotFound
		}
		c.Metadata = maps.Clone(c.Metadata)
		l.config = c
		return true, k.most()
	})
	return err
}

// Subjects implements wire.Servers.
func (k *link) Subjects(ctx context.Context, stream, filter string) (map[string]uint64, error) {
	return direct(ctx, k, func() (map[string]uint64, error) {
		l, _, err := k.s.leads(k, stream, false)
		if err != nil {
			return nil, err
		}
		all := map[string]uint64{}
		for _, m := range l.copies[max(l.leader, 0)].letters {
			if matches(m.subject, filter) {
				all[m.subject]++
			}
		}
		return all, nil
	})
}

// Names implements wire.Servers.
func (k *link) Names(ctx context.Context, subject string) ([]string, error) {
	return direct(ctx, k, func() (all []string, err error) {
		for _, name := range slices.Sorted(maps.Keys(k.s.streams)) {
			if slices.ContainsFunc(k.s.streams[name].config.Subjects, func(s string) bool { return matches(s, subject) }) {
				all = append(all, name)
			}
		}
		return all, k.most()
	})
}

// Account implements wire.Servers.
func (k *link) Account(ctx context.Context) (*js.AccountInfo, error) {
	return direct(ctx, k, func() (*js.AccountInfo, error) { return &js.AccountInfo{}, k.most() })
}

// MaxPayload implements wire.Servers. Messages are small, so that many batches need several.
func (k *link) MaxPayload() int64 { return 20 << 10 }

func (k *link) Flush(time.Duration) error { return nil }
func (k *link) Connected() bool           { return !k.fails() }
func (k *link) Server() string            { return "" } // only pages for operators show it

// Close implements wire.Servers.
func (k *link) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return
	}
	k.closed = true
	close(k.gone)
	for _, e := range k.hears {
		e.stop()
	}
}

// ear is a subscription to messages that are not stored.
type ear struct {
	subject string
	take    func(*nats.Msg)
	mu      sync.Mutex
	queue   []*nats.Msg
	some    chan struct{} // has an element while the queue may have messages
	quit    chan struct{}
	once    sync.Once
}

func (e *ear) stop() { e.once.Do(func() { close(e.quit) }) }

// listen passes messages to the function take.
func (e *ear) listen() {
	for {
		select {
		case <-e.some:
		case <-e.quit:
		}
		select {
		case <-e.quit:
			return
		default:
		}
		e.mu.Lock()
		all := e.queue
		e.queue = nil
		e.mu.Unlock()
		for _, m := range all {
			e.take(m)
		}
	}
}

// Hear implements wire.Servers.
func (k *link) Hear(subject string, take func(*nats.Msg)) (stop func(), err error) {
	if !k.isOpen() {
		return nil, nats.ErrConnectionClosed
	}
	e := &ear{subject: subject, take: take, some: make(chan struct{}, 1), quit: make(chan struct{})}
	k.mu.Lock()
	k.hears = append(k.hears, e)
	k.mu.Unlock()
	k.s.work.Go(e.listen)
	return e.stop, nil
}

// Say implements wire.Servers.
func (k *link) Say(m *nats.Msg) error {
	if !k.isOpen() {
		return nats.ErrConnectionClosed
	}
	if k.fails() {
		return nil
	}
	k.s.mu.Lock()
	near := k.s.reachable(k.server)
	var others []*link
	for _, o := range k.s.links {
		if slices.Contains(near, o.server) {
			others = append(others, o)
		}
	}
	k.s.mu.Unlock()
	for _, o := range others {
		if !o.fails() {
			o.hear(m)
		}
	}
	return nil
}

func (k *link) hear(m *nats.Msg) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.hears {
		if e.subject == m.Subject {
			e.mu.Lock()
			e.queue = append(e.queue, &nats.Msg{Subject: m.Subject, Header: clone(m.Header), Data: slices.Clone(m.Data)})
			e.mu.Unlock()
			select {
			case e.some <- struct{}{}:
			default:
			}
		}
	}
}

func (k *link) String() string { return fmt.Sprint(k.name, " on ", serverName(k.server)) }
