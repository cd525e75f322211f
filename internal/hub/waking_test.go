package hub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal"
	"weir/internal/engine/memory"
)

// crowd is a stream whose batches are published out of order, while many of its subscriptions
// start, stop and fall behind at random. Every sequence from 1 to last is published, unless the
// stream is deleted first.
type crowd struct {
	t       *testing.T
	s       *Stream
	last    weir.Seq
	deleted bool // the stream is deleted halfway
}

func (c *crowd) payload(seq weir.Seq) string { return fmt.Sprintf("%s %d", c.s.ID, seq) }

// publish publishes all sequences, in random order within windows of 20. If c.deleted is set,
// publish deletes the stream while it publishes the window in the middle.
func (c *crowd) publish(rng *rand.Rand) {
	for from, gone := weir.Seq(1), false; from <= c.last && !gone; from += 20 {
		var window sync.WaitGroup
		for _, i := range rng.Perm(20) {
			seq := from + weir.Seq(i)
			window.Go(func() {
				_, err := c.s.Publish(ctx, at(seq, c.payload(seq)))
				if err != nil && (!c.deleted || code(err) != weir.StreamNotFound) {
					c.t.Errorf("publish %d: %v", seq, err)
				}
			})
		}
		if gone = c.deleted && from > c.last/2; gone {
			if err := c.s.Delete(ctx); err != nil {
				c.t.Error(err)
			}
		}
		window.Wait()
	}
}

// follow subscribes and reads until the last sequence, or until the stream is deleted. After a
// random number of events it closes the subscription and resumes with a new one. It cancels some
// calls of Next, as a client that disconnects does.
func (c *crowd) follow(rng *rand.Rand) {
	next := weir.Seq(1)
	for next <= c.last {
		sub, err := c.s.Subscribe(ctx, After(next-1))
		if err != nil {
			if !c.deleted || code(err) != weir.StreamNotFound {
				c.t.Error(err)
			}
			return
		}
		for n := 1 + rng.IntN(60); n > 0 && next <= c.last && err == nil; n-- {
			next, err = c.step(sub, next, rng)
		}
		sub.Close()
		if err != nil {
			if !c.deleted || !errors.Is(err, ErrDeleted) {
				c.t.Error(err)
			}
			return
		}
	}
}

// sleeper records that it was woken.
type sleeper chan struct{}

func (s sleeper) Wake() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// nap parks a subscription, which then waits without a goroutine, until there is an event or Poll
// fails.
func nap(sub *Subscription) (Event, error) {
	s := make(sleeper, 1)
	sub.Park(s)
	defer sub.Unpark()
	for {
		e, err := sub.Poll()
		switch {
		case errors.Is(err, ErrBusy):
			sub.Unpark()
			return sub.Next(ctx, time.Minute)
		case err != nil || e.Gap != nil || len(e.Frames) > 0:
			return e, err
		}
		<-s
	}
}

// step receives one event and checks it. The event must hold the batches from the sequence next
// upwards, without a hole, or a gap of evicted batches that begins at next.
func (c *crowd) step(sub *Subscription, next weir.Seq, rng *rand.Rand) (weir.Seq, error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	if rng.IntN(10) == 0 {
		cancel() // as if the client disconnected
	}
	var e Event
	var err error
	if rng.IntN(2) == 0 {
		e, err = nap(sub)
	} else {
		e, err = sub.Next(within, time.Minute)
	}
	if errors.Is(err, context.Canceled) {
		return next, nil
	}
	if err != nil {
		return next, err
	}
	if g := e.Gap; g != nil {
		if g.From != next || g.To < g.From || g.Lost {
			return next, fmt.Errorf("got the gap %+v at the position %d", *g, next)
		}
		if _, err := c.s.Batch(ctx, g.To); code(err) != weir.StreamNotFound {
			return next, fmt.Errorf("gap %+v, but its last batch can be read: %v", *g, err)
		}
		next = g.To + 1
	}
	for seq, payload := range batchesOf(e) {
		if seq != next || payload != c.payload(seq) {
			return next, fmt.Errorf("got %d (%q), want %d", seq, payload, next)
		}
		next++
	}
	return next, nil
}

// Subscriptions start and stop, batches are evicted and streams are deleted while the waker (the
// goroutine that wakes subscriptions) runs. Each subscription still gets every batch once and in
// order, or a gap if the batch was evicted, and no subscription waits forever.
func TestCrowd(t *testing.T) {
	for name, open := range map[string]func() (engine.Engine, error){
		"memory": func() (engine.Engine, error) { return memory.New(), nil },
		"journal": func() (engine.Engine, error) {
			return journal.Open(faulty.New(), journal.Options{SegmentSize: 256 << 10})
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := open()
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			testCrowd(t, e)
		})
	}
}

func testCrowd(t *testing.T, e engine.Engine) {
	h := open(t, e, Options{TailBytes: 2 << 10, GapGrace: time.Hour})
	var busy, idle sync.WaitGroup
	for i, kind := range []struct {
		maxBytes int64
		deleted  bool
	}{{1 << 30, false}, {3000, false}, {1 << 30, true}, {3000, true}} {
		s := made(t, h, func(s *Spec) { s.MaxBytes = kind.maxBytes })
		c := &crowd{t: t, s: s, last: 400, deleted: kind.deleted}
		for n := range 50 {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(n)))
			busy.Go(func() { c.follow(rng) })
		}
		busy.Go(func() { c.publish(rand.New(rand.NewPCG(uint64(i), 1000))) })
	}
	quiet := made(t, h, nil)
	for range 50 { // these subscriptions wait until the hub stops
		sub, err := quiet.Subscribe(ctx, Head)
		if err != nil {
			t.Fatal(err)
		}
		idle.Go(func() {
			defer sub.Close()
			if _, err := sub.Next(ctx, time.Hour); !errors.Is(err, ErrStopping) {
				t.Errorf("an idle subscription ended with %v, want ErrStopping", err)
			}
		})
		parked, err := quiet.Subscribe(ctx, Head)
		if err != nil {
			t.Fatal(err)
		}
		idle.Go(func() {
			defer parked.Close()
			if _, err := nap(parked); !errors.Is(err, ErrStopping) {
				t.Errorf("a parked subscription ended with %v, want ErrStopping", err)
			}
		})
	}
	busy.Wait()
	h.StopSubscriptions()
	idle.Wait()
	if n := h.Stats().TailBytes; n != 0 {
		t.Errorf("after all subscriptions ended, %d bytes of recent frames are kept, want 0", n)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// A row is a group of subscriptions that the waker wakes together. Every row that exists when
// the method mark is called is woken, whichever subscriptions join and leave in the meantime.
func TestRowsTakeTurns(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var rs rows
	var members []*row
	due := map[*row]bool{}
	queued := false
	for range faulty.Cases(100_000) {
		switch n := rng.IntN(10); {
		case n < 4:
			members = append(members, rs.join())
		case n < 7 && len(members) > 0:
			i := rng.IntN(len(members))
			rs.leave(members[i])
			members[i] = members[len(members)-1]
			if members = members[:len(members)-1]; len(members) == 0 {
				clear(due)
			}
		case n == 7:
			if rs.mark() {
				queued = true
			}
			for _, r := range members {
				due[r] = true
			}
		case queued:
			r, _, _ := rs.next(true)
			if r == nil && len(due) > 0 {
				t.Fatalf("the waker finished, but %d rows were not woken", len(due))
			}
			delete(due, r)
			queued = r != nil
		}
		if len(due) > 0 && !queued {
			t.Fatal("rows must be woken, but the feed is not in the waker's queue")
		}
	}
}

// Subscriptions do not take the lock that publishers need, and a publish does not wait for
// subscriptions that are being woken.
func TestSubscribersAndPublishersDoNotMeet(t *testing.T) {
	h := open(t, memory.New(), Options{})
	defer h.Close()
	s := made(t, h, nil)
	sub, err := s.Subscribe(ctx, Head)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	next := func() (weir.Seq, error) {
		e, err := sub.Next(ctx, time.Minute)
		for seq := range batchesOf(e) {
			return seq, err
		}
		return 0, err
	}
	publish(t, s, at(1, "one"))
	s.traffic.open().mu.Lock()
	if seq, err := next(); seq != 1 || err != nil {
		t.Errorf("while a publisher holds the feed's lock: got batch %d, %v; want batch 1", seq, err)
	}
	s.traffic.open().mu.Unlock()

	sub.row.mu.Lock() // now the waker cannot wake this row
	publish(t, s, at(2, "two"))
	publish(t, made(t, h, nil), at(1, "another stream"))
	sub.row.mu.Unlock()
	if seq, err := next(); seq != 2 || err != nil {
		t.Errorf("after the waker could continue: got batch %d, %v; want batch 2", seq, err)
	}
}

// The waker does not wait for a subscription that it woke, even if the client of that subscription
// accepts no data.
func TestStalledSubscribersHoldUpNoWaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, memory.New(), Options{})
		defer h.Close()
		s := made(t, h, nil)
		const n = 100
		subs := make([]*Subscription, n)
		woken := make(chan error, n)
		for i := range subs {
			var err error
			if subs[i], err = s.Subscribe(ctx, Head); err != nil {
				t.Fatal(err)
			}
			go func() { // receives one batch and never calls Next again
				_, err := subs[i].Next(ctx, time.Hour)
				woken <- err
			}()
		}
		synctest.Wait()
		publish(t, s, at(1, "x"))
		for range n {
			if err := <-woken; err != nil {
				t.Error(err)
			}
		}
		for _, sub := range subs {
			sub.Close()
		}
	})
}

// counter is a Sleeper that counts its wake-ups.
type counter struct{ n atomic.Int64 }

func (c *counter) Wake() { c.n.Add(1) }

// If a stream has many subscriptions, batches that follow one another quickly share a wake-up. If it
// has few, each batch wakes them. The last batch wakes them in any case, also if the hub closes.
func TestPace(t *testing.T) {
	for _, c := range []struct{ subscriptions, least, most int }{{unpaced, 100, 100}, {1000, 6, 8}} {
		synctest.Test(t, func(t *testing.T) {
			h := open(t, memory.New(), Options{})
			s := made(t, h, nil)
			counts := make([]counter, c.subscriptions)
			subs := make([]*Subscription, c.subscriptions)
			for i := range subs {
				var err error
				if subs[i], err = s.Subscribe(ctx, Head); err != nil {
					t.Fatal(err)
				}
				subs[i].Park(&counts[i])
			}
			for seq := range weir.Seq(100) {
				publish(t, s, at(seq+1, "x"))
				<-time.After(time.Millisecond)
			}
			<-time.After(longestPace)
			synctest.Wait()
			for i := range counts {
				if n := int(counts[i].n.Load()); n < c.least || n > c.most {
					t.Fatalf("%d subscriptions: 100 batches in 100 ms woke one of them %d times, want %d to %d", c.subscriptions, n, c.least, c.most)
				}
				counts[i].n.Store(0)
			}
			publish(t, s, at(101, "x"))
			synctest.Wait()
			publish(t, s, at(102, "x")) // the next lap may not begin yet
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			for i, sub := range subs {
				if n := counts[i].n.Load(); n < 2 {
					t.Fatalf("%d subscriptions: the end of the hub left one of them asleep after %d wake-ups", c.subscriptions, n)
				}
				sub.Close()
			}
		})
	}
}

// After a lap that took long, the next one may begin only after a rest, but not later than longestPace
// after the beginning of the first.
func TestRestAfterALongLap(t *testing.T) {
	for _, c := range []struct{ lap, want time.Duration }{
		{0, (unpaced + 1) * perSubscription},
		{time.Millisecond, 2 * time.Millisecond},
		{100 * time.Millisecond, 200 * time.Millisecond},
		{time.Second, longestPace - time.Second},
		{time.Minute, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var rs rows
			for range unpaced + 1 {
				rs.join()
			}
			rs.mark()
			for range rs.left - 1 {
				rs.next(false)
			}
			<-time.After(c.lap)
			rs.next(false)
			rs.mark()
			if r, _, wait := rs.next(false); wait != c.want || (r == nil) != (wait > 0) {
				t.Errorf("after a lap of %v the next one begins after %v, want %v", c.lap, wait, c.want)
			}
		})
	}
}

// A goroutine that calls turns.take in a loop does not keep the runtime from noticing requests that
// have arrived, even if no other goroutine is ready to run.
func TestTurnsLookForRequests(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	var turns turns
	turns.open()
	defer turns.close()
	var requests atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for b := make([]byte, 1); ; requests.Add(1) {
			if _, err := in.Read(b); err != nil {
				return
			}
		}
	}()
	const n = 100
	late := 0 // a few requests are late on a busy machine, if the system interrupts the goroutine that reads them
	for range n {
		before := requests.Load()
		if _, err := out.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		for taken := 0; requests.Load() == before; taken++ {
			if taken == 20 {
				late++
			}
			turns.take()
		}
	}
	if late > n/2 {
		t.Errorf("%d of %d requests were not read although take was called 20 times", late, n)
	}
	if turns.poll == nil {
		t.Error("turns fell back to runtime.Gosched")
	}
	out.Close()
	<-ended
}

// If the pipe that turns.take writes to fails, take falls back to runtime.Gosched.
func TestTurnsWithoutPipe(t *testing.T) {
	var turns turns
	turns.open()
	turns.out.Close()
	turns.take()
	if turns.poll != nil {
		t.Error("take still uses a pipe that is closed")
	}
	turns.take()
	turns.close()
}
