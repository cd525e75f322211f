package contract

import (
	"strings"
	"sync"
	"time"
)

var streamCases = []Case{
	{"a new stream", `spec: "A new stream has cursor 0 and bytes_stored 0"; defaults 86400, 268435456, json`, func(t *T) {
		before := time.Now().Add(-2 * time.Second)
		s := t.CreateBody(`{"name":"new"}`)
		if s.Name != "new" || s.RetentionSeconds != 86400 || s.MaxBytes != 268435456 || s.Mode != "json" || s.Cursor != 0 || s.BytesStored != 0 {
			t.Errorf("created %+v, want an empty json stream with the default limits", s)
		}
		if made := t.checkTime(s.CreatedAt); made.Before(before) {
			t.Errorf("created_at is %s, before the request", s.CreatedAt)
		}
		if got := t.Stream(s.ID); got != s {
			t.Errorf("create returned %+v, get returns %+v", s, got)
		}
	}},
	{"names are not unique", `spec: "Uniqueness is not required"`, func(t *T) {
		if a, b := t.CreateBody(`{"name":"twin"}`), t.CreateBody(`{"name":"twin"}`); a.ID == b.ID {
			t.Errorf("two streams have the id %s", a.ID)
		}
	}},
	{"get after writes", `spec: cursor "Sequence of the newest batch", bytes_stored "Bytes currently stored"; D11`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[1,2,3]`)
		t.Publish(s.ID, `["abc"]`)
		got := t.Stream(s.ID)
		if want := int64(len(`[1,2,3]`) + len(`["abc"]`)); got.Cursor != 2 || got.BytesStored != want {
			t.Errorf("got cursor %d and %d bytes, want 2 and %d", got.Cursor, got.BytesStored, want)
		}
		s.Cursor, s.BytesStored = got.Cursor, got.BytesStored
		if got != s {
			t.Errorf("writing changed other fields: %+v, was %+v", got, s)
		}
	}},
	{"raw bytes are counted", `D11: bytes_stored counts the bytes in the body of a raw batch`, func(t *T) {
		s := t.rawStream()
		t.Post(NextPath(s.ID), RawBody(make([]byte, 1000))).Want(202)
		t.Post(NextPath(s.ID), RawBody(nil)).Want(202)
		if got := t.Stream(s.ID); got.BytesStored != 1000 || got.Cursor != 2 || got.Mode != "raw" {
			t.Errorf("got stream %+v, want 1000 bytes stored and cursor 2", got)
		}
	}},
	{"a duplicate adds no bytes", `D11: bytes_stored is exact after every acknowledged write`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 1, `[1]`)
		t.Post(SeqPath(s.ID, 1), JSONBody(`{"events":[1,2,3]}`)).Want(200)
		if got := t.Stream(s.ID).BytesStored; got != 3 {
			t.Errorf("bytes_stored is %d, want 3", got)
		}
	}},
	{"the cursor object", `spec: "GET /v1/streams/{id}/cursor"; D13: updated_at is when the batch at the cursor was stored; on a stream without batches it equals created_at`, func(t *T) {
		s := t.jsonStream()
		if got := t.Cursor(s.ID); got.Cursor != 0 || got.UpdatedAt != s.CreatedAt {
			t.Errorf("empty stream: got %+v, created at %s", got, s.CreatedAt)
		}
		t.PublishAt(s.ID, 1, `[]`)
		t.PublishAt(s.ID, 3, `[]`)
		t.PublishAt(s.ID, 2, `[]`)
		if got, b := t.Cursor(s.ID), t.Batch(s.ID, 3); got.Cursor != 3 || got.UpdatedAt != b.TS {
			t.Errorf("got %+v, batch 3 was stored at %s", got, b.TS)
		}
	}},
	{"times do not go back", `D14: within a stream, ts never decreases from one stored batch to the next`, func(t *T) {
		s := t.jsonStream()
		last := s.CreatedAt
		for i := range int64(30) {
			t.Publish(s.ID, `[]`)
			ts := t.Batch(s.ID, i+1).TS
			if ts < last {
				t.Errorf("batch %d has ts %s, but the one before it has %s", i+1, ts, last)
			}
			last = ts
		}
	}},
	{"unknown streams", `spec: "404 stream_not_found"`, func(t *T) {
		for _, id := range []string{NewID(), strings.Repeat("z", 22)} {
			t.eachOfStream(id, func(a *Answer) { a.Refused(404, "stream_not_found") })
		}
	}},
	{"invalid ids", `spec: "400 invalid_stream_id: Stream id in the path is invalid"; ids are "bare base62 strings of 22 characters"`, func(t *T) {
		good := NewID()
		for _, id := range []string{good[1:], good + "0", good[1:] + "-", good[1:] + "_", good[1:] + ".", good[1:] + "%20",
			good[1:] + "%C3%A9", "%2e%2e", "..%2f..%2fetc%2fpasswd", "a%2fb", good + "%00", "%ff%fe", "x", "streams"} {
			t.eachOfStream(id, func(a *Answer) { a.Refused(400, "invalid_stream_id") })
		}
	}},
	{"created once", `D10: ids are unique over all projects: of many concurrent creates of one id, one succeeds`, func(t *T) {
		id := NewID()
		t.Cleanup(func() { t.remove(id) })
		var made sync.Map
		t.together(20, func(i int) {
			if a := t.Post("/v1/streams", JSONBody(`{"name":"race","id":"`+id+`"}`)); a.Status == 201 {
				made.Store(i, true)
			} else {
				a.Refused(409, "stream_name_taken")
			}
		})
		n := 0
		made.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			t.Errorf("%d of 20 creates succeeded, want one", n)
		}
	}},
}

// eachOfStream sends a request to every endpoint of a stream and checks each response.
func (t *T) eachOfStream(id string, check func(*Answer), options ...Option) {
	t.Helper()
	path := "/v1/streams/" + id
	with := func(o ...Option) []Option { return append(o, options...) }
	check(t.Get(path, options...))
	check(t.Get(path, with(WithHeader("Accept", "text/event-stream"))...))
	check(t.Get(path+"/cursor", options...))
	check(t.Get(path+"/batches/1", options...))
	check(t.Post(path+"/publish", with(JSONBody(`{"events":[]}`))...))
	check(t.Post(path+"/1", with(JSONBody(`{"events":[]}`))...))
	check(t.Post(path+"/close", options...))
	check(t.Delete(path, options...))
}

// together calls f n times at once and waits for all calls.
func (t *T) together(n int, f func(i int)) {
	t.Helper()
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	all.Wait()
}
