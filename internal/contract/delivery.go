package contract

import (
	"fmt"
	"sync"
)

var deliveryCases = []Case{
	{"several subscribers", `D4: every subscriber gets every batch exactly once, in increasing order`, func(t *T) {
		s := t.jsonStream()
		var subs []*Subscription
		for i := range 8 {
			subs = append(subs, t.Subscribe(s.ID, []string{"", "cursor=0", "cursor=head", "cursor=0"}[i%4]))
		}
		for seq := int64(1); seq <= 30; seq++ {
			t.Publish(s.ID, fmt.Sprintf(`[%d]`, seq))
		}
		for _, sub := range subs {
			for seq := int64(1); seq <= 30; seq++ {
				t.same(sub.Batch(seq).Events, fmt.Appendf(nil, `[%d]`, seq))
			}
		}
	}},
	{"from history to live", `D4: no batch is lost or sent twice when a subscriber has read all stored batches and continues with live ones`, func(t *T) {
		s := t.jsonStream()
		const n = 150
		var publisher sync.WaitGroup
		publisher.Go(func() {
			for seq := int64(1); seq <= n; seq++ {
				t.PublishAt(s.ID, seq, `[]`)
			}
		})
		var subs []*Subscription
		for range 10 { // each subscribes after a different number of publishes
			sub := t.Subscribe(s.ID, "cursor=0")
			sub.Batch(1)
			subs = append(subs, sub)
		}
		for _, sub := range subs {
			for seq := int64(2); seq <= n; seq++ {
				sub.Batch(seq)
			}
		}
		publisher.Wait()
	}},
	{"resume", `D4: a subscriber gets each batch exactly once, however often it reconnects and resumes from the last id it received`, func(t *T) {
		s := t.jsonStream()
		for range 40 {
			t.Publish(s.ID, `[]`)
		}
		last := int64(0)
		for step := int64(1); last < 40; step++ {
			var o []Option
			if last > 0 {
				o = append(o, WithHeader("Last-Event-ID", itoa(int(last))))
			}
			sub := t.Subscribe(s.ID, "cursor=0", o...)
			for i := int64(0); i < step && last < 40; i++ {
				last++
				sub.Batch(last)
			}
			sub.cancel()
		}
	}},
	{"a backlog larger than the cache", `D17: subscribers read from the store at their own pace`, func(t *T) {
		s := t.rawStream()
		const n = 24
		for i := range n {
			t.Post(NextPath(s.ID), RawBody([]byte(fmt.Sprintf("%0262144d", i)))).Want(202)
		}
		slow, fast := t.Subscribe(s.ID, "cursor=0"), t.Subscribe(s.ID, "cursor=0")
		for seq := int64(1); seq <= n; seq++ {
			if got := fast.raw(seq); string(got.Data) != fmt.Sprintf("%0262144d", seq-1) {
				t.Fatalf("batch %d was delivered with different bytes", seq)
			}
		}
		t.Post(NextPath(s.ID), RawBody([]byte("live"))).Want(202)
		fast.raw(n + 1)
		for seq := int64(1); seq <= n+1; seq++ {
			slow.raw(seq)
		}
	}},
	{"streams do not mix", `spec: a subscription delivers the batches of one stream only`, func(t *T) {
		a, b := t.jsonStream(), t.jsonStream()
		subA, subB := t.Subscribe(a.ID, ""), t.Subscribe(b.ID, "")
		for seq := int64(1); seq <= 10; seq++ {
			t.Publish(a.ID, `["a"]`)
			t.Publish(b.ID, `["b"]`)
		}
		for seq := int64(1); seq <= 10; seq++ {
			t.same(subA.Batch(seq).Events, []byte(`["a"]`))
			t.same(subB.Batch(seq).Events, []byte(`["b"]`))
		}
	}},
	{"delivered batches can be read", `D5: no subscriber gets a batch that is not stored`, func(t *T) {
		s := t.jsonStream()
		sub := t.Subscribe(s.ID, "")
		var publisher sync.WaitGroup
		publisher.Go(func() {
			for range 40 {
				t.Publish(s.ID, `["x"]`)
			}
		})
		for seq := int64(1); seq <= 40; seq++ {
			got := sub.Batch(seq)
			if b := t.Batch(s.ID, seq); b.TS != got.TS {
				t.Errorf("batch %d was delivered with ts %s, but read with ts %s", seq, got.TS, b.TS)
			}
			if c := t.Cursor(s.ID).Cursor; c < seq {
				t.Errorf("batch %d was delivered, but the cursor is %d", seq, c)
			}
		}
		publisher.Wait()
	}},
}
