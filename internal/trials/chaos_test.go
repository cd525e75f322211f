package trials

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/internal/contract"
)

// Three nodes run under load. One is killed, one is frozen, and all are killed at once. A writer that gets no answer retries on another node, and subscribers
// reconnect to any node. At the end every node has the acknowledged batches, once and in order, and
// every subscriber saw exactly these batches. All responses in between are consistent with a single
// copy of the stream (D3, D4, D5, D25).
func TestChaos(t *testing.T) {
	if *race {
		t.Log("the servers run under the race detector, so the measured pauses are too long")
	}
	r, _ := seeded(t)
	c := newCluster(t, "--gap-grace", "5m", "--rate-live", "0", "--demo=false")
	c.start(0, 1, 2)
	k := &chaos{t: t, c: c, r: r, quit: make(chan struct{}), over: make(chan struct{}), pauses: map[string]time.Duration{}, client: chaosClient, rest: 20 * time.Millisecond}
	k.begin(3, 3)
	h := newWitness(k, 4)
	k.kill(r.IntN(3))
	k.freeze(r.IntN(3), 2*time.Second)
	k.killAll()
	k.settle()
	h.check()
	k.verify()
}

// chaos is the load on a cluster and the responses that its clients got.
type chaos struct {
	t                    *testing.T
	c                    *cluster
	client               *http.Client
	r                    *rand.Rand
	rest                 time.Duration // pause of a writer between two batches, because the test shares its machine with others
	quit                 chan struct{} // the test closes it to stop the writers
	over                 chan struct{} // closed when all writers have stopped
	writers, subscribers sync.WaitGroup

	streams []*track
	pauses  map[string]time.Duration // longest time without an acknowledgement on any stream, by kind of fault
}

// track records what clients know about one stream.
type track struct {
	id    string
	keyed bool // the server chooses sequences, and publishes have idempotency keys
	stays bool // all writers use one node, and subscriber i uses node i
	home  int  // index of the node that the writers use, if stays is true

	mu    sync.Mutex
	next  int64
	acked map[int64]string // acknowledged bodies, by sequence
	last  time.Time        // time of the last acknowledgement
	worst time.Duration    // longest time between two acknowledgements
	seen  [][]sighting     // batches seen by each subscriber
}

// begin creates streams, each with writers and a subscriber.
func (k *chaos) begin(streams, writers int) {
	k.t.Helper()
	for i := range streams {
		k.add(&track{keyed: i%2 == 1, home: i, seen: make([][]sighting, 1)}, writers)
	}
}

// add creates a stream with writers, and a subscriber for each element of s.seen.
func (k *chaos) add(s *track, writers int) *track {
	k.t.Helper()
	s.id, s.next, s.acked, s.last = contract.NewID(), 1, map[int64]string{}, time.Now()
	if out, status, b := k.on(s.home).ask(context.Background(), "POST", "/v1/streams", `{"name":"chaos","id":"`+s.id+`"}`, nil); out != done {
		k.t.Fatalf("create: %d %s", status, b)
	}
	k.streams = append(k.streams, s)
	for w := range writers {
		own := rand.New(rand.NewPCG(k.r.Uint64(), uint64(w)))
		k.writers.Go(func() { k.write(s, own) })
	}
	for i := range s.seen {
		own := rand.New(rand.NewPCG(k.r.Uint64(), uint64(9+i)))
		k.subscribers.Go(func() { k.subscribe(s, i, own) })
	}
	return s
}

// on returns a caller that sends requests to a node.
func (k *chaos) on(node int) *caller { return &caller{k.c.node(node).url, k.client} }

var chaosClient = contract.HTTP1()

// answered is how long a client waits for a response before it tries another node. A node gives up
// waiting for NATS earlier than this.
const answered = 15 * time.Second

// write publishes batches until the channel k.quit is closed. It repeats each batch until a node
// acknowledges it.
func (k *chaos) write(s *track, r *rand.Rand) {
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-k.quit:
			return
		case <-rest.C:
		}
		rest.Reset(k.rest)
		s.mu.Lock()
		n := s.next
		s.next++
		s.mu.Unlock()
		k.publish(s, n, text(r, fmt.Sprint(n)), r)
	}
}

// publish sends a batch to one node after the other until one acknowledges it.
func (k *chaos) publish(s *track, n int64, body string, r *rand.Rand) {
	path, key := contract.SeqPath(s.id, n), ""
	if s.keyed {
		path, key = contract.NextPath(s.id), fmt.Sprint("key-", n)
	}
	for node := r.IntN(3); ; node++ {
		if s.stays {
			node = s.home
		}
		ctx, cancel := context.WithTimeout(context.Background(), answered)
		out, status, ack := k.on(node).publish(ctx, path, key, body)
		cancel()
		if out == unknown {
			k.breathe()
			continue
		}
		if out == refused || !s.keyed && ack.Seq != n {
			k.t.Errorf("publish %d to %s: status %d, sequence %d", n, s.id, status, ack.Seq)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if other, twice := s.acked[ack.Seq]; twice {
			k.t.Errorf("sequence %d of %s was acknowledged for two batches: %s and %s", ack.Seq, s.id, other, body)
		}
		s.acked[ack.Seq] = body
		s.worst = max(s.worst, time.Since(s.last))
		s.last = time.Now()
		return
	}
}

// breathe waits for a moment before a retry.
func (k *chaos) breathe() {
	t := time.NewTimer(20 * time.Millisecond)
	defer t.Stop()
	<-t.C
}

// subscribe reads a stream through all faults, on one node after the other, until it has every
// batch.
func (k *chaos) subscribe(s *track, i int, r *rand.Rand) {
	last := int64(-1)
	for node := r.IntN(3); !k.complete(s, i); node++ {
		if s.stays {
			node = i
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		go func() {
			select {
			case <-k.over:
				if k.complete(s, i) {
					cancel() // there are no more batches
				}
			case <-ctx.Done():
			}
		}()
		err := k.on(node).follow(ctx, s.id, last, func(b sighting) bool {
			s.mu.Lock()
			s.seen[i] = append(s.seen[i], b)
			s.mu.Unlock()
			last = b.seq
			return !k.complete(s, i)
		})
		cancel()
		if err != nil {
			k.t.Errorf("subscriber of %s: %v", s.id, err)
			return
		}
		k.breathe()
	}
}

// complete reports whether the writers have stopped and a subscriber has every acknowledged batch.
func (k *chaos) complete(s *track, i int) bool {
	select {
	case <-k.over:
	default:
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen[i]) >= len(s.acked)
}

// flows waits until every stream accepts batches.
func (k *chaos) flows() {
	k.t.Helper()
	k.flow(k.t, k.streams...)
}

// flow waits until each of these streams has accepted ten more batches.
func (k *chaos) flow(t *testing.T, streams ...*track) {
	t.Helper()
	for _, s := range streams {
		count := func() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.acked) }
		before := count()
		contract.Eventually(t, time.Minute, "stream "+s.id+" accepts batches", func() bool { return count() >= before+10 })
	}
}

// during waits until every stream accepts batches. Then it calls the function do, which causes a
// fault, and records the longest time for which a stream accepted no batch because of the fault.
func (k *chaos) during(what string, do func()) {
	k.t.Helper()
	k.flows()
	for _, s := range k.streams {
		s.mu.Lock()
		s.worst = 0
		s.mu.Unlock()
	}
	do()
	k.flows()
	for _, s := range k.streams {
		s.mu.Lock()
		k.pauses[what] = max(k.pauses[what], s.worst)
		s.mu.Unlock()
	}
}

// kill kills a node and starts it again.
func (k *chaos) kill(node int) {
	k.t.Helper()
	k.during("kill", func() { k.killOne(node) })
	k.c.start(node)
}

func (k *chaos) killOne(node int) {
	k.t.Helper()
	k.c.node(node).kill()
	at := time.Now()
	k.flows()
	k.t.Logf("killed node %d: all streams accept batches after %v", node, time.Since(at).Round(time.Millisecond))
}

// freeze suspends a node with SIGSTOP for some time. The node does not notice that time has passed.
func (k *chaos) freeze(node int, last time.Duration) {
	k.t.Helper()
	k.during("freeze", func() { k.freezeOne(node, last) })
}

func (k *chaos) freezeOne(node int, last time.Duration) {
	p := k.c.node(node).cmd.Process
	p.Signal(syscall.SIGSTOP)
	thaw := time.NewTimer(last)
	<-thaw.C
	p.Signal(syscall.SIGCONT)
	at := time.Now()
	k.flows()
	k.t.Logf("froze node %d for %v: all streams accept batches after %v", node, last, time.Since(at).Round(time.Millisecond))
}

// killAll kills all nodes at once.
func (k *chaos) killAll() {
	k.t.Helper()
	k.flows()
	var all sync.WaitGroup
	for i := range k.c.nodes {
		all.Go(k.c.node(i).kill)
	}
	all.Wait()
	now := time.Now()
	k.c.start(0, 1, 2)
	k.t.Logf("killed all nodes: they are ready after %v", time.Since(now).Round(time.Millisecond))
	k.flows()
	k.t.Logf("all streams accept batches after %v", time.Since(now).Round(time.Millisecond))
}

// settle stops the writers and waits until every subscriber has every batch.
func (k *chaos) settle() {
	k.t.Helper()
	k.flows()
	close(k.quit)
	done := make(chan struct{})
	go func() {
		k.writers.Wait()
		close(k.over)
		k.subscribers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		k.t.Fatal("writers and subscribers did not finish within two minutes")
	}
}

// verify compares the batches of every node and every subscriber with the acknowledged ones.
func (k *chaos) verify() {
	k.t.Helper()
	batches := 0
	for _, s := range k.streams {
		batches += len(s.acked)
		for node := range k.c.nodes {
			log, _ := k.on(node).readAllOf(k.t, s.id)
			k.same(fmt.Sprint("node ", node), s, log)
		}
		for _, seen := range s.seen {
			k.same("subscriber", s, seen)
		}
	}
	k.t.Logf("%d batches acknowledged on %d streams; longest times without an acknowledgement: %v", batches, len(k.streams), k.pauses)
}

// same compares a log with the acknowledged batches.
func (k *chaos) same(who string, s *track, log []sighting) {
	k.t.Helper()
	if !slices.IsSortedFunc(log, func(a, b sighting) int { return int(a.seq - b.seq) }) {
		k.t.Errorf("%s has the batches of %s out of order", who, s.id)
	}
	if len(log) != len(s.acked) {
		k.t.Errorf("%s has %d batches of %s, %d were acknowledged", who, len(log), s.id, len(s.acked))
	}
	for _, b := range log {
		if want, ok := s.acked[b.seq]; !ok || strings.TrimSpace(want) != b.events {
			k.t.Errorf("%s: batch %d of %s holds %s, but %s was acknowledged", who, b.seq, s.id, contract.Shorten(b.events), contract.Shorten(want))
		}
	}
}
