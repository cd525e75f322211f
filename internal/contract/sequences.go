package contract

import (
	"strings"
)

var sequenceCases = []Case{
	{"reach", `spec: seq "at most 1024 ahead of the stream cursor", else 422 sequence_too_far_ahead; D3: cursor + 1024 itself is accepted`, func(t *T) {
		s := t.jsonStream()
		for _, far := range []int64{reach + 1, reach + 2, 1 << 40, 1<<53 - 1} {
			t.Post(SeqPath(s.ID, far), JSONBody(`{"events":[]}`)).Refused(422, "sequence_too_far_ahead")
		}
		if k := t.PublishAt(s.ID, reach, `[]`); k.Cursor != reach {
			t.Errorf("acknowledged as %+v, want cursor %d", k, reach)
		}
		t.Post(SeqPath(s.ID, 2*reach+1), JSONBody(`{"events":[]}`)).Refused(422, "sequence_too_far_ahead")
		t.PublishAt(s.ID, 2*reach, `[]`)
	}},
	{"zero first", `D3: sequence 0 is stored if the stream is empty, and the cursor stays 0`, func(t *T) {
		s := t.jsonStream()
		if k := t.PublishAt(s.ID, 0, `["zero"]`); k != (Ack{s.ID, 0, 1, 0, false}) {
			t.Errorf("acknowledged as %+v, want sequence 0 with 1 event and cursor 0", k)
		}
		if k := t.Ack(t.Post(SeqPath(s.ID, 0), JSONBody(`{"events":[]}`)).Want(200), s.ID); k != (Ack{s.ID, 0, 1, 0, true}) {
			t.Errorf("repeated: got %+v", k)
		}
		t.same(t.Batch(s.ID, 0).Events, []byte(`["zero"]`))
		if c := t.Cursor(s.ID); c.Cursor != 0 || c.UpdatedAt != t.Batch(s.ID, 0).TS {
			t.Errorf("got cursor object %+v", c)
		}
		if k := t.Publish(s.ID, `[]`); k.Seq != 1 {
			t.Errorf("after sequence 0 the server chose %d, want 1", k.Seq)
		}
		t.Post(SeqPath(s.ID, 0), JSONBody(`{"events":[]}`)).Want(200)
	}},
	{"zero too late", `D4: delivery never waits for sequence 0: once another sequence is stored, 0 can no longer be published`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 1, `[]`)
		t.Post(SeqPath(s.ID, 0), JSONBody(`{"events":[]}`)).Refused(409, "invalid_sequence")
	}},
	{"sequences that are not numbers", `D1: a sequence has no sign, no leading zeros and no exponent; D3: a value that is not a sequence gives 409 invalid_sequence`, func(t *T) {
		s := t.jsonStream()
		for _, seq := range []string{"-1", "+1", "01", "00", "1.0", "1e3", "0x1", "%D9%A1", "1%20", "%201", "1_0", "one", "%00", "1%2F2", "-0", ".", "..."} {
			t.Post("/v1/streams/"+s.ID+"/"+seq, JSONBody(`{"events":[]}`)).Refused(409, "invalid_sequence")
		}
		for _, seq := range []string{"9007199254740992", "9223372036854775808", "18446744073709551617", strings.Repeat("9", 1000)} {
			t.Post("/v1/streams/"+s.ID+"/"+seq, JSONBody(`{"events":[]}`)).Refused(409, "invalid_sequence")
		}
		if c := t.Cursor(s.ID).Cursor; c != 0 {
			t.Errorf("the cursor is %d", c)
		}
	}},
	{"the cursor is the highest", `D1: the cursor of a stream is the highest sequence ever stored in it; D3: filling a gap does not move the cursor`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 3, `[3]`)
		if k := t.PublishAt(s.ID, 1, `[1]`); k.Cursor != 3 {
			t.Errorf("filling 1 gives cursor %d, want 3", k.Cursor)
		}
		if k := t.PublishAt(s.ID, 2, `[2]`); k.Cursor != 3 || t.Cursor(s.ID).Cursor != 3 {
			t.Errorf("filling 2 gives cursor %d, want 3", k.Cursor)
		}
	}},
	{"high sequences", `D1: a sequence is an integer from 0 to 2^53-1`, func(t *T) {
		s := t.jsonStream()
		for seq := int64(reach); seq <= 8*reach; seq += reach {
			t.PublishAt(s.ID, seq, `[]`)
		}
		if k := t.Publish(s.ID, `[]`); k.Seq != 8*reach+1 {
			t.Errorf("acknowledged as %+v, want sequence %d", k, 8*reach+1)
		}
	}},
}
