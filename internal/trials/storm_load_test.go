package trials

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	core "weir"
	"weir/client"
	"weir/internal/contract"
)

// writerPause is the pause of a writer between two batches, so that a run of half an hour fits on a
// small disk and can be checked.
const writerPause = 30 * time.Millisecond

// The ways in which the writers of a stream publish.
const (
	keyed    = "keyed"    // the server chooses sequences, and publishes have idempotency keys
	numbered = "numbered" // several writers choose sequences and do not wait for each other, so that gaps open and close
	byClient = "client"   // the publisher of the Go client
)

// flow is a stream of TestStorm with its writers and subscribers.
type flow struct {
	*book
	id   string
	kind string
	next atomic.Int64
}

// load is the load of TestStorm.
type load struct {
	k                    *chaos
	quit                 chan struct{} // closed to stop the writers
	over                 chan struct{} // closed when the writers have stopped and nodes evict nothing more
	writers, subscribers sync.WaitGroup
	flows                []*flow
}

// newLoad creates streams with short retention and starts their writers and subscribers.
func newLoad(k *chaos, kinds ...string) *load {
	k.t.Helper()
	l := &load{k: k, quit: make(chan struct{}), over: make(chan struct{})}
	for _, kind := range kinds {
		f := &flow{book: newBook(2), id: contract.NewID(), kind: kind}
		body := fmt.Sprintf(`{"name":"storm","id":%q,"retention_seconds":%d}`, f.id, int(retention.Seconds()))
		if out, status, b := k.on(0).ask(context.Background(), "POST", "/v1/streams", body, nil); out != done {
			k.t.Fatalf("create: %d %s", status, b)
		}
		l.flows = append(l.flows, f)
		if kind == byClient {
			l.writers.Go(func() { l.writeByClient(f, l.random(1)) })
		} else {
			for w := range 3 {
				own := l.random(uint64(w))
				l.writers.Go(func() { l.write(f, own) })
			}
		}
		for i := range f.seen {
			own := l.random(uint64(10 + i))
			l.subscribers.Go(func() { l.subscribe(f, i, own) })
		}
		own := l.random(20)
		l.writers.Go(func() { l.probe(f, own) })
	}
	return l
}

func (l *load) random(n uint64) *rand.Rand { return rand.New(rand.NewPCG(l.k.r.Uint64(), n)) }

// pause waits and reports whether the load goes on.
func (l *load) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-l.quit:
		return false
	case <-t.C:
		return true
	}
}

// write publishes batches, and repeats each of them until its fate is known.
func (l *load) write(f *flow, r *rand.Rand) {
	for l.pause(writerPause) {
		n := f.next.Add(1)
		name := fmt.Sprint(f.kind, "-", n)
		body, path, key, seq := text(r, name), contract.NextPath(f.id), name, int64(0)
		if f.kind == numbered {
			path, key, seq = contract.SeqPath(f.id, n), "", n
		}
		p := f.send(name, body, seq)
		h := http.Header{}
		if key != "" {
			h.Set("Idempotency-Key", key)
		}
		for node := r.IntN(3); p.fate == pending; node++ {
			ctx, cancel := context.WithTimeout(context.Background(), answered)
			out, status, b := l.k.on(node).ask(ctx, "POST", path, `{"events":`+body+`}`, h)
			cancel()
			l.note(f, p, out, status, b)
		}
	}
}

// note notes the response to a publish.
func (l *load) note(f *flow, p *published, out outcome, status int, b []byte) {
	var ack contract.Ack
	switch {
	case out == unknown || out == done && json.Unmarshal(b, &ack) != nil:
		l.k.breathe()
	case out == done:
		f.ack(p, ack.Seq)
	case status == 409 && f.kind == numbered && strings.Contains(string(b), core.InClosedGap):
		f.settle(p, closed)
	case status == 409 && f.kind == numbered && strings.Contains(string(b), "evicted"):
		f.settle(p, perhaps)
	case status == 422 && f.kind == numbered: // a lower number of another writer has been in flight for long
		l.k.breathe()
	default:
		l.k.t.Errorf("publish %s to %s: %d %s", p.name, f.id, status, b)
		f.settle(p, perhaps)
	}
}

// tour is a transport that sends requests to one node until a request fails there, and then to the
// next. A load balancer with health checks would do the same.
type tour struct {
	k    *chaos
	node atomic.Int64
}

func (t *tour) RoundTrip(r *http.Request) (*http.Response, error) {
	node := t.node.Load()
	to, err := url.Parse(t.k.c.node(int(node)).url)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = to.Host, to.Host
	resp, err := t.k.client.Transport.RoundTrip(r)
	if err != nil || resp.StatusCode >= 500 {
		t.node.CompareAndSwap(node, node+1)
	}
	return resp, err
}

// newClient returns a Go client that uses all nodes.
func (l *load) newClient() (*client.Client, error) {
	return client.New(client.Options{URL: "http://cluster.test", Key: liveKey, HTTP1: true, Transport: &tour{k: l.k}, Timeout: answered})
}

// writeByClient publishes with the Go client, one event per batch. When the publisher reports that a
// batch may have been evicted before its acknowledgement arrived, writeByClient opens another one.
func (l *load) writeByClient(f *flow, r *rand.Rand) {
	c, err := l.newClient()
	if err != nil {
		l.k.t.Error(err)
		return
	}
	defer c.Close()
	for l.pause(0) {
		var mu sync.Mutex
		var sent []*published // without an acknowledgement, in order
		pub, err := c.Publisher(context.Background(), core.StreamID(f.id), client.PublisherOptions{BatchEvents: 1, GiveUp: 5 * time.Minute, OnAck: func(a core.Ack) {
			mu.Lock()
			p := sent[0]
			sent = sent[1:]
			mu.Unlock()
			f.ack(p, int64(a.Seq))
		}})
		if err != nil {
			l.k.t.Errorf("open a publisher: %v", err)
			return
		}
		for pub.Err() == nil && l.pause(writerPause/3) {
			name := fmt.Sprint(f.kind, "-", f.next.Add(1))
			event := fmt.Sprintf("%q", name+strings.Repeat("x", r.IntN(1500)))
			mu.Lock()
			sent = append(sent, f.send(name, "["+event+"]", 0))
			mu.Unlock()
			if err := pub.AddEvent(context.Background(), json.RawMessage(event)); err != nil {
				break
			}
		}
		if err := pub.Close(context.Background()); err != nil && !errors.Is(err, client.ErrEvicted) {
			l.k.t.Errorf("publisher: %v", err)
		}
		rest := pub.Unacknowledged()
		for i, p := range sent {
			if i < len(rest) && rest[i].Sent {
				p.seq = int64(rest[i].Seq)
				f.mu.Lock()
				f.bySeq[p.seq] = p
				f.mu.Unlock()
			}
			f.settle(p, perhaps)
		}
	}
}

// subscribe reads a stream through all faults, on one node after the other. Subscriber 1 is away for
// longer than the retention now and then, so that batches are evicted meanwhile.
func (l *load) subscribe(f *flow, i int, r *rand.Rand) {
	last := int64(0)
	note := func(a arrival) {
		a.at = time.Now()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.seen[i] = append(f.seen[i], a)
		last = max(a.seq, a.to)
	}
	for node := r.IntN(3); !l.complete(f, last); node++ {
		limit := time.Minute
		if i == 1 {
			limit = 10 * time.Second
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		if !l.isOver() {
			go func() {
				select {
				case <-l.over:
					cancel() // the next connection reads up to the end
				case <-ctx.Done():
				}
			}()
		}
		err := l.k.on(node).followGaps(ctx, liveKey, f.id, last, func(b sighting) bool {
			ts, err := time.Parse(time.RFC3339, b.ts)
			if err != nil {
				l.k.t.Error(err)
			}
			note(arrival{seq: b.seq, ts: ts, sum: sumOf(b.events)})
			return !l.complete(f, last)
		}, func(from, to int64) { note(arrival{seq: from, to: to}) })
		cancel()
		if err != nil {
			l.k.t.Errorf("subscriber of %s: %v", f.id, err)
			return
		}
		if l.k.breathe(); i == 1 && r.IntN(3) == 0 {
			l.nap(retention + time.Duration(r.IntN(40))*time.Second)
		}
	}
}

// nap waits, but not beyond the end of the load.
func (l *load) nap(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-l.over:
	case <-t.C:
	}
}

func (l *load) isOver() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

// complete reports whether the writers have stopped and a subscriber has reached the last batch.
func (l *load) complete(f *flow, last int64) bool {
	if !l.isOver() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return last >= f.top
}

// probe reads single batches on random nodes: some that must be there, some that must be gone.
func (l *load) probe(f *flow, r *rand.Rand) {
	for l.pause(5 * time.Millisecond) {
		f.mu.Lock()
		var p *published
		if n := len(f.all); n > 0 {
			if p = f.all[n-1-r.IntN(min(n, 6000))]; p.fate != acked {
				p = nil
			}
		}
		f.mu.Unlock()
		if p == nil {
			continue
		}
		begun, node := time.Now(), r.IntN(3)
		ctx, cancel := context.WithTimeout(context.Background(), answered)
		out, status, b := l.k.on(node).ask(ctx, "GET", fmt.Sprint("/v1/streams/", f.id, "/batches/", p.seq), "", nil)
		cancel()
		var got contract.Batch
		switch {
		case out == done:
			if err := json.Unmarshal(b, &got); err != nil {
				l.k.t.Error(err)
			}
			f.read(fmt.Sprint("node ", node), p, begun, true, sumOf(string(got.Events)))
		case out == refused && status == 404:
			f.read(fmt.Sprint("node ", node), p, begun, false, 0)
		case out == refused:
			l.k.t.Errorf("read: %d %s", status, b)
		}
	}
}

// accept waits until every stream has accepted ten more batches.
func (l *load) accept() {
	l.k.t.Helper()
	for _, f := range l.flows {
		count := func() int { f.mu.Lock(); defer f.mu.Unlock(); return f.acks }
		before := count()
		contract.Eventually(l.k.t, healWithin, f.kind+" stream "+f.id+" accepts batches", func() bool { return count() >= before+10 })
	}
}

// finish stops the writers and the eviction, and waits until every subscriber is at the end. Then it
// applies the rules of the book.
func (l *load) finish() {
	t := l.k.t
	t.Helper()
	l.accept()
	close(l.quit)
	await(t, "the writers stop", &l.writers)
	var kept []time.Time
	for _, f := range l.flows {
		contract.Eventually(t, healWithin, "the retention changes", func() bool {
			out, _, _ := l.k.on(0).ask(context.Background(), "PATCH", "/v1/streams/"+f.id, `{"retention_seconds":86400}`, nil)
			return out == done
		})
		kept = append(kept, time.Now())
	}
	close(l.over)
	await(t, "the subscribers reach the end", &l.subscribers)
	for i, f := range l.flows {
		var logs [][]sighting
		for node := range l.k.c.nodes {
			log, _ := l.k.on(node).readAllOf(t, f.id)
			logs = append(logs, log)
		}
		f.checkLogs(logs, kept[i])
		for _, fault := range f.check(f.kind != numbered) {
			t.Errorf("%s stream %s: %s", f.kind, f.id, fault)
		}
		t.Log(f.summary())
	}
}

// summary describes a stream at the end.
func (f *flow) summary() string {
	fates, gaps := map[fate]int{}, 0
	for _, p := range f.all {
		fates[p.fate]++
	}
	for _, seen := range f.seen {
		for _, a := range seen {
			if a.to > 0 {
				gaps++
			}
		}
	}
	return fmt.Sprintf("%s stream: %d batches acknowledged, %d in closed gaps, %d perhaps evicted before they were acknowledged; subscribers got %d gap events",
		f.kind, fates[acked], fates[closed], fates[perhaps], gaps)
}
