package budget

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const mib = 1 << 20

var ctx = context.Background()

// body is a loan in a test. The channel done receives the result of Grow, and the channel cut is
// closed when the loan is cut (the budget takes its memory back).
type body struct {
	*Loan
	done chan error
	cut  chan struct{}
}

func open(b *Budget, project, key string, most int64) *body {
	cut := make(chan struct{})
	l := b.Open(Holder{project, key}, most, func() { close(cut) })
	l.Watch(true)
	return &body{l, make(chan error, 1), cut}
}

// grow calls Grow in another goroutine and reports whether that call waits for memory.
func (l *body) grow(ctx context.Context, size int64) (waits bool) {
	go func() { l.done <- l.Grow(ctx, size) }()
	synctest.Wait()
	return len(l.done) == 0
}

func (l *body) must(t *testing.T, size int64) {
	t.Helper()
	if l.grow(ctx, size) {
		t.Fatalf("growing to %d bytes waits for memory, want no wait", size)
	}
	if err := <-l.done; err != nil {
		t.Fatal(err)
	}
}

// check checks that all memory of the budget is free.
func (b *Budget) check(t *testing.T) {
	t.Helper()
	for name, p := range map[string]*pool{"lane": &b.small, "large": &b.large} {
		if p.free != p.total || p.held != 0 || p.projects != 0 || len(p.of) != 0 || len(p.queue) != 0 || len(p.loans) != 0 {
			t.Errorf("%s: %d of %d bytes are free; %d bytes are held by %d of %d projects; %d loans wait, %d hold memory; want all free", name,
				p.free, p.total, p.held, p.projects, len(p.of), len(p.queue), len(p.loans))
		}
	}
	if b.large.tokens != max(1, b.total/8/b.large.largest) {
		t.Errorf("%d tokens are free, want all", b.large.tokens)
	}
}

// A client is charged for the bytes that it sent, not for the length that it declared. So a
// thousand bodies that declare 8 MiB each, and stall after 64 KiB, leave room for other bodies.
func TestDeclaredLengthCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(512*mib, 8*mib)
		for range 1000 {
			open(b, "p", "greedy", 8*mib).must(t, 64<<10)
		}
		open(b, "p", "other", 8*mib).must(t, 8*mib)
	})
}

// One key gets three quarters of the memory. The last quarter is for other keys, and the last
// eighth for other projects.
func TestLastQuarter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(512*mib, 8*mib) // 384 MiB for large loans, and a reserve of 8 tokens of 8 MiB
		var all []*body
		take := func(project, key string) bool {
			l := open(b, project, key, 8*mib)
			wait, cancel := context.WithCancel(ctx)
			if l.grow(wait, 8*mib) {
				cancel()
				<-l.done
				return false
			}
			cancel()
			all = append(all, l)
			return <-l.done == nil
		}
		count := func(project, key string) (n int) {
			for take(project, key) {
				n++
			}
			return n
		}
		if n := count("p", "greedy"); n != (288+64)/8 {
			t.Errorf("one key got %d loans, want 44: 36 within its share and 8 with a token", n)
		}
		if n := count("p", "second"); n != 6 {
			t.Errorf("another key of the project got %d loans, want 6", n)
		}
		if n := count("q", "third"); n < 3 {
			t.Errorf("a key of another project got %d loans, want at least 3", n)
		}
		if n := count("r", "fourth"); n < 1 {
			t.Errorf("a key of a third project got %d loans, want at least 1", n)
		}
		for _, l := range all {
			l.End()
		}
		b.check(t)
	})
}

// TryGrow gives a loan what Grow gives without waiting, and nothing while others wait.
func TestTryGrow(t *testing.T) {
	var none *Loan
	if !none.TryGrow(1 << 40) {
		t.Error("an unlimited budget refused a loan")
	}
	b := New(8<<20, 1<<20)
	var loans []*Loan
	for full := false; !full; {
		l := b.Open(Holder{Project: "p", Key: "k"}, 1<<20, nil)
		full = !l.TryGrow(1 << 20)
		loans = append(loans, l)
	}
	if n := len(loans); n < 3 || n > 9 {
		t.Errorf("%d loans of 1 MiB from a budget of 8 MiB", n-1)
	}
	held := b.Stats().Held
	if !loans[0].TryGrow(1 << 20) {
		t.Error("TryGrow refused what the loan has")
	}
	if b.Stats().Held != held || b.Stats().Waiting != 0 {
		t.Errorf("a refused loan changed the budget: %+v", b.Stats())
	}
	loans[0].End()
	if last := loans[len(loans)-1]; !last.TryGrow(1 << 20) {
		t.Error("TryGrow refused memory that was returned")
	}
	for _, l := range loans {
		l.End()
	}
	if held := b.Stats().Held; held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
}

// The lane is the part of the budget for small loans. Small loans find room in it while large loans
// use up the rest of the budget, even if all of them belong to the same key.
func TestLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(64*mib, 8*mib)
		stuck, cancel := context.WithCancel(ctx)
		var large []*body
		for range 20 {
			l := open(b, "p", "k", 8*mib)
			l.Watch(false)
			l.grow(stuck, 8*mib)
			large = append(large, l)
		}
		small := open(b, "p", "k", -1)
		small.must(t, 64<<10)
		small.must(t, 256<<10)
		if !small.grow(stuck, 8*mib) {
			t.Error("a loan of unknown size grew to 8 MiB, although all memory for large loans is in use")
		}
		cancel()
		if err := <-small.done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for _, l := range append(large, small) {
			l.End()
		}
		synctest.Wait()
		b.check(t)
	})
}

// A loan of unknown size starts in the lane, the part of the budget for small loans. If it needs
// more than the lane allows and has to wait, it is cut, so that small loans can use its part of the
// lane.
func TestLaneIsNotForWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(64*mib, 8*mib)
		for range 20 {
			l := open(b, "p", "k", 8*mib)
			l.Watch(false)
			l.grow(t.Context(), 8*mib)
		}
		var waiting []*body
		small := open(b, "p", "k", -1)
		for !small.grow(t.Context(), 256<<10) {
			<-small.done
			small.grow(t.Context(), 8*mib)
			waiting = append(waiting, small)
			small = open(b, "p", "k", -1)
		}
		time.Sleep(3 * time.Second)
		refused := 0
		for _, l := range waiting {
			select {
			case err := <-l.done:
				if refused++; !errors.Is(err, ErrCut) {
					t.Error(err)
				}
				l.End()
			default:
			}
		}
		synctest.Wait()
		if refused == 0 || len(small.done) == 0 {
			t.Errorf("waiting loans cut: %d, want at least 1; the small loan got its memory: %v, want true", refused, len(small.done) > 0)
		}
	})
}

// Loans that each hold a part of their memory and need more do not block each other. The reserve
// lets all of them finish, one after the other if necessary.
func TestPartsDoNotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(64*mib, 8*mib)
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				l := open(b, "p", "k", 8*mib)
				defer l.End()
				for size := int64(256 << 10); size <= 8*mib; size *= 2 {
					if err := l.Grow(ctx, size); err != nil {
						t.Errorf("body %d: %v", i, err)
						return
					}
					time.Sleep(10 * time.Millisecond) // so that all loans hold a part at the same time
					l.Moved(int(size / 2))
				}
			})
		}
		all.Wait()
		b.check(t)
	})
}

// While another loan waits, a loan that sends and receives nothing is cut, and a loan that moves
// enough bytes is not. While no loan waits, no loan is cut.
func TestSlowHoldersAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(64*mib, 8*mib)
		var held []*body
		for range 5 { // 40 MiB: four loans fit into the share of the key, and one gets the token
			l := open(b, "p", "k", 8*mib)
			l.must(t, 8*mib)
			held = append(held, l)
		}
		time.Sleep(time.Minute)
		slow := held[3]
		for i, l := range held {
			select {
			case <-l.cut:
				t.Fatalf("loan %d was cut while no loan waited", i)
			default:
			}
			if l != slow {
				go func() {
					for range 20 {
						time.Sleep(time.Second)
						l.Moved(leastBytes)
					}
				}()
			}
		}
		go func() {
			<-slow.cut
			slow.End()
		}()
		late := open(b, "p", "k", 8*mib)
		if !late.grow(ctx, 8*mib) {
			t.Fatal("the last loan did not have to wait")
		}
		if err := <-late.done; err != nil {
			t.Fatal(err)
		}
		if !slow.IsCut() || b.cut != 1 {
			t.Errorf("the loan that moved nothing was cut: %v, want true; %d loans were cut, want 1", slow.IsCut(), b.cut)
		}
		time.Sleep(time.Minute)
	})
}

// If a key that holds much waits for memory, loans of a key that holds less are not cut, however
// slow they are.
func TestHeavyKeyCutsNoLightOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(64*mib, 8*mib)
		light := open(b, "q", "light", 8*mib)
		light.must(t, 4*mib)
		for range 10 {
			l := open(b, "p", "heavy", 8*mib)
			l.Watch(false)
			l.grow(t.Context(), 8*mib)
		}
		time.Sleep(time.Minute)
		if light.IsCut() {
			t.Error("a loan of a key that holds little was cut for a key that holds much")
		}
	})
}

// Memory that Move transfers counts against the new holder at once.
func TestMove(t *testing.T) {
	b := New(64*mib, 8*mib)
	from, to := open(b, "p", "a", 8*mib), open(b, "p", "b", 8*mib)
	if err := from.Grow(ctx, 4*mib); err != nil {
		t.Fatal(err)
	}
	Move(from.Loan, to.Loan, 4*mib)
	if from.size != 0 || to.size != 4*mib || to.key.held != 4*mib {
		t.Errorf("after Move, the old loan has %d bytes and the new loan %d, want 0 and 4 MiB", from.size, to.size)
	}
	from.End()
	to.End()
	b.check(t)
}

// While memory moves to another loan, it is not free: a loan that waits gets none of it.
func TestMoveWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(16*mib, 4*mib)
		from, to := open(b, "p", "a", 8*mib), open(b, "p", "b", 8*mib)
		from.must(t, 8*mib)
		stop, cancel := context.WithCancel(ctx)
		var waiting []*body
		for i := range 4 {
			l := open(b, fmt.Sprint(i), "k", 8*mib)
			l.grow(stop, 8*mib)
			waiting = append(waiting, l)
		}
		synctest.Wait()
		before := b.Stats().Held
		Move(from.Loan, to.Loan, 8*mib)
		synctest.Wait()
		if after := b.Stats().Held; after != before {
			t.Errorf("Move changed the memory in use from %d to %d bytes", before, after)
		}
		cancel()
		synctest.Wait()
		for _, l := range append(waiting, from, to) {
			l.End()
		}
		b.check(t)
	})
}

// Of the loans that share memory, all slow ones are cut together, and a fast one is not cut. The
// memory then moves to the fast loan, which pays for it from then on.
func TestSharersAreCutTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(64*mib, 8*mib)
		payer := open(b, "p", "k", 8*mib)
		payer.must(t, 8*mib)
		slow, gone, fast := open(b, "p", "k", -1), open(b, "p", "other", -1), open(b, "p", "k", -1)
		for _, l := range []*body{slow, gone, fast} {
			Share(payer.Loan, l.Loan)
		}
		Unshare(payer.Loan, gone.Loan)
		stop, cancel := context.WithCancel(ctx)
		var waiting []*body
		for i := range 20 { // together they need more than the budget has
			l := open(b, fmt.Sprint(i), "k", 8*mib)
			l.Watch(false)
			l.grow(stop, 8*mib)
			waiting = append(waiting, l)
		}
		for range 8 {
			time.Sleep(time.Second / 2)
			fast.Moved(leastBytes)
		}
		if !payer.IsCut() || !slow.IsCut() || gone.IsCut() || fast.IsCut() {
			t.Errorf("cut: payer %v, slow %v, gone %v, fast %v; want only payer and slow", payer.IsCut(), slow.IsCut(), gone.IsCut(), fast.IsCut())
		}
		Move(payer.Loan, fast.Loan, 8*mib)
		if len(fast.sharers) != 1 || len(payer.sharers) != 0 || fast.size != 8*mib {
			t.Errorf("after Move: fast has %d sharers, payer has %d, and fast has %d bytes; want 1, 0 and 8 MiB", len(fast.sharers), len(payer.sharers), fast.size)
		}
		cancel()
		synctest.Wait()
		for _, l := range append(waiting, payer, slow, gone, fast) {
			l.End()
		}
		synctest.Wait()
		b.check(t)
	})
}

// Loans grow, are cancelled and end concurrently. They never hold more than the budget, and at the
// end all memory is free.
func TestConcurrentUse(t *testing.T) {
	b := New(64*mib, 8*mib)
	var all sync.WaitGroup
	for i := range 16 {
		r := rand.New(rand.NewPCG(uint64(i), 1))
		all.Go(func() {
			for range 500 {
				l := b.Open(Holder{fmt.Sprint(i / 8), fmt.Sprint(i / 4)}, []int64{-1, Small, 8 * mib}[r.IntN(3)], nil)
				wait, cancel := context.WithCancel(ctx)
				for size := int64(r.IntN(1 << 20)); size < 8*mib && (l.maxSize < 0 || size <= l.maxSize); size *= 2 {
					if r.IntN(8) == 0 {
						go cancel()
					}
					if l.Grow(wait, size) != nil {
						break
					}
					size++
					if s := b.Stats(); s.Held > s.Total {
						t.Errorf("loans hold %d bytes, more than the budget of %d", s.Held, s.Total)
					}
				}
				l.Shrink(1000)
				l.End()
				cancel()
			}
		})
	}
	all.Wait()
	b.check(t)
}
