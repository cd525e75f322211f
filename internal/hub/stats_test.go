package hub

import (
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/engine"
)

// drain reads from a subscription until nothing is left to send.
func drain(t *testing.T, sub *Subscription) {
	t.Helper()
	for {
		e, err := sub.Next(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		if e.Frames == nil && e.Gap == nil {
			return
		}
	}
}

func TestStats(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{IndexBytes: 1 << 30})
		defer h.Close()
		s, other := made(t, h, nil), made(t, h, nil)
		for seq := range weir.Seq(3) {
			publish(t, s, at(seq+1, "abcde"))
		}
		publish(t, s, at(3, "again")) // a duplicate does not count
		publish(t, other, at(1, "x"))

		late, err := s.Subscribe(ctx, Oldest)
		if err != nil {
			t.Fatal(err)
		}
		ahead, err := s.Subscribe(ctx, After(100)) // a subscriber ahead of the stream has no lag
		if err != nil {
			t.Fatal(err)
		}
		head, err := s.Subscribe(ctx, Head)
		if err != nil {
			t.Fatal(err)
		}
		got := h.Stats()
		want := Stats{Streams: 2, Open: 2, Published: 4, PublishedBytes: 16, SlowestLag: 3, Backlog: 3, IndexLimit: 1 << 30}
		if got != want {
			t.Fatalf("before the first delivery: got %+v, want %+v", got, want)
		}

		// The delay of a delivery is measured only if the subscriber was waiting when the batch was
		// stored, and not if the subscriber reads the batch to catch up.
		drain(t, late)
		drain(t, head)
		publish(t, s, at(4, "abcde"))
		time.Sleep(20 * time.Millisecond)
		drain(t, head)
		got = h.Stats()
		frame := len(testFrame(nil, weir.Raw, &weir.Batch{Payload: []byte("abcde")}))
		if got.Delivered != 4 || got.DeliveredBytes != uint64(4*frame) || got.SlowestLag != 1 || got.Backlog != 1 {
			t.Errorf("after four deliveries: %+v", got)
		}
		if got.Delays.Count() != 1 || got.Delays.Sum < int64(20*time.Millisecond) || got.TailBytes == 0 {
			t.Errorf("after one delivery with a delay: %+v", got)
		}

		// A closed gap and evicted batches are counted too.
		publish(t, s, at(6, "abcde"))
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got = h.Stats(); got.GapsClosed != 1 || got.Published != 6 {
			t.Errorf("after a gap was closed: %+v", got)
		}
		time.Sleep(time.Hour + latest)
		synctest.Wait()
		if got = h.Stats(); got.Evicted != 6 || got.EvictedBytes != 26 || got.Backlog != 0 {
			t.Errorf("after an hour: %+v", got)
		}

		head.Close()
		late.Close()
		ahead.Close()
		if got = h.Stats(); got.SlowestLag != 0 || got.TailBytes != 0 || s.traffic.open().hall.Load().audience.first != nil {
			t.Errorf("after all subscriptions ended: %+v", got)
		}
	})
}

// Subscribers may leave the audience (the list of a stream's subscriptions) in any order.
func TestAudience(t *testing.T) {
	var a audience
	subs := make([]*Subscription, 4)
	for i := range subs {
		subs[i] = &Subscription{}
		a.join(subs[i])
	}
	for left, i := range []int{1, 3, 0, 2} {
		a.leave(subs[i])
		n := 0
		for s := a.first; s != nil; s = s.after {
			n++
		}
		if n != 3-left {
			t.Errorf("%d subscriptions are left, want %d", n, 3-left)
		}
	}
}

// Lag counts from the position that the caller of Await has reached, whether or not Await has to
// wait.
func TestLagOfAwait(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		sub, err := s.Subscribe(ctx, Head)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		for seq := range weir.Seq(10) {
			publish(t, s, at(seq+1, "x"))
		}
		for next, want := range map[weir.Seq]uint64{11: 0, 4: 7, 1: 10} {
			if some, err := sub.Await(ctx, next, 0); err != nil || some != (want > 0) {
				t.Errorf("Await at %d returned %t, %v", next, some, err)
			}
			if got := h.Stats(); sub.Lag() != want || got.SlowestLag != want || got.Backlog != want {
				t.Errorf("at %d: the lag is %d, and %d and %d in Stats; want %d", next, sub.Lag(), got.SlowestLag, got.Backlog, want)
			}
		}
	})
}
