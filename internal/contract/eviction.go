package contract

import (
	"fmt"
	"strings"
	"time"
)

const part = 300 << 10 // a stream of 1 MiB holds three of these

// Overfull creates a stream of 1 MiB and publishes n batches of 300 KiB. The stream has room for
// three of them, so the last three are kept.
func (t *T) Overfull(n int) Stream {
	t.Helper()
	s := t.create(`"mode":"raw","max_bytes":1048576`)
	for range n {
		t.Post(NextPath(s.ID), RawBody(Filler(part))).Want(202)
	}
	return s
}

// evicted checks that a batch is evicted. If requests are spread over nodes, it waits until every
// node has seen the write that evicted the batch: more than ten requests in a row must fail.
func (t *T) evicted(id string, seq int64) *Answer {
	t.Helper()
	if t.Spread {
		times := 0
		Eventually(t, Patience, "no node returns an evicted batch", func() bool {
			if times++; t.Get(BatchPath(id, seq)).Status != 404 {
				times = 0
			}
			return times > 10
		})
	}
	return t.Get(BatchPath(id, seq)).Refused(404, "stream_not_found")
}

var evictionCases = []Case{
	{"over max_bytes", `D12: when a write raises the sum of the charged sizes (at least 128 bytes for each batch) above max_bytes, the oldest batches are evicted until the rest fits; spec: "A batch can be evicted, after which reading it returns 404"`, func(t *T) {
		s := t.Overfull(5)
		if got := t.Stream(s.ID); got.BytesStored != 3*part || got.Cursor != 5 {
			t.Errorf("got %d bytes stored and cursor %d, want %d and 5", got.BytesStored, got.Cursor, 3*part)
		}
		for _, seq := range []int64{1, 2} {
			a := t.evicted(s.ID, seq)
			if !strings.Contains(a.message(), "evicted") {
				t.Errorf("the message does not say that the batch was evicted: %q", a.message())
			}
			t.Post(SeqPath(s.ID, seq), RawBody(nil)).Refused(409, "invalid_sequence")
		}
		for _, seq := range []int64{3, 4, 5} {
			t.Get(BatchPath(s.ID, seq)).Want(200)
		}
		t.Post(SeqPath(s.ID, 3), RawBody(nil)).Want(200)
	}},
	{"exactly full", `D12: eviction starts above max_bytes: a stream may be filled to the byte`, func(t *T) {
		s := t.create(`"mode":"raw","max_bytes":1048576`)
		t.Post(NextPath(s.ID), RawBody(Filler(MiB-200))).Want(202)
		t.Post(NextPath(s.ID), RawBody(Filler(200))).Want(202)
		t.Get(BatchPath(s.ID, 1)).Want(200)
		t.Post(NextPath(s.ID), RawBody([]byte("y"))).Want(202)
		t.evicted(s.ID, 1)
		if got := t.Stream(s.ID); got.BytesStored != 201 || got.Cursor != 3 {
			t.Errorf("got stream %+v, want 201 bytes stored and cursor 3", got)
		}
	}},
	{"small batches and keys", `D12: a batch is charged the larger of its size and 128 bytes, plus the length of its idempotency key; D11: bytes_stored reports payload alone`, func(t *T) {
		s := t.create(`"mode":"raw","max_bytes":1048576`)
		t.Post(NextPath(s.ID), RawBody(Filler(MiB-3*128-10))).Want(202)
		t.Post(NextPath(s.ID), RawBody(nil)).Want(202)
		t.Post(NextPath(s.ID), RawBody([]byte("x")), Idempotent("0123456789")).Want(202)
		t.Post(NextPath(s.ID), RawBody(Filler(128))).Want(202)
		t.Get(BatchPath(s.ID, 1)).Want(200)
		if got := t.Stream(s.ID); got.BytesStored != MiB-3*128-10+129 {
			t.Errorf("got stream %+v, want %d bytes stored", got, MiB-3*128-10+129)
		}
		t.Post(NextPath(s.ID), RawBody(nil)).Want(202)
		t.evicted(s.ID, 1)
		if got := t.Stream(s.ID); got.BytesStored != 129 || got.Cursor != 5 {
			t.Errorf("got stream %+v, want 129 bytes stored and cursor 5", got)
		}
	}},
	{"the newest stays", `D12: the newest batch always stays, even if its charge alone is over max_bytes`, func(t *T) {
		s := t.create(`"mode":"raw","max_bytes":1048576`)
		for i, k := range []string{"one", "two"} {
			t.Post(NextPath(s.ID), RawBody(Filler(MiB)), Idempotent(k)).Want(202)
			t.Get(BatchPath(s.ID, int64(i+1))).Want(200)
		}
	}},
	{"everything evicted", `D1: the cursor never goes down, however many batches are evicted`, func(t *T) {
		s := t.create(`"mode":"raw","max_bytes":1048576`)
		for seq := range int64(3) {
			t.Post(NextPath(s.ID), RawBody(Filler(MiB))).Want(202)
			if got := t.Stream(s.ID); got.BytesStored != MiB || got.Cursor != seq+1 {
				t.Errorf("got stream %+v, want 1 MiB stored and cursor %d", got, seq+1)
			}
		}
	}},
	{"gap event after a resume", `D16: a subscriber whose next batches were evicted gets one gap event, which begins at the first sequence that the subscriber lacks, and then the batches that are kept`, func(t *T) {
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
	{"no gap event at cursor=0", `D16: a subscriber that starts at cursor=0 wants only the batches that are kept, so it gets no gap event; D15: it starts with the oldest of these`, func(t *T) {
		s := t.Overfull(5)
		sub := t.Subscribe(s.ID, "cursor=0")
		for seq := int64(3); seq <= 5; seq++ {
			sub.raw(seq)
		}
	}},
	{"while subscribed", `D16: no batch is skipped silently`, func(t *T) {
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
					t.Fatalf("got gap %s, want a gap that begins at %d", e.Data, next)
				}
				next = to + 1
			default:
				t.Fatalf("got event %q", e.Name)
			}
		}
	}},
	{"a gap below an evicted batch", `D4: a gap below an evicted batch is closed`, func(t *T) {
		s := t.create(`"mode":"raw","max_bytes":1048576`)
		t.Post(SeqPath(s.ID, 3), RawBody(Filler(part))).Want(202)
		t.Post(SeqPath(s.ID, 4), RawBody(Filler(MiB))).Want(202) // evicts batch 3
		for _, seq := range []int64{1, 2, 3} {
			t.Post(SeqPath(s.ID, seq), RawBody(nil)).Refused(409, "invalid_sequence")
		}
		t.Subscribe(s.ID, "cursor=0").raw(4)
	}},
	{"out of order", `D12: the lowest sequences are evicted first, whatever the order in which the batches were written`, func(t *T) {
		s := t.create(`"mode":"raw","max_bytes":1048576`)
		t.Post(SeqPath(s.ID, 2), RawBody(Filler(part))).Want(202)
		t.Post(SeqPath(s.ID, 1), RawBody(Filler(part))).Want(202)
		t.Post(SeqPath(s.ID, 3), RawBody(Filler(part))).Want(202)
		t.Post(SeqPath(s.ID, 4), RawBody(Filler(part))).Want(202)
		t.evicted(s.ID, 1)
		t.Get(BatchPath(s.ID, 2)).Want(200)
	}},
	{"by age", `D12: a batch can no longer be read once it is older than retention_seconds; D25: its key is still remembered`, func(t *T) {
		if !t.Slow {
			t.Skip("this case takes more than a minute, so it runs only with Target.Slow")
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
				t.Fatalf("batch 1 could still be read %v after it was stored", asked.Sub(stored))
			case status == 404 && time.Now().Before(stored.Add(59*time.Second)):
				t.Fatalf("batch 1 was evicted only %v after it was stored", time.Since(stored))
			}
			return status == 404
		})
		if got := t.Stream(s.ID); got.Cursor != 1 || got.BytesStored != 0 {
			t.Errorf("got stream %+v, want no bytes stored and cursor 1", got)
		}
		t.Post(SeqPath(s.ID, 1), JSONBody(`{"events":[]}`)).Refused(409, "invalid_sequence")
		if k := t.Ack(t.Post(NextPath(s.ID), JSONBody(`{"events":["again"]}`), Idempotent("k")).Want(200), s.ID); k != (Ack{s.ID, 1, 1, 1, true}) {
			t.Errorf("the key of the evicted batch was acknowledged as %+v", k)
		}
		if k := t.Publish(s.ID, `["new"]`, Idempotent("other")); k.Seq != 2 {
			t.Errorf("acknowledged as %+v, want sequence 2", k)
		}
		sub.Batch(2)
		again := t.Subscribe(s.ID, "", WithHeader("Last-Event-ID", "0"))
		again.gap(1, 1)
		again.Batch(2)
	}},
}
