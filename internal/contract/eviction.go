package contract

import (
	"fmt"
	"strings"
	"time"
)

const part = 300 << 10 // three and a bit go into 1 MiB

// overfull makes a stream of 1 MiB and publishes n batches of 300 KiB: the last three are kept.
func (t *T) Overfull(n int) Stream {
	t.Helper()
	s := t.create(`"mode":"raw","max_bytes":1048576`)
	for range n {
		t.Post(NextPath(s.ID), RawBody(Filler(part))).Want(202)
	}
	return s
}

// evicted wants a batch to be gone. Where requests are spread, the node that is asked may not have heard yet of what evicted it.
func (t *T) evicted(id string, seq int64) *Answer {
	t.Helper()
	if t.Spread {
		times := 0
		Eventually(t, Patience, "an evicted batch is gone from every node", func() bool {
			if times++; t.Get(BatchPath(id, seq)).Status != 404 {
				times = 0
			}
			return times > 10
		})
	}
	return t.Get(BatchPath(id, seq)).Refused(404, "stream_not_found")
}

var evictionCases = []Case{
	{"over max_bytes", `D12: "When a write takes bytes_stored over max_bytes, the oldest batches go until it fits"; spec: "A batch can be evicted, after which reading it returns 404"`, func(t *T) {
		s := t.Overfull(5)
		if got := t.Stream(s.ID); got.BytesStored != 3*part || got.Cursor != 5 {
			t.Errorf("%d bytes are stored, want %d; cursor %d", got.BytesStored, 3*part, got.Cursor)
		}
		for _, seq := range []int64{1, 2} {
			a := t.evicted(s.ID, seq)
			if !strings.Contains(a.message(), "evicted") {
				t.Errorf("the message does not say that it was evicted: %q", a.message())
			}
			t.Post(SeqPath(s.ID, seq), RawBody(nil)).Refused(409, "invalid_sequence")
		}
		for _, seq := range []int64{3, 4, 5} {
			t.Get(BatchPath(s.ID, seq)).Want(200)
		}
		t.Post(SeqPath(s.ID, 3), RawBody(nil)).Want(200)
	}},
	{"exactly full", `D12: "over max_bytes": a stream may be filled to the byte`, func(t *T) {
		s := t.create(`"mode":"raw","max_bytes":1048576`)
		t.Post(NextPath(s.ID), RawBody(Filler(MiB-1))).Want(202)
		t.Post(NextPath(s.ID), RawBody([]byte("x"))).Want(202)
		t.Get(BatchPath(s.ID, 1)).Want(200)
		t.Post(NextPath(s.ID), RawBody([]byte("y"))).Want(202)
		t.evicted(s.ID, 1)
		if got := t.Stream(s.ID); got.BytesStored != 2 || got.Cursor != 3 {
			t.Errorf("got %+v", got)
		}
	}},
	{"everything evicted", `D1: the cursor "never goes down, not even when everything is evicted"`, func(t *T) {
		s := t.create(`"mode":"raw","max_bytes":1048576`)
		for seq := range int64(3) {
			t.Post(NextPath(s.ID), RawBody(Filler(MiB))).Want(202)
			if got := t.Stream(s.ID); got.BytesStored != MiB || got.Cursor != seq+1 {
				t.Errorf("got %+v", got)
			}
		}
	}},
	{"told to who resumes", `D16: "When what the subscriber should get next was evicted before it could be sent: one event gap", "from is the first sequence that the subscriber lacks", "then on"`, func(t *T) {
		s := t.Overfull(6)
		after := func(from int64, sub *Subscription) {
			t.Helper()
			if from <= 3 {
				sub.gap(from, 3)
			}
			for seq := max(from, 4); seq <= 6; seq++ {
				sub.raw(seq)
			}
		}
		after(1, t.Subscribe(s.ID, "", WithHeader("Last-Event-ID", "0")))
		after(2, t.Subscribe(s.ID, "", WithHeader("Last-Event-ID", "1")))
		after(2, t.Subscribe(s.ID, "cursor=1"))
		after(3, t.Subscribe(s.ID, "cursor=2"))
		after(4, t.Subscribe(s.ID, "cursor=3"))
		after(5, t.Subscribe(s.ID, "", WithHeader("Last-Event-ID", "4")))
	}},
	{"nothing lost at cursor=0", `D16: nor does a start at cursor=0 send a gap, "which asks for what is kept"; D15: "from the oldest batch kept"`, func(t *T) {
		s := t.Overfull(5)
		sub := t.Subscribe(s.ID, "cursor=0")
		for seq := int64(3); seq <= 5; seq++ {
			sub.raw(seq)
		}
	}},
	{"while subscribed", `D16: "Nothing is ever skipped silently"`, func(t *T) {
		s := t.create(`"mode":"raw","max_bytes":1048576`)
		sub := t.Subscribe(s.ID, "cursor=0")
		for range 12 {
			t.Post(NextPath(s.ID), RawBody(Filler(part))).Want(202)
		}
		for next := int64(1); next <= 12; {
			e := sub.Next()
			switch e.Name {
			case "batch":
				if e.ID != fmt.Sprint(next) {
					t.Fatalf("got batch %s, want %d", e.ID, next)
				}
				next++
			case "gap":
				var from, to int64
				if _, err := fmt.Sscanf(e.Data, `{"from":%d,"to":%d`, &from, &to); err != nil || from != next || to < from {
					t.Fatalf("got gap %s at %d", e.Data, next)
				}
				next = to + 1
			default:
				t.Fatalf("got event %q", e.Name)
			}
		}
	}},
	{"a gap below an evicted batch", `D4: "A gap below an evicted batch is closed"`, func(t *T) {
		s := t.create(`"mode":"raw","max_bytes":1048576`)
		t.Post(SeqPath(s.ID, 3), RawBody(Filler(part))).Want(202)
		t.Post(SeqPath(s.ID, 4), RawBody(Filler(MiB))).Want(202) // 3 goes
		for _, seq := range []int64{1, 2, 3} {
			t.Post(SeqPath(s.ID, seq), RawBody(nil)).Refused(409, "invalid_sequence")
		}
		t.Subscribe(s.ID, "cursor=0").raw(4)
	}},
	{"out of order", `D12: "Eviction goes from the oldest sequence up", not from the oldest write`, func(t *T) {
		s := t.create(`"mode":"raw","max_bytes":1048576`)
		t.Post(SeqPath(s.ID, 2), RawBody(Filler(part))).Want(202)
		t.Post(SeqPath(s.ID, 1), RawBody(Filler(part))).Want(202)
		t.Post(SeqPath(s.ID, 3), RawBody(Filler(part))).Want(202)
		t.Post(SeqPath(s.ID, 4), RawBody(Filler(part))).Want(202)
		t.evicted(s.ID, 1)
		t.Get(BatchPath(s.ID, 2)).Want(200)
	}},
	{"by age", `D12: "A batch older than retention_seconds cannot be read from that moment on, to the second"`, func(t *T) {
		if !t.Slow {
			t.Skip("takes more than a minute: only with Target.Slow")
		}
		s := t.create(`"retention_seconds":60`)
		t.Publish(s.ID, `["old"]`, Idempotent("k"))
		sub := t.Subscribe(s.ID, "cursor=0")
		sub.Batch(1)
		stored := t.checkTime(t.Batch(s.ID, 1).TS)
		status := 0
		Eventually(t, 70*time.Second, "batch 1 is evicted", func() bool {
			asked := time.Now()
			a := t.Get(BatchPath(s.ID, 1))
			status = a.Status
			switch {
			case status == 200 && asked.After(stored.Add(61*time.Second)):
				t.Fatalf("batch 1 was still read %v after it was stored", asked.Sub(stored))
			case status == 404 && time.Now().Before(stored.Add(59*time.Second)):
				t.Fatalf("batch 1 was gone %v after it was stored", time.Since(stored))
			}
			return status == 404
		})
		if got := t.Stream(s.ID); got.Cursor != 1 || got.BytesStored != 0 {
			t.Errorf("got %+v", got)
		}
		t.Post(SeqPath(s.ID, 1), JSONBody(`{"events":[]}`)).Refused(409, "invalid_sequence")
		if k := t.Publish(s.ID, `["new"]`, Idempotent("k")); k.Seq != 2 {
			t.Errorf("got %+v", k)
		}
		sub.Batch(2)
		again := t.Subscribe(s.ID, "", WithHeader("Last-Event-ID", "0"))
		again.gap(1, 1)
		again.Batch(2)
	}},
}
