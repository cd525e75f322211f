package jetstream

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/jetstream/embedded"
	"weir/internal/natstest"
)

var ctx = context.Background()

// follower is a judge (engine.Judge, which applies the rules of a stream). It numbers batches and
// follows other nodes.
type follower struct {
	mu      sync.Mutex
	next    weir.Seq // next sequence to admit
	seen    weir.Seq // next sequence after the durable entries
	low     weir.Seq // the lowest sequence that a trim keeps; Note returns it
	rewound int
	dropped bool
}

func (f *follower) Note() (weir.Seq, []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.low, fmt.Append(nil, "below ", f.low)
}

func (f *follower) Restore(_ []byte, entries iter.Seq[*engine.Header]) error {
	for h := range entries {
		f.next = h.Seq + 1
	}
	f.seen = f.next
	return nil
}

func (f *follower) Admit(e *engine.Entry) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.Seq = f.next
	f.next++
	return true
}

func (f *follower) Commit(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen += weir.Seq(n)
}

func (f *follower) Dropped() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped = true
}

func (f *follower) Follow(h engine.Header) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen, f.next = h.Seq+1, h.Seq+1
}

func (f *follower) Trimmed(weir.Seq) {}
func (f *follower) Behind()          {}

func (f *follower) Rewind() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = f.seen
	f.rewound++
}

func text(s string) *engine.Entry {
	return &engine.Entry{Header: engine.Header{Kind: engine.Batch, Count: 1, Size: uint32(len(s))}, Payload: []byte(s)}
}

// attach opens a log and calls Attend, so that the log receives the entries of other nodes. Closing
// the engine closes the log.
func attach(t *testing.T, e *Engine, id engine.LogID, j engine.Judge) *log {
	t.Helper()
	opened, err := e.Open(ctx, id, j)
	if err != nil {
		t.Fatal(err)
	}
	l := opened.(*log)
	l.Attend()
	if err := l.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	return l
}

func payloads(t *testing.T, l engine.Log) []string {
	t.Helper()
	var all []string
	if err := l.Scan(ctx, 0, 0, func(e *engine.Entry) bool { all = append(all, string(e.Payload)); return true }); err != nil {
		t.Fatal(err)
	}
	return all
}

// seize stops the worker, which is the goroutine of the log. The test then acts in place of the
// worker, until the test calls start.
func seize(l *log) {
	l.settle()
	l.working = true
	l.mu.Unlock()
}

// deafen makes an engine stop receiving messages of other nodes.
func deafen(e *Engine) {
	e.docs.Stop()
	for _, s := range e.shards() {
		if s.Joined() {
			<-s.Stop()
		}
	}
}

// awaitRecords waits until the line has delivered the next n records of the log.
func awaitRecords(l *log, n int) {
	for {
		l.mu.Lock()
		k := len(l.inbox)
		done := k >= n && l.inbox[k-1].Position == l.position+uint64(n)
		l.mu.Unlock()
		if done {
			return
		}
		<-l.heard
	}
}

// If the answer to a write is lost, the node sends the write again and finds that the first attempt
// was stored. This works even if the line has not delivered all records of the first attempt.
func TestWriteWithoutAnswer(t *testing.T) {
	t.Parallel() // the test mostly waits
	s := server(t, quickDir(t))
	defer s.Stop()
	e := open(t, s, "store")
	defer e.Close()
	doc, err := e.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	l := attach(t, e, doc.Created, &follower{next: 0})
	want := []string{}
	// The cases are: one entry, one message with three entries, and an atomic batch.
	for round, c := range []struct{ n, messages, size int }{{1, 1, 1}, {3, 1, 1}, {3, 3, 128<<10 - 10}} {
		seize(l)
		n := c.n
		var requests []*request
		for i := range n {
			want = append(want, fmt.Sprint(round, i, strings.Repeat("x", c.size)))
			requests = append(requests, &request{entry: text(want[len(want)-1])})
		}
		g := l.writer.decide(requests)
		if len(g.Messages) != c.messages {
			t.Fatalf("%d entries take %d messages, want %d", n, len(g.Messages), c.messages)
		}
		js, err := l.writer.send(g)
		if err != nil {
			t.Fatal(err)
		}
		awaitRecords(l, n)
		l.mu.Lock()
		l.inbox = l.inbox[:len(l.inbox)-n+1] // as if the line had delivered only the first of the n records
		l.mu.Unlock()
		others, err := l.writer.store(g)
		if err != nil || others != nil || g.Records[n-1].At != js {
			t.Fatalf("second attempt: others %v, error %v, stored at %d; the first attempt was stored at %d", others, err, g.Records[n-1].At, js)
		}
		l.writer.commit(g, time.Now())
		l.start(time.Now())
	}
	if err := l.Append(ctx, text("after")); err != nil {
		t.Fatal(err)
	}
	if got := payloads(t, l); !slices.Equal(got, append(want, "after")) {
		t.Errorf("the log holds %.100q, want %.100q", got, want)
	}
}

// A node that missed the deletion of a document cannot append to the document's log. This holds for
// an empty log too.
func TestDeletedElsewhere(t *testing.T) {
	t.Parallel() // the test mostly waits
	s := server(t, quickDir(t))
	defer s.Stop()
	deaf, other := open(t, s, "store"), open(t, s, "store")
	defer deaf.Close()
	defer other.Close()
	logs := map[string]*log{}
	judges := map[string]*follower{}
	for _, key := range []string{"empty", "full"} {
		doc, err := deaf.Create(ctx, key, nil)
		if err != nil {
			t.Fatal(err)
		}
		judges[key] = &follower{}
		logs[key] = attach(t, deaf, doc.Created, judges[key])
	}
	if err := logs["full"].Append(ctx, text("one")); err != nil {
		t.Fatal(err)
	}
	deafen(deaf)
	for key, l := range logs {
		if err := other.Delete(ctx, key, 0); err != nil {
			t.Fatal(err)
		}
		if err := l.Append(ctx, text("too late")); !errors.Is(err, engine.ErrDropped) {
			t.Errorf("append to the log of %s, whose document another node deleted: %v, want ErrDropped", key, err)
		}
		<-l.gone
		if !judges[key].dropped {
			t.Errorf("Dropped was not called for the judge of %s", key)
		}
	}
}

// slow is a judge whose Restore waits until the test lets it continue.
type slow struct {
	follower
	in, out chan struct{}
}

func (s *slow) Restore(note []byte, entries iter.Seq[*engine.Header]) error {
	close(s.in)
	<-s.out
	return s.follower.Restore(note, entries)
}

// If Close is called while a log is being opened, it waits until Open has finished, and then closes
// the log.
func TestCloseWhileOpening(t *testing.T) {
	s := server(t, quickDir(t))
	defer s.Stop()
	e := open(t, s, "store")
	doc, err := e.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	judge := &slow{in: make(chan struct{}), out: make(chan struct{})}
	opened := make(chan error)
	go func() {
		_, err := e.Open(ctx, doc.Created, judge)
		opened <- err
	}()
	<-judge.in
	l := e.opened(doc.Created)
	closed := make(chan error)
	go func() { closed <- e.Close() }()
	for waits := false; !waits; {
		l.mu.Lock()
		waits = l.idle != nil
		l.mu.Unlock()
		runtime.Gosched()
	}
	close(judge.out)
	if err := <-opened; err != nil {
		t.Errorf("open: %v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("close: %v", err)
	}
	if err := l.Append(ctx, text("late")); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("append after close: %v, want ErrClosed", err)
	}
}

// Acknowledged data still exists after the server was stopped and started again on the same
// directory.
func TestServerRestart(t *testing.T) {
	dir := t.TempDir()
	s := server(t, dir)
	e := open(t, s, "store")
	doc, err := e.Create(ctx, "a", []byte("value"))
	if err != nil {
		t.Fatal(err)
	}
	l := attach(t, e, doc.Created, &follower{})
	for i := range 20 {
		if err := l.Append(ctx, text(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	l.judge.(*follower).low = 5
	if err := l.Trim(ctx, 5, nil); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	s = server(t, dir)
	defer s.Stop()
	e = open(t, s, "store")
	defer e.Close()
	got, err := e.Get(ctx, "a")
	if err != nil || string(got.Value) != "value" || got.Created != doc.Created {
		t.Fatalf("the document is %+v, %v; want the one that was created", got, err)
	}
	if all := payloads(t, attach(t, e, doc.Created, &follower{})); len(all) != 15 || all[0] != "5" {
		t.Errorf("the log holds %q, want 5 to 19", all)
	}
}

// startThree starts a cluster of three servers, and an engine on each.
func startThree(t *testing.T, within context.Context, o Options) ([]*embedded.Server, []*Engine) {
	t.Helper()
	return startNodes(t, within, o, natstest.Addresses(t, 3), 0)
}

// startNodes starts servers of a cluster, from a number on, and an engine on each.
func startNodes(t *testing.T, within context.Context, o Options, addresses []string, first int) ([]*embedded.Server, []*Engine) {
	t.Helper()
	var servers []*embedded.Server
	for i := first; i < len(addresses); i++ {
		s, err := embedded.Start(embedded.Options{
			Dir: quickDir(t), Name: fmt.Sprint("node-", i), Cluster: "test", Listen: addresses[i], Peers: addresses,
			Secret: []byte("0123456789abcdef0123456789abcdef"),
		})
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, s)
		t.Cleanup(s.Stop)
	}
	var engines []*Engine
	for _, s := range servers {
		if err := s.Ready(within); err != nil {
			t.Fatal(err)
		}
		o.Mover = s
		e, err := Open(within, connect(t, s), o)
		if err != nil {
			t.Fatal(err)
		}
		engines = append(engines, e)
		t.Cleanup(func() { e.Close() })
	}
	return servers, engines
}

// Three nodes with the same secret share one store. When one of them stops, the others continue.
func TestCluster(t *testing.T) {
	within, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	servers, engines := startThree(t, within, Options{Replicas: 3, Shards: 2, Patience: time.Minute})
	doc, err := engines[0].Create(within, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	var logs []*log
	for _, e := range engines {
		logs = append(logs, attach(t, e, doc.Created, &follower{}))
	}
	var want []string
	put := func(n, node int) {
		t.Helper()
		for i := range n {
			say := fmt.Sprint(len(want), " by ", node, " ", i)
			if err := logs[node].Append(within, text(say)); err != nil {
				t.Fatalf("append on node %d: %v", node, err)
			}
			want = append(want, say)
		}
	}
	for node := range 3 {
		put(5, node)
	}
	engines[2].Close()
	servers[2].Stop()
	put(5, 0)
	put(5, 1)
	if got := payloads(t, logs[1]); !slices.Equal(got, want) {
		t.Errorf("node 1 holds %q, want %q", got, want)
	}
}

// If a server takes longer to answer than the node waits, the node repeats the write although the
// first attempt was stored. The write is still stored only once.
func TestSlowServers(t *testing.T) {
	within, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	_, engines := startThree(t, within, Options{Replicas: 3, Shards: 2, Patience: time.Minute})
	doc, err := engines[0].Create(within, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	l := attach(t, engines[0], doc.Created, &follower{})
	engines[0].opts.attempt, engines[0].opts.hearing = 300*time.Microsecond, 50*time.Microsecond
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 10 {
				if err := l.Append(within, text(fmt.Sprint(w, " ", i))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	got := payloads(t, l)
	slices.Sort(got)
	if n := len(slices.Compact(got)); n != 40 || len(got) != 40 {
		t.Errorf("the log holds %d entries, %d of them different; want 40", len(got), n)
	}
}

// A leader without a quorum accepts a write that it cannot store. It refuses the repeated write,
// because the first is still in flight. Such a refusal looks as if another node had stored a record
// first, but no such record can be read. The node must not report this as damage: callers get
// ErrUnavailable.
func TestNoQuorum(t *testing.T) {
	t.Parallel() // the test mostly waits
	within, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	servers, engines := startThree(t, within, Options{Replicas: 3, Shards: 1, Patience: 2 * time.Second, attempt: 200 * time.Millisecond, hearing: 10 * time.Millisecond})
	doc, err := engines[0].Create(within, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := engines[0].client.Stream(within, engines[0].shards()[0].Stream)
	if err != nil {
		t.Fatal(err)
	}
	leader := 0
	for i := range servers {
		if info.Cluster.Leader == fmt.Sprint("node-", i) {
			leader = i
		}
	}
	l := attach(t, engines[leader], doc.Created, &follower{})
	if err := l.Append(within, text("one")); err != nil {
		t.Fatal(err)
	}
	for i, s := range servers {
		if i != leader {
			engines[i].Close()
			s.Kill()
		}
	}
	if err := l.Append(within, text("two")); !errors.Is(err, engine.ErrUnavailable) {
		t.Errorf("append without a quorum: %v, want ErrUnavailable", err)
	}
	if n := engines[leader].Counts().Resends; n == 0 {
		t.Error("no repeated write was counted")
	}
	if err := l.CatchUp(within); !errors.Is(err, engine.ErrUnavailable) {
		t.Errorf("catch up without a quorum: %v, want ErrUnavailable", err)
	}
}
