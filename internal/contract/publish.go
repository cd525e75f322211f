package contract

import (
	"fmt"
	"sync"
)

var publishCases = []Case{
	{"under a sequence", `spec: POST /v1/streams/{id}/{seq}: "202: publish acknowledgement, plus header x-svc-cursor"`, func(t *T) {
		s := t.jsonStream()
		k := t.PublishAt(s.ID, 1, `[1,2,3]`)
		if k != (Ack{s.ID, 1, 3, 1, false}) {
			t.Errorf("acknowledged as %+v, want sequence 1 with 3 events", k)
		}
	}},
	{"next sequence", `spec: "Appends at the next sequence, chosen by the server"; D2: the next sequence is always cursor + 1, so the first one is 1`, func(t *T) {
		s := t.jsonStream()
		for i := range int64(3) {
			if k := t.Publish(s.ID, `["x"]`); k != (Ack{s.ID, i + 1, 1, i + 1, false}) {
				t.Errorf("acknowledged as %+v, want sequence %d with 1 event", k, i+1)
			}
		}
		t.PublishAt(s.ID, 10, `[]`)
		if k := t.Publish(s.ID, `[]`); k.Seq != 11 || k.Cursor != 11 {
			t.Errorf("after sequence 10 got %+v, want 11", k)
		}
	}},
	{"repeated", `spec: "Repeating an already stored sequence returns 200 with duplicate true"; D3: the first write stands and the body is not compared; the response contains the stored batch's seq and accepted, and the current cursor`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 1, `["first",2]`)
		t.PublishAt(s.ID, 2, `[]`)
		for _, text := range []string{`{"events":["first",2]}`, `{"events":["other"]}`, `not even JSON`, ``} {
			k := t.Ack(t.Post(SeqPath(s.ID, 1), JSONBody(text)).Want(200), s.ID)
			if k != (Ack{s.ID, 1, 2, 2, true}) {
				t.Errorf("%q: got %+v", text, k)
			}
		}
		t.same(t.Batch(s.ID, 1).Events, []byte(`["first",2]`))
	}},
	{"a duplicate needs no body", `D19: no check of the sequence needs the body`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 1, `["first"]`)
		t.Post(SeqPath(s.ID, 1), announced("application/json", 1000)).Want(200)
		t.Post(SeqPath(s.ID, 2000), announced("application/json", 1000)).Refused(422, "sequence_too_far_ahead")
		t.Post(SeqPath(s.ID, 1)+"x", announced("application/json", 1000)).Refused(409, "invalid_sequence")
	}},
	{"a duplicate of the server's sequence", `spec: "Idempotent on the pair (stream id, seq)", also when the server chose seq`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `["server"]`)
		t.Post(SeqPath(s.ID, 1), JSONBody(`{"events":["client"]}`)).Want(200)
		t.same(t.Batch(s.ID, 1).Events, []byte(`["server"]`))
	}},
	{"same sequence at once", `D3: if two requests with the same sequence arrive at once, one is stored, and the other waits and gets 200 with duplicate: true`, func(t *T) {
		s := t.jsonStream()
		var mu sync.Mutex
		winner, duplicates := -1, 0
		t.together(30, func(i int) {
			a := t.Post(SeqPath(s.ID, 1), JSONBody(fmt.Sprintf(`{"events":[%d]}`, i)))
			mu.Lock()
			defer mu.Unlock()
			switch k := t.Ack(a, s.ID); {
			case a.Status == 202 && winner < 0:
				winner = i
			case a.Status == 200 && k.Seq == 1 && k.Accepted == 1 && k.Cursor == 1:
				duplicates++
			default:
				t.Errorf("got %d %s", a.Status, a.Body)
			}
		})
		if duplicates != 29 {
			t.Errorf("%d duplicates, want 29", duplicates)
		}
		t.same(t.Batch(s.ID, 1).Events, fmt.Appendf(nil, `[%d]`, winner))
	}},
	{"many at once", `D2: the server assigns each sequence number only once; D5: an acknowledged batch is stored`, func(t *T) {
		s := t.jsonStream()
		var mu sync.Mutex
		stored := map[int64]int{}
		t.together(50, func(i int) {
			k := t.Publish(s.ID, fmt.Sprintf(`[%d]`, i))
			if k.Cursor < k.Seq {
				t.Errorf("sequence %d is stored, but the cursor is %d", k.Seq, k.Cursor)
			}
			mu.Lock()
			defer mu.Unlock()
			stored[k.Seq] = i
		})
		if len(stored) != 50 {
			t.Errorf("50 batches got %d different sequences", len(stored))
		}
		sub := t.Subscribe(s.ID, "cursor=0")
		for seq := int64(1); seq <= 50; seq++ {
			t.same(sub.Batch(seq).Events, fmt.Appendf(nil, `[%d]`, stored[seq]))
		}
	}},
	{"accepted", `spec: accepted "Number of events accepted"; D6: {"events": []} is a valid batch with accepted: 0; a raw batch has accepted: 1`, func(t *T) {
		s := t.jsonStream()
		for text, want := range map[string]int64{`[]`: 0, `[null]`: 1, `[[1,2],{"a":[3]}]`: 2, `[1,"a",null,true,{},[]]`: 6} {
			if k := t.Publish(s.ID, text); k.Accepted != want {
				t.Errorf("%s: accepted %d, want %d", text, k.Accepted, want)
			}
		}
		r := t.rawStream()
		for _, b := range [][]byte{[]byte("x"), nil} {
			if k := t.Ack(t.Post(NextPath(r.ID), RawBody(b)).Want(202), r.ID); k.Accepted != 1 {
				t.Errorf("a raw batch of %d bytes: accepted %d", len(b), k.Accepted)
			}
		}
	}},
	{"other spellings of the path", `D30: a POST to /v1/streams/{id}/x is a sequenced publish for any x but publish and close`, func(t *T) {
		s := t.jsonStream()
		for _, x := range []string{"PUBLISH", "publish%20", "cursor", "batches", "head"} {
			t.Post("/v1/streams/"+s.ID+"/"+x, JSONBody(`{"events":[]}`)).Refused(409, "invalid_sequence")
		}
		t.Post("/v1/streams/"+s.ID+"/%70ublish", JSONBody(`{"events":[]}`)).Want(202)
		t.Post("/v1/streams/"+s.ID+"/%32", JSONBody(`{"events":[]}`)).Want(202)
	}},
	{"Accept on other endpoints", `spec: only GET with Accept text/event-stream is a subscription`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[1]`, WithHeader("Accept", "text/event-stream"))
		for _, path := range []string{"/v1/streams", "/v1/streams/" + s.ID + "/cursor", BatchPath(s.ID, 1), "/v1/health"} {
			t.Get(path, WithHeader("Accept", "text/event-stream")).Want(200)
		}
	}},
	{"refused writes store nothing", `spec: an error stores nothing: cursor and bytes_stored stay the same`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 5, `[5]`)
		before := t.Stream(s.ID)
		t.Post(NextPath(s.ID), JSONBody(`{"events":`)).Want(400)
		t.Post(SeqPath(s.ID, 6), JSONBody(`{"events":{}}`)).Want(400)
		t.Post(SeqPath(s.ID, 6), body("text/plain", []byte(`{"events":[]}`))).Want(415)
		t.Post(SeqPath(s.ID, 5+reach+1), JSONBody(`{"events":[]}`)).Want(422)
		t.Post(SeqPath(s.ID, 6), JSONBody(`{"events":[6]}`), WithKey(t.OtherLive)).Want(403)
		if after := t.Stream(s.ID); after != before {
			t.Errorf("refused writes changed the stream from %+v to %+v", before, after)
		}
		t.Get(BatchPath(s.ID, 6)).Refused(404, "stream_not_found")
	}},
}
