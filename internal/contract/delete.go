package contract

import (
	"bytes"
	"context"
	"io"
	"net/http"
)

var deleteCases = []Case{
	{"delete", `spec: "Deletes the stream and all its batches. 204 with no body"; D31: deleting a stream that does not exist gives 404`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[1]`)
		t.Delete("/v1/streams/" + s.ID).Want(204)
		t.eachOfStream(s.ID, func(a *Answer) { a.Refused(404, "stream_not_found") })
	}},
	{"subscribers get end", `spec: "When the stream is deleted, every open subscriber receives an SSE event named end"; D16: then the response ends`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[1]`)
		head, oldest, far := t.Subscribe(s.ID, ""), t.Subscribe(s.ID, "cursor=0"), t.Subscribe(s.ID, "cursor=900")
		oldest.Batch(1)
		t.PublishAt(s.ID, 3, `[3]`) // the open gap at 2 must not delay the end event
		t.Delete("/v1/streams/" + s.ID).Want(204)
		head.end()
		oldest.end()
		far.end()
	}},
	{"an id is used again", `D10: the id of a deleted stream may be used again, and the new stream starts empty`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `["old"]`, WithHeader("Idempotency-Key", "k"))
		t.PublishAt(s.ID, 500, `["old"]`)
		t.Delete("/v1/streams/" + s.ID).Want(204)
		again := t.CreateBody(`{"name":"again","id":"` + s.ID + `"}`)
		if again.Cursor != 0 || again.BytesStored != 0 {
			t.Errorf("the new stream is not empty: %+v", again)
		}
		t.Get(BatchPath(s.ID, 1)).Refused(404, "stream_not_found")
		if k := t.Publish(s.ID, `["new"]`, WithHeader("Idempotency-Key", "k")); k.Seq != 1 || k.Duplicate {
			t.Errorf("got %+v, want sequence 1 and no duplicate", k)
		}
		if got := string(t.Batch(s.ID, 1).Events); got != `["new"]` {
			t.Errorf("batch 1 holds %s", got)
		}
		t.Subscribe(s.ID, "cursor=0").Batch(1)
	}},
	{"a publish in flight", `D31: a request in flight to a deleted stream gets 404`, func(t *T) {
		s := t.jsonStream()
		r, w := io.Pipe()
		status := make(chan int, 1)
		go func() {
			resp, err := t.Try(context.Background(), http.MethodPost, NextPath(s.ID), func(q *Request) {
				q.Header.Set("Content-Type", "application/json")
				q.Header.Set("Expect", "100-continue")
				q.Body, q.Length = r, -1
			})
			if err != nil {
				t.Errorf("publish: %v", err)
				status <- 0
				return
			}
			resp.Body.Close()
			status <- resp.StatusCode
		}()
		w.Write(bytes.Repeat([]byte(" "), 4096)) // Write returns once the server has begun to read the body, so the request is in flight
		t.Delete("/v1/streams/" + s.ID).Want(204)
		w.Write([]byte(`{"events":[1]}`))
		w.Close()
		if got := <-status; got != 404 {
			t.Errorf("got %d, want 404", got)
		}
	}},
	{"deleted once", `D31: a delete takes effect at once: of many concurrent deletes of one stream, exactly one succeeds`, func(t *T) {
		s := t.jsonStream()
		gone := make(chan int, 10)
		t.together(10, func(int) { gone <- t.Delete("/v1/streams/" + s.ID).Status })
		close(gone)
		n := map[int]int{}
		for status := range gone {
			n[status]++
		}
		if n[204] != 1 || n[404] != 9 {
			t.Errorf("got %v, want one 204 and nine 404", n)
		}
	}},
	{"key of another project", `spec: "Using it against a stream of another project gives 403 project_forbidden"`, func(t *T) {
		s := t.jsonStream()
		t.Delete("/v1/streams/"+s.ID, WithKey(t.OtherLive)).Refused(403, "project_forbidden")
		t.Stream(s.ID)
	}},
}
