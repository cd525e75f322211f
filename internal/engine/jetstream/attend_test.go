package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/jetstream/embedded"
	"weir/internal/engine/jetstream/wire"
)

// twoNodes returns two nodes that share a store. A node that follows a log receives the entries of
// other nodes at once. These nodes stop following a log only an hour after the last write of
// another node. The function simulateAlone simulates that this hour has passed.
func twoNodes(t *testing.T, o Options) (here, there *Engine) {
	t.Helper()
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	o.Name, o.Shards, o.rivalry = "store", 2, time.Hour
	return node(t, s, o), node(t, s, o)
}

func node(t *testing.T, s *embedded.Server, o Options) *Engine {
	t.Helper()
	o.Patience = cmp.Or(o.Patience, time.Minute) // the machine may be busy
	e, err := Open(ctx, connect(t, s), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// openUnattended opens a log without calling Attend, so the node does not follow the log.
func openUnattended(t *testing.T, e *Engine, id engine.LogID) (*log, *follower) {
	t.Helper()
	judge := &follower{}
	l, err := e.Open(ctx, id, judge)
	if err != nil {
		t.Fatal(err)
	}
	return l.(*log), judge
}

// pair opens one log on two nodes, without calling Attend.
func pair(t *testing.T) (here, there *log, judges [2]*follower) {
	t.Helper()
	a, b := twoNodes(t, Options{sure: time.Hour})
	doc, err := a.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	here, judges[0] = openUnattended(t, a, doc.Created)
	there, judges[1] = openUnattended(t, b, doc.Created)
	return here, there, judges
}

// simulateAlone simulates a long time without writes of other nodes and without reads of clients.
func simulateAlone(l *log) {
	l.mu.Lock()
	l.attendance.until = time.Time{}
	l.mu.Unlock()
	l.reviewFollowing(time.Now())
}

func put(t *testing.T, l *log, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if err := l.Append(ctx, text(s)); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitTrue waits until condition returns true.
func awaitTrue(t *testing.T, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); !condition(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("timed out waiting for the condition")
		}
	}
}

func (l *log) isFollowed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attendance.followed
}

// knows returns a function that reports whether f, the judge of a log, knows n entries. (The judge
// of a log decides which entries are stored.)
func (f *follower) knows(n int) func() bool {
	return func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.seen == weir.Seq(n)
	}
}

// After Attend, the engine reports the entries of other nodes to the judge at once and without
// CatchUp. It also reports entries that were appended before Attend. After Leave, Attend can be
// called again.
func TestAttend(t *testing.T) {
	here, there, judges := pair(t)
	put(t, here, "before")
	for round := range 3 {
		there.Attend()
		awaitTrue(t, there.isFollowed)
		put(t, here, fmt.Sprint("while ", round))
		awaitTrue(t, judges[1].knows(2+2*round))
		simulateAlone(there)
		if !there.isFollowed() {
			t.Fatal("the log is not followed between Attend and Leave")
		}
		there.Leave()
		simulateAlone(there)
		if there.isFollowed() || there.shard.Joined() {
			t.Fatal("the log is followed after Leave")
		}
		put(t, here, fmt.Sprint("after ", round))
	}
	if got := len(payloads(t, there)); got != 6 {
		t.Errorf("after Leave the node knows %d entries, want 6: all but the last one", got)
	}
	if err := there.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	if got, want := payloads(t, there), payloads(t, here); !slices.Equal(got, want) {
		t.Errorf("after CatchUp the log holds %q, want %q", got, want)
	}
	if there.isFollowed() {
		t.Error("CatchUp made the node follow the log")
	}
}

// heldFence holds the first message of a subject back until the test lets it go.
type heldFence struct {
	wire.Servers
	subject     atomic.Pointer[string]
	begun, free chan struct{}
}

func (h *heldFence) Store(ctx context.Context, msgs []*nats.Msg) (uint64, error) {
	if subject := h.subject.Load(); subject != nil && msgs[0].Subject == *subject && h.subject.CompareAndSwap(subject, nil) {
		close(h.begun)
		<-h.free
		ctx = context.WithoutCancel(ctx) // the test may have taken longer than one request may take
	}
	return h.Servers.Store(ctx, msgs)
}

// After CatchUp, the judge knows everything that was acknowledged before. This holds even if the
// node stops following the log while CatchUp runs. Another log of the same shard (a part of the
// store with its own message stream) is still followed. So the line (the subscription to the shard)
// reaches the fence, the empty message that CatchUp stores and waits for.
func TestCatchUpWhileUnfollowed(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	o := Options{Name: "store", Shards: 1, Patience: time.Minute, hearing: time.Minute, sure: time.Hour, rivalry: time.Hour}
	servers, err := wire.Connect(connect(t, s))
	if err != nil {
		t.Fatal(err)
	}
	held := &heldFence{Servers: servers, begun: make(chan struct{}), free: make(chan struct{})}
	a := node(t, s, o)
	b, err := OpenOn(ctx, held, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	var here, there [2]*log
	var judges [2]*follower
	for i := range here {
		doc, err := a.Create(ctx, fmt.Sprint(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		here[i], _ = openUnattended(t, a, doc.Created)
		there[i], judges[i] = openUnattended(t, b, doc.Created)
		there[i].Attend()
		awaitTrue(t, there[i].isFollowed)
	}
	sh := there[0].shard
	awaitTrue(t, sh.Live)
	held.subject.Store(&sh.Fence)
	caught := make(chan error, 1)
	go func() { caught <- there[0].CatchUp(ctx) }()
	<-held.begun
	there[0].Leave()
	simulateAlone(there[0])
	if there[0].isFollowed() {
		t.Fatal("the log is followed after Leave")
	}
	put(t, here[0], "unheard")
	close(held.free)
	if err := <-caught; err != nil {
		t.Fatal(err)
	}
	if !judges[0].knows(1)() {
		t.Error("CatchUp returned, but the judge does not know an entry that was acknowledged before")
	}
}

// After Leave on one log of a shard, the other logs of the shard are still followed.
func TestAttendTwo(t *testing.T) {
	a, b := twoNodes(t, Options{sure: time.Hour})
	var here, there [2]*log
	var judges [2]*follower
	for n, i := 0, 0; i < 2; n++ {
		doc, err := a.Create(ctx, fmt.Sprint(n), nil)
		if err != nil {
			t.Fatal(err)
		}
		if b.shard(doc.Created) != b.shards()[0] {
			continue
		}
		here[i], _ = openUnattended(t, a, doc.Created)
		there[i], judges[i] = openUnattended(t, b, doc.Created)
		there[i].Attend()
		awaitTrue(t, there[i].isFollowed)
		i++
	}
	there[0].Leave()
	simulateAlone(there[0])
	put(t, here[0], "unheard")
	put(t, here[1], "heard")
	awaitTrue(t, judges[1].knows(1))
	if there[0].isFollowed() || judges[0].knows(1)() {
		t.Error("the log is followed after Leave")
	}
}

// A log that only one node writes to is not followed. It is followed as soon as another node
// writes.
func TestSingleWriter(t *testing.T) {
	here, there, judges := pair(t)
	put(t, here, "a", "b")
	if here.isFollowed() {
		t.Error("the log is followed although no other node writes")
	}
	put(t, there, "c")
	awaitTrue(t, there.isFollowed)
	if judges[1].rewound != 1 {
		t.Errorf("Rewind was called %d times, want once, because the judge did not know the entries of the other node yet", judges[1].rewound)
	}
	put(t, here, "d")
	awaitTrue(t, here.isFollowed)
	for _, l := range []*log{here, there} {
		l.reviewFollowing(time.Now())
		if !l.isFollowed() {
			t.Error("the log is not followed although both nodes write")
		}
	}
	put(t, here, "e")
	simulateAlone(here)
	if here.isFollowed() {
		t.Error("the log is still followed although no other node writes")
	}
	put(t, there, "f")
	put(t, here, "g")
	if got, want := payloads(t, here), []string{"a", "b", "c", "d", "e", "f", "g"}; !slices.Equal(got, want) {
		t.Errorf("the log holds %q, want %q", got, want)
	}
}

// A node that does not follow a log misses what other nodes write to it. So after some time the
// node reads the log again.
func TestRefreshAfterSilence(t *testing.T) {
	a, b := twoNodes(t, Options{sure: time.Millisecond})
	doc, err := a.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	here, _ := openUnattended(t, a, doc.Created)
	there, judge := openUnattended(t, b, doc.Created)
	put(t, here, "a", "b")
	awaitTrue(t, judge.knows(2))
	if there.isFollowed() {
		t.Error("the log is followed, want it only read again")
	}
}

// A read returns no entry that another node has trimmed, even if the log was not followed before.
// After a read, the log is followed.
func TestReadTrimmed(t *testing.T) {
	here, there, judges := pair(t)
	put(t, here, "a", "b", "c")
	if err := there.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	judges[0].low = 2
	if err := here.Trim(ctx, 2, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := there.Read(ctx, 1); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("read a trimmed entry: %v, want ErrNotFound", err)
	}
	if e, err := there.Read(ctx, 2); err != nil || string(e.Payload) != "c" {
		t.Errorf("read %q, %v; want c", e.Payload, err)
	}
	awaitTrue(t, there.isFollowed)
}

// If other nodes wrote and purged records that this node has not read, CatchUp returns ErrBehind.
func TestRefreshTooFarBehind(t *testing.T) {
	here, there, judges := pair(t)
	put(t, here, "a", "b", "c")
	judges[0].low = 2
	if err := here.Trim(ctx, 2, nil); err != nil {
		t.Fatal(err)
	}
	here.mu.Lock()
	floor := here.index.bottom()
	here.mu.Unlock()
	here.purge(floor)
	if err := there.CatchUp(ctx); !errors.Is(err, engine.ErrBehind) {
		t.Errorf("catch up: %v, want ErrBehind", err)
	}
}

// Trimmed messages are purged even if the log was closed before.
func TestPurgeClosed(t *testing.T) {
	here, _, judges := pair(t)
	put(t, here, "a", "b", "c")
	judges[0].low = 2
	if err := here.Trim(ctx, 2, nil); err != nil {
		t.Fatal(err)
	}
	if err := here.Close(); err != nil {
		t.Fatal(err)
	}
	e := here.e
	e.mu.Lock()
	p, waits := e.later[here.id]
	p.at = time.Now().Add(-time.Second)
	e.later[here.id] = p
	e.mu.Unlock()
	if !waits {
		t.Fatal("no purge is scheduled")
	}
	awaitTrue(t, func() bool {
		found, err := here.shard.Records(ctx, here.subject, 1, 0)
		return err == nil && found[0].Seq == 2
	})
}

// Three nodes use two logs at the same time and in random ways: they append, read, call Attend and
// Leave, and stop following the logs. After CatchUp a node knows everything that was acknowledged
// before. In the end all nodes hold the same entries.
func TestAttendAtRandom(t *testing.T) {
	s := server(t, quickDir(t))
	t.Cleanup(s.Stop)
	o := Options{Name: "store", Shards: 1, sure: 5 * time.Millisecond, rivalry: 5 * time.Millisecond}
	var logs [3][2]*log
	var judges [3][2]*follower
	var ids [2]engine.LogID
	for n := range logs {
		e := node(t, s, o)
		for i := range ids {
			if n == 0 {
				doc, err := e.Create(ctx, fmt.Sprint(i), nil)
				if err != nil {
					t.Fatal(err)
				}
				ids[i] = doc.Created
			}
			logs[n][i], judges[n][i] = openUnattended(t, e, ids[i])
		}
	}
	var acked [2]atomic.Uint64 // lower bound of the number of acknowledged entries, by log
	var all sync.WaitGroup
	for n := range logs {
		for i := range ids {
			for w := range 2 {
				r := rand.New(rand.NewPCG(uint64(n), uint64(2*i+w)))
				all.Go(func() {
					useAtRandom(t, logs[n][i], judges[n][i], &acked[i], r)
				})
			}
		}
	}
	all.Wait()
	for i := range ids {
		var want []string
		for n := range logs {
			if err := logs[n][i].CatchUp(ctx); err != nil {
				t.Fatal(err)
			}
			got := payloads(t, logs[n][i])
			if n == 0 {
				want = got
			}
			if !slices.Equal(got, want) || uint64(len(got)) != acked[i].Load() {
				t.Errorf("node %d has %d entries of log %d, the first node has %d, and %d were acknowledged", n, len(got), i, len(want), acked[i].Load())
			}
		}
	}
}

// useAtRandom uses a log in random ways.
func useAtRandom(t *testing.T, l *log, judge *follower, acked *atomic.Uint64, r *rand.Rand) {
	attends := 0
	for range 150 {
		switch r.IntN(8) {
		case 0, 1:
			if err := l.Append(ctx, text(fmt.Sprint(r.Uint64()))); err != nil {
				t.Errorf("append: %v", err)
				return
			}
			acked.Add(1)
		case 2, 3:
			before := acked.Load()
			if err := l.CatchUp(ctx); err != nil {
				t.Errorf("catch up: %v", err)
				return
			}
			judge.mu.Lock()
			seen := uint64(judge.seen)
			judge.mu.Unlock()
			if seen < before {
				t.Errorf("after CatchUp the judge knows %d entries, but %d were acknowledged before", seen, before)
			}
		case 4:
			l.Attend()
			attends++
		case 5:
			if attends > 0 {
				l.Leave()
				attends--
			}
		case 6:
			simulateAlone(l)
		case 7:
			l.Read(ctx, weir.Seq(r.Uint64N(1+acked.Load())))
		}
	}
	for ; attends > 0; attends-- {
		l.Leave()
	}
}

// Closing or dropping a log does not wait for a refresh (a read of what other nodes wrote) that no
// server answers. Callers that wait for the refresh get ErrClosed or ErrDropped.
func TestEndDuringRefresh(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(l *log)
		told error
	}{
		"close": {func(l *log) { l.Close() }, engine.ErrClosed},
		"drop":  {func(l *log) { <-l.drop() }, engine.ErrDropped},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t, quickDir(t))
			e := node(t, s, Options{Name: "store", Shards: 1, Patience: time.Hour})
			doc, err := e.Create(ctx, "a", nil)
			if err != nil {
				t.Fatal(err)
			}
			l, _ := openUnattended(t, e, doc.Created)
			s.Stop()
			l.Attend()
			awaitTrue(t, func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return l.attendance.stop != nil
			})
			caught := make(chan error)
			go func() { caught <- l.requestRefresh(ctx) }()
			awaitTrue(t, func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return len(l.attendance.refreshes) > 0
			})
			c.end(l)
			if err := <-caught; !errors.Is(err, c.told) {
				t.Errorf("the waiting caller got %v, want %v", err, c.told)
			}
		})
	}
}
