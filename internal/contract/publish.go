package contract

import (
	"fmt"
	"sync"
)

var publishCases = []Case{
	{"under a sequence", `spec: POST /v1/streams/{id}/{seq}: "202: publish acknowledgement, plus header x-svc-cursor"`, func(t *T) {
		s := t.jsonStream()
		k := t.publishAt(s.ID, 1, `[1,2,3]`)
		if k != (Ack{s.ID, 1, 3, 1, false}) {
			t.Errorf("got %+v", k)
		}
	}},
	{"next sequence", `spec: "Appends at the next sequence, chosen by the server"; D2: "always cursor + 1: the first is 1"`, func(t *T) {
		s := t.jsonStream()
		for i := range int64(3) {
			if k := t.publish(s.ID, `["x"]`); k != (Ack{s.ID, i + 1, 1, i + 1, false}) {
				t.Errorf("got %+v", k)
			}
		}
		t.publishAt(s.ID, 10, `[]`)
		if k := t.publish(s.ID, `[]`); k.Seq != 11 || k.Cursor != 11 {
			t.Errorf("after 10 got %+v", k)
		}
	}},
	{"repeated", `spec: "Repeating an already stored sequence returns 200 with duplicate true"; D3: "the first write stands, the body is not compared"; "repeats seq and accepted of the stored batch, with the cursor of now"`, func(t *T) {
		s := t.jsonStream()
		t.publishAt(s.ID, 1, `["first",2]`)
		t.publishAt(s.ID, 2, `[]`)
		for _, text := range []string{`{"events":["first",2]}`, `{"events":["other"]}`, `not even JSON`, ``} {
			k := t.ack(t.post(seqPath(s.ID, 1), jsonBody(text)).want(200), s.ID)
			if k != (Ack{s.ID, 1, 2, 2, true}) {
				t.Errorf("%q: got %+v", text, k)
			}
		}
		t.same(t.batch(s.ID, 1).Events, []byte(`["first",2]`))
	}},
	{"a duplicate needs no body", `D19: sequence: "none of these needs the body"`, func(t *T) {
		s := t.jsonStream()
		t.publishAt(s.ID, 1, `["first"]`)
		t.post(seqPath(s.ID, 1), announced("application/json", 1000)).want(200)
		t.post(seqPath(s.ID, 2000), announced("application/json", 1000)).refused(422, "sequence_too_far_ahead")
		t.post(seqPath(s.ID, 1)+"x", announced("application/json", 1000)).refused(409, "invalid_sequence")
	}},
	{"a duplicate of the server's sequence", `spec: "Idempotent on the pair (stream id, seq)", whoever chose it`, func(t *T) {
		s := t.jsonStream()
		t.publish(s.ID, `["server"]`)
		t.post(seqPath(s.ID, 1), jsonBody(`{"events":["client"]}`)).want(200)
		t.same(t.batch(s.ID, 1).Events, []byte(`["server"]`))
	}},
	{"same sequence at once", `D3: "The same sequence arriving twice at once: one is stored, the other waits for it and then gets 200 duplicate"`, func(t *T) {
		s := t.jsonStream()
		var mu sync.Mutex
		winner, duplicates := -1, 0
		t.together(30, func(i int) {
			a := t.post(seqPath(s.ID, 1), jsonBody(fmt.Sprintf(`{"events":[%d]}`, i)))
			mu.Lock()
			defer mu.Unlock()
			switch k := t.ack(a, s.ID); {
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
		t.same(t.batch(s.ID, 1).Events, fmt.Appendf(nil, `[%d]`, winner))
	}},
	{"many at once", `D2: every server-chosen sequence is given once; D5: what is acknowledged is stored`, func(t *T) {
		s := t.jsonStream()
		var mu sync.Mutex
		stored := map[int64]int{}
		t.together(50, func(i int) {
			k := t.publish(s.ID, fmt.Sprintf(`[%d]`, i))
			if k.Cursor < k.Seq {
				t.Errorf("sequence %d is stored and the cursor %d", k.Seq, k.Cursor)
			}
			mu.Lock()
			defer mu.Unlock()
			stored[k.Seq] = i
		})
		if len(stored) != 50 {
			t.Errorf("50 batches got %d sequences", len(stored))
		}
		sub := t.subscribe(s.ID, "cursor=0")
		for seq := int64(1); seq <= 50; seq++ {
			t.same(sub.batch(seq).Events, fmt.Appendf(nil, `[%d]`, stored[seq]))
		}
	}},
	{"accepted", `spec: accepted "Number of events accepted"; D6: "{"events": []} is a valid batch with accepted: 0"; raw: 1`, func(t *T) {
		s := t.jsonStream()
		for text, want := range map[string]int64{`[]`: 0, `[null]`: 1, `[[1,2],{"a":[3]}]`: 2, `[1,"a",null,true,{},[]]`: 6} {
			if k := t.publish(s.ID, text); k.Accepted != want {
				t.Errorf("%s: accepted %d, want %d", text, k.Accepted, want)
			}
		}
		r := t.rawStream()
		for _, b := range [][]byte{[]byte("x"), nil} {
			if k := t.ack(t.post(nextPath(r.ID), rawBody(b)).want(202), r.ID); k.Accepted != 1 {
				t.Errorf("a raw batch of %d bytes: accepted %d", len(b), k.Accepted)
			}
		}
	}},
	{"other ways to name it", `D30: "A POST to /v1/streams/{id}/x with any x but publish is a sequenced publish"`, func(t *T) {
		s := t.jsonStream()
		for _, x := range []string{"PUBLISH", "publish%20", "cursor", "batches", "head"} {
			t.post("/v1/streams/"+s.ID+"/"+x, jsonBody(`{"events":[]}`)).refused(409, "invalid_sequence")
		}
		t.post("/v1/streams/"+s.ID+"/%70ublish", jsonBody(`{"events":[]}`)).want(202)
		t.post("/v1/streams/"+s.ID+"/%32", jsonBody(`{"events":[]}`)).want(202)
	}},
	{"accepts and subscriptions", `spec: only GET with Accept text/event-stream is a subscription`, func(t *T) {
		s := t.jsonStream()
		t.publish(s.ID, `[1]`, header("Accept", "text/event-stream"))
		for _, path := range []string{"/v1/streams", "/v1/streams/" + s.ID + "/cursor", batchPath(s.ID, 1), "/v1/health"} {
			t.get(path, header("Accept", "text/event-stream")).want(200)
		}
	}},
	{"refused writes leave nothing", `spec: an error stores nothing: cursor and bytes_stored stay`, func(t *T) {
		s := t.jsonStream()
		t.publishAt(s.ID, 5, `[5]`)
		before := t.stream(s.ID)
		t.post(nextPath(s.ID), jsonBody(`{"events":`)).want(400)
		t.post(seqPath(s.ID, 6), jsonBody(`{"events":{}}`)).want(400)
		t.post(seqPath(s.ID, 6), body("text/plain", []byte(`{"events":[]}`))).want(415)
		t.post(seqPath(s.ID, 5+reach+1), jsonBody(`{"events":[]}`)).want(422)
		t.post(seqPath(s.ID, 6), jsonBody(`{"events":[6]}`), key(t.OtherLive)).want(403)
		if after := t.stream(s.ID); after != before {
			t.Errorf("was %+v, is %+v", before, after)
		}
		t.get(batchPath(s.ID, 6)).refused(404, "stream_not_found")
	}},
}
