package contract

import (
	"fmt"
	"math/rand/v2"
	"time"
)

var gapCases = []Case{
	{"filled", `D4: "A missing sequence below the cursor is an open gap and can still be filled"; "at an open gap delivery waits"`, func(t *T) {
		s := t.jsonStream()
		oldest, head := t.Subscribe(s.ID, "cursor=0"), t.Subscribe(s.ID, "")
		t.PublishAt(s.ID, 1, `[1]`)
		t.PublishAt(s.ID, 4, `[4]`)
		t.PublishAt(s.ID, 3, `[3]`)
		t.PublishAt(s.ID, 2, `[2]`)
		for seq := int64(1); seq <= 4; seq++ {
			oldest.Batch(seq)
			head.Batch(seq)
		}
	}},
	{"read above a gap", `D4: "A single batch can be fetched as soon as it is acknowledged, even above an open gap"`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 7, `["seven"]`)
		t.same(t.Batch(s.ID, 7).Events, []byte(`["seven"]`))
		t.Get(BatchPath(s.ID, 6)).Refused(404, "stream_not_found")
	}},
	{"closed", `D4: until gap_grace "after the first batch above it was stored; then it is closed for good"; D3: "409 invalid_sequence"; D16: "A closed gap is no loss and sends nothing"`, func(t *T) {
		s := t.jsonStream()
		sub := t.Subscribe(s.ID, "cursor=0")
		t.PublishAt(s.ID, 1, `[1]`)
		sub.Batch(1)
		asked := time.Now()
		t.PublishAt(s.ID, 4, `[4]`)
		sub.Batch(4)
		// The batch was stored after it was asked for, and times are of whole milliseconds.
		if waited := time.Since(asked); waited < t.GapGrace-2*time.Millisecond {
			t.Errorf("batch 4 was delivered %v after it was sent, within the grace of %v", waited, t.GapGrace)
		}
		for _, seq := range []int64{2, 3} {
			t.Post(SeqPath(s.ID, seq), JSONBody(`{"events":[]}`)).Refused(409, "invalid_sequence")
			t.Get(BatchPath(s.ID, seq)).Refused(404, "stream_not_found")
		}
		t.Post(SeqPath(s.ID, 1), JSONBody(`{"events":[]}`)).Want(200)
		t.Publish(s.ID, `[5]`)
		sub.Batch(5)
		late := t.Subscribe(s.ID, "cursor=0")
		late.Batch(1)
		late.Batch(4)
		late.Batch(5)
	}},
	{"no longer open than promised", `D4: the grace counts from "the first batch above it": later ones do not prolong it`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 2, `[2]`)
		Eventually(t, t.GapGrace+Patience, "sequence 1 is refused while others are published", func() bool {
			t.Publish(s.ID, `[]`)
			// A duplicate's or a stored answer would fill it, so ask what needs no body and cannot be stored.
			a := t.Post(SeqPath(s.ID, 1), JSONBody(`not JSON`))
			return a.Status == 409
		})
	}},
	{"contiguous publishers never wait", `D4: "Publishers of contiguous sequences never wait for any of this"`, func(t *T) {
		s := t.jsonStream()
		sub := t.Subscribe(s.ID, "")
		for seq := int64(1); seq <= 20; seq++ {
			t.PublishAt(s.ID, seq, `[]`)
			sub.Batch(seq)
		}
	}},
	{"any order within reach", `D4: "Publishers keep many batches in flight, so 5 may arrive before 4"; "every batch exactly once, in increasing sequence"`, func(t *T) {
		s := t.jsonStream()
		sub := t.Subscribe(s.ID, "cursor=0")
		const n = 60
		order := rand.Perm(n)
		t.together(n, func(i int) { t.PublishAt(s.ID, int64(order[i]+1), fmt.Sprintf(`[%d]`, order[i]+1)) })
		for seq := int64(1); seq <= n; seq++ {
			t.same(sub.Batch(seq).Events, fmt.Appendf(nil, `[%d]`, seq))
		}
	}},
	{"a server's sequence above a gap", `D2: "always cursor + 1", also with gaps below`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 3, `[]`)
		if k := t.Publish(s.ID, `[]`); k.Seq != 4 {
			t.Errorf("got %+v", k)
		}
		t.PublishAt(s.ID, 2, `[]`)
		t.PublishAt(s.ID, 1, `[]`)
	}},
	{"zero is not waited for", `D4: "Sequence 0 is never waited for"`, func(t *T) {
		s := t.jsonStream()
		sub := t.Subscribe(s.ID, "cursor=0")
		asked := time.Now()
		t.PublishAt(s.ID, 1, `[1]`)
		sub.Batch(1)
		if took := time.Since(asked); took > t.GapGrace+Patience/2 {
			t.Errorf("batch 1 took %v", took)
		}
	}},
}
