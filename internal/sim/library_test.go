package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"weir"
	goclient "weir/client"
)

// library is a real Go client, and a stream to which only this Go client publishes. The stream holds
// numbered events and evicts nothing, so each event is there once and in order.
type library struct {
	w       *world
	id      weir.StreamID
	api     *goclient.Client
	net     *transport
	follows map[*library]*following // the streams to which this Go client subscribes
	tried   bool                    // the outcome of an attempt to create the stream is unknown
	made    bool                    // the stream exists
	full    int                     // number of events in a batch if the publishers repeat earlier runs; 0: each publisher starts above the cursor
	added   int                     // number of events so far
	unsure  bool                    // the outcome of a publish is or was unknown, so it could still take effect at any time
	pending *keyed                  // the call that is repeated until its outcome is known

	promised []span // events that must be stored, although their acknowledgement was not reported

	mu     sync.Mutex
	stored map[weir.Seq]span // the batches that are known
	at     map[int]weir.Seq  // the batch of each event, by the number of the first event in the batch
	acked  weir.Seq          // the highest sequence that was acknowledged
}

// span is a range of events: those of one batch.
type span struct{ from, to int }

// keyed is a call of PublishOnce whose outcome is unknown.
type keyed struct {
	key   string
	event int
}

// event is the event with a given number.
type event struct {
	N   int    `json:"n"`
	Pad string `json:"pad"`
}

func newEvent(n int) event {
	size := n * 37 % 50
	if n%11 == 0 {
		size = 3000
	}
	return event{n, strings.Repeat("x", size)}
}

// library returns the library of a client.
func (m *model) library(c *client) *library {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.libraries[c.n]
	if l == nil {
		l = newLibrary(c)
		if c.rng.IntN(3) == 0 {
			l.full = 1 + c.rng.IntN(5)
		}
		m.libraries[c.n] = l
	}
	return l
}

func newLibrary(c *client) *library {
	l := &library{
		w: c.w, id: weir.StreamID(fmt.Sprintf("library%015d", c.n)), net: &transport{c: c},
		follows: map[*library]*following{}, stored: map[weir.Seq]span{}, at: map[int]weir.Seq{},
	}
	o := goclient.Options{URL: "http://sim", Key: secret, Transport: l.net, Retry: time.Hour}
	if c.n < watcher {
		o.Timeout, o.Retry = time.Duration(1+c.rng.IntN(30))*time.Second, time.Duration(1+c.rng.IntN(30))*time.Second
	}
	var err error
	if l.api, err = goclient.New(o); err != nil {
		panic(err)
	}
	return l
}

// useLibrary publishes with a Go client to its own stream, or subscribes to such a stream.
func useLibrary(c *client) {
	l := c.w.model.library(c)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l.net.onEnd(cancel)
	switch r := c.rng.IntN(8); {
	case !l.made:
		l.create(ctx)
	case l.pending != nil:
		l.publishOnce(ctx)
	case r < 4:
		l.publish(ctx, c)
	case r == 4 && l.full == 0:
		l.added++
		l.pending = &keyed{fmt.Sprintf("%s-%d", l.id, l.added), l.added}
		l.publishOnce(ctx)
	case r == 5:
		l.check(ctx, l)
	default:
		l.follow(ctx, c, c.w.model.someLibrary(c))
	}
}

// someLibrary returns a Go client whose stream exists, perhaps that of the client itself.
func (m *model) someLibrary(c *client) *library {
	m.mu.Lock()
	defer m.mu.Unlock()
	var made []*library
	for n := range m.w.config.clients {
		if l := m.libraries[n]; l != nil && l.isMade() {
			made = append(made, l)
		}
	}
	return made[c.rng.IntN(len(made))]
}

func (l *library) isMade() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.made
}

// excuses reports whether a call may fail like this: the service gave no useful response in time.
func excuses(err error) bool {
	switch goclient.CodeOf(err) {
	case weir.StorageUnavailable, weir.Overloaded, weir.InternalError:
		return true
	}
	_, dial := errors.AsType[*net.OpError](err)
	return dial || errors.Is(err, errLostConnection) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		strings.Contains(err.Error(), "made no progress") || strings.Contains(err.Error(), "was silent")
}

func (l *library) create(ctx context.Context) {
	_, err := l.api.CreateStream(ctx, goclient.NewStream{Name: "library", ID: l.id, RetentionSeconds: weir.MaxRetention})
	switch {
	case err == nil, l.tried && goclient.CodeOf(err) == weir.StreamNameTaken:
		l.mu.Lock()
		l.made = true
		l.mu.Unlock()
	case excuses(err):
		l.tried = true
	default:
		l.w.violation("%s: create: %v", l.id, err)
	}
}

// publishOnce publishes the pending event, until the service has acknowledged it.
func (l *library) publishOnce(ctx context.Context) {
	ack, err := l.api.PublishOnce(ctx, l.id, l.pending.key, goclient.Events(newEvent(l.pending.event)))
	switch {
	case err == nil:
		l.learn(ack.Seq, span{l.pending.event, l.pending.event + 1}, true)
		l.pending = nil
	case excuses(err):
		l.unsure = true
	default:
		l.w.violation("%s: PublishOnce: %v", l.id, err)
	}
}

// learn records which events are stored under a sequence, and checks that this is allowed.
func (l *library) learn(seq weir.Seq, events span, acked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, ok := l.stored[seq]; ok && old != events {
		l.w.violation("%s: batch %d holds the events %v and %v", l.id, seq, old, events)
	}
	if at, ok := l.at[events.from]; ok && at != seq && events.from < events.to {
		l.w.violation("%s: event %d is stored in batch %d and in batch %d", l.id, events.from, at, seq)
	}
	if at := (span{(int(seq)-1)*l.full + 1, int(seq)*l.full + 1}); l.full > 0 && events != at {
		l.w.violation("%s: batch %d holds the events %v, want %v", l.id, seq, events, at)
	}
	l.stored[seq], l.at[events.from] = events, seq
	if acked {
		l.acked = max(l.acked, seq)
	}
}

// read learns from a batch that was read.
func (l *library) read(b goclient.Batch) {
	events, err := goclient.Decode[event](b)
	if b.Gap != nil || b.Reset != nil || err != nil || len(events) == 0 {
		l.w.violation("%s: got batch %+v: %v", l.id, b, err)
		return
	}
	for i, e := range events {
		if e != newEvent(events[0].N+i) {
			l.w.violation("%s: event %d of batch %d is %.40q, the first one is %d", l.id, i, b.Seq, b.Events[i], events[0].N)
			return
		}
	}
	l.learn(b.Seq, span{events[0].N, events[0].N + len(events)}, false)
}

// run is one run of a program that publishes events.
type run struct {
	l         *library
	publisher *goclient.Publisher

	mu       sync.Mutex
	from, to int      // the events that were added
	acked    int      // the events below this one were acknowledged
	last     weir.Seq // the last batch that was acknowledged
}

// stored checks an acknowledgement. The batches are acknowledged in order and without gaps.
func (r *run) stored(a weir.Ack) {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := span{r.acked, r.acked + int(a.Accepted)}
	if a.StreamID != r.l.id || r.last > 0 && a.Seq != r.last+1 || events.to > r.to {
		r.l.w.violation("%s: batch %d of %d events was acknowledged after batch %d; the events %d to %d were added and those below %d acknowledged", r.l.id, a.Seq, a.Accepted, r.last, r.from, r.to, r.acked)
	}
	r.last, r.acked = a.Seq, events.to
	r.l.learn(a.Seq, events, true)
}

// publish opens a publisher, adds events and closes it. If the publishers of this Go client repeat
// earlier runs, the first events may have been stored before.
func (l *library) publish(ctx context.Context, c *client) {
	r := &run{l: l, from: l.added + 1}
	o := goclient.PublisherOptions{InFlight: 1 + c.rng.IntN(6), BatchEvents: 1 + c.rng.IntN(5), OnAck: r.stored}
	if l.full > 0 {
		l.mu.Lock()
		start := 1 + weir.Seq(c.rng.Uint64N(uint64(l.acked)+1))
		if c.rng.IntN(2) == 0 {
			start = l.acked + 1
		}
		l.mu.Unlock()
		r.from = (int(start)-1)*l.full + 1
		o.StartAt, o.BatchEvents, o.Linger = &start, l.full, -1
	}
	if c.rng.IntN(6) == 0 {
		o.GiveUp = time.Duration(1+c.rng.IntN(20)) * time.Second
	}
	r.to, r.acked = r.from, r.from
	var err error
	if r.publisher, err = l.api.Publisher(ctx, l.id, o); err != nil {
		if !excuses(err) {
			l.w.violation("%s: open a publisher: %v", l.id, err)
		}
		return
	}
	if err = r.add(ctx, c); err == nil && c.rng.IntN(4) == 0 {
		within, cancel := context.WithTimeout(ctx, time.Duration(c.rng.IntN(1<<c.rng.IntN(13)))*time.Millisecond)
		defer cancel()
		ctx = within
	}
	if closing := r.publisher.Close(ctx); err == nil {
		err = closing
	}
	r.ends(err)
}

// add adds events. Every few events it waits until all are stored.
func (r *run) add(ctx context.Context, c *client) error {
	for range 1 + c.rng.IntN(12) {
		if c.rng.IntN(3) == 0 && c.step("adds events") != nil {
			c.w.note("client %d ends its program", c.n)
			return context.Canceled
		}
		for range max(1, r.l.full) {
			n := r.grow(1)
			r.l.added = max(r.l.added, n)
			if err := r.publisher.Add(ctx, newEvent(n)); err != nil {
				r.grow(-1)
				return err
			}
		}
		if c.rng.IntN(6) == 0 {
			if err := r.publisher.Flush(ctx); err != nil {
				return err
			}
			if r.mu.Lock(); r.acked != r.to {
				r.l.w.violation("%s: Flush returned, but the events %d to %d were not acknowledged", r.l.id, r.acked, r.to-1)
			}
			r.mu.Unlock()
		}
	}
	return nil
}

// grow changes the number of events. It returns the number of the last one.
func (r *run) grow(by int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to += by
	return r.to - 1
}

// ends checks how a publisher has ended. Events that are neither reported nor unacknowledged were
// acknowledged after an earlier batch that was not.
func (r *run) ends(err error) {
	l := r.l
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.acked
	for _, u := range r.publisher.Unacknowledged() {
		for _, text := range u.Events {
			var e event
			if json.Unmarshal(text, &e) != nil || e.N < next || e.N >= r.to || err == nil {
				l.w.violation("%s: a publisher ended with %v and the unacknowledged event %.40q; the events %d to %d were added, and those below %d acknowledged", l.id, err, text, r.from, r.to-1, r.acked)
			}
			l.promised = append(l.promised, span{next, e.N})
			next = e.N + 1
		}
	}
	l.promised = append(l.promised, span{next, r.to})
	switch {
	case err == nil && r.acked != r.to:
		l.w.violation("%s: a publisher was closed without an error; the events %d to %d were added, and those below %d acknowledged", l.id, r.from, r.to-1, r.acked)
	case err == nil:
	case excuses(err), errors.Is(err, goclient.ErrGivenUp), errors.Is(err, goclient.ErrTaken) && l.unsure && l.full == 0:
		l.unsure = true
	default:
		l.w.violation("%s: a publisher failed: %v", l.id, err)
	}
}

// following is how far a Go client has read a stream.
type following struct {
	begun bool
	from  goclient.Position
	next  weir.Seq // the next batch
}

// follow subscribes to a stream and reads some of its batches.
func (l *library) follow(ctx context.Context, c *client, of *library) {
	f := l.follows[of]
	if f == nil || c.rng.IntN(5) == 0 {
		f = &following{next: 1}
		l.follows[of] = f
	}
	o := goclient.SubscriberOptions{From: goclient.Oldest, Silence: time.Duration(16+c.rng.IntN(30)) * time.Second}
	if f.begun {
		o.From = goclient.Resume(f.from)
	}
	if c.rng.IntN(3) == 0 {
		cursor, err := l.api.Cursor(ctx, of.id)
		if err != nil && !excuses(err) {
			l.w.violation("%s: cursor: %v", of.id, err)
		} else if err == nil {
			o.Until = &cursor.Cursor
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+c.rng.IntN(20_000))*time.Millisecond)
	defer cancel()
	s := l.api.Subscriber(of.id, o)
	left, ended := 1+c.rng.IntN(30), true
	for b, err := range s.Batches(ctx) {
		if err != nil {
			if ended = false; !excuses(err) && !errors.Is(err, goclient.ErrGivenUp) {
				l.w.violation("%s: a subscriber failed: %v", of.id, err)
			}
			break
		}
		if b.Seq != f.next {
			l.w.violation("%s: a subscriber got batch %d, want %d", of.id, b.Seq, f.next)
		}
		of.read(b)
		f.next++
		if left--; left == 0 {
			ended = false
			break
		}
	}
	if ended && (o.Until == nil || f.next <= *o.Until || s.End() != "") {
		l.w.violation("%s: a subscriber that wants batch %d ended without an error; the last batch was to be %v", of.id, f.next, o.Until)
	}
	f.from, f.begun = s.Position()
}

// check reads the whole stream of another Go client in pages. It holds all acknowledged batches, and
// no sequence is left out.
func (l *library) check(ctx context.Context, of *library) {
	of.mu.Lock()
	acked, next := of.acked, weir.Seq(1)
	of.mu.Unlock()
	for b, err := range l.api.Batches(ctx, of.id, goclient.PageOptions{Limit: 1 + int(acked)%7}) {
		if err != nil && excuses(err) && l.net.c.n < watcher {
			return
		}
		if err != nil || b.Seq != next {
			l.w.violation("%s: a page has batch %d, want %d: %v", of.id, b.Seq, next, err)
			return
		}
		of.read(b)
		next++
	}
	if next <= acked {
		l.w.violation("%s: batch %d was acknowledged, but the last one is %d", of.id, acked, next-1)
	}
}

// checkLibraries checks the streams of all Go clients.
func (m *model) checkLibraries(c *client) {
	for n := range m.w.config.clients {
		if l := m.libraries[n]; l != nil && l.made && m.w.faulty == "" {
			newLibrary(c).check(context.Background(), l)
			l.isWhole()
		}
	}
}

// isWhole checks that all promised events are stored and, if no outcome was ever unknown, that all
// events are stored in order.
func (l *library) isWhole() {
	l.mu.Lock()
	defer l.mu.Unlock()
	batches := slices.SortedFunc(maps.Values(l.stored), func(a, b span) int { return a.from - b.from })
	for _, p := range l.promised {
		for n := p.from; n < p.to; n++ {
			if !slices.ContainsFunc(batches, func(b span) bool { return b.from <= n && n < b.to }) {
				l.w.violation("%s: event %d was acknowledged, but is not stored", l.id, n)
			}
		}
	}
	if l.unsure || l.pending != nil {
		return
	}
	next := 1
	for seq := weir.Seq(1); int(seq) <= len(batches); seq++ {
		if events := l.stored[seq]; events.from != next {
			l.w.violation("%s: batch %d begins with event %d, want %d", l.id, seq, events.from, next)
		} else {
			next = events.to
		}
	}
	if next != l.added+1 {
		l.w.violation("%s: %d events were published, but the last one that is stored is %d", l.id, l.added, next-1)
	}
}
