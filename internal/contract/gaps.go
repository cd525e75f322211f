package contract

import (
	"fmt"
	"math/rand/v2"
	"time"
)

var gapCases = []Case{
	{"filled", `D4: a missing sequence below the cursor is an open gap: it can be filled, and delivery waits for it`, func(t *T) {
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
	{"read above a gap", `D4: a batch can be read as soon as it is acknowledged, even above an open gap`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 7, `["seven"]`)
		t.same(t.Batch(s.ID, 7).Events, []byte(`["seven"]`))
		t.Get(BatchPath(s.ID, 6)).Refused(404, "stream_not_found")
	}},
	{"closed", `D4: a gap closes for good when the grace period after the first batch above it ends; D3: publishing into it then gives 409 invalid_sequence; D16: a closed gap is not a loss, so subscribers get no event about it`, func(t *T) {
		s := t.jsonStream()
		sub := t.Subscribe(s.ID, "cursor=0")
		t.PublishAt(s.ID, 1, `[1]`)
		sub.Batch(1)
		asked := time.Now()
		t.PublishAt(s.ID, 4, `[4]`)
		sub.Batch(4)
		// The grace period starts when the server stores batch 4, which is after this request began. The
		// server counts in whole milliseconds, so by the clock of this test the period may end up
		// to 2 ms early.
		if waited := time.Since(asked); waited < t.GapGrace-2*time.Millisecond {
			t.Errorf("batch 4 was delivered after %v, within the grace period of %v", waited, t.GapGrace)
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
	{"closed after the grace period, also under load", `D4: the grace period starts with the first batch above the gap; later batches do not extend it`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 2, `[2]`)
		Eventually(t, t.GapGrace+Patience, "sequence 1 is refused while others are published", func() bool {
			t.Publish(s.ID, `[]`)
			// A valid body would fill the gap, so this body is invalid. The server checks the
			// sequence before the body, so it answers 409 once the gap is closed.
			a := t.Post(SeqPath(s.ID, 1), JSONBody(`not JSON`))
			return a.Status == 409
		})
	}},
	{"no wait without gaps", `D4: in a stream without missing sequences, no grace period delays delivery`, func(t *T) {
		s := t.jsonStream()
		sub := t.Subscribe(s.ID, "")
		for seq := int64(1); seq <= 20; seq++ {
			t.PublishAt(s.ID, seq, `[]`)
			sub.Batch(seq)
		}
	}},
	{"published in any order", `D4: publishers keep many batches in flight, so 5 may arrive before 4; subscribers still get each batch once, in increasing order`, func(t *T) {
		s := t.jsonStream()
		sub := t.Subscribe(s.ID, "cursor=0")
		const n = 60
		order := rand.Perm(n)
		t.together(n, func(i int) { t.PublishAt(s.ID, int64(order[i]+1), fmt.Sprintf(`[%d]`, order[i]+1)) })
		for seq := int64(1); seq <= n; seq++ {
			t.same(sub.Batch(seq).Events, fmt.Appendf(nil, `[%d]`, seq))
		}
	}},
	{"the server chooses a sequence above a gap", `D2: the server chooses cursor + 1, even if there are gaps below`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 3, `[]`)
		if k := t.Publish(s.ID, `[]`); k.Seq != 4 {
			t.Errorf("acknowledged as %+v, want sequence 4", k)
		}
		t.PublishAt(s.ID, 2, `[]`)
		t.PublishAt(s.ID, 1, `[]`)
	}},
	{"no wait for sequence 0", `D4: delivery never waits for sequence 0`, func(t *T) {
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
