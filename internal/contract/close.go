package contract

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
)

// closePath is the path that closes a stream (D37).
func closePath(id string) string { return "/v1/streams/" + id + "/close" }

// closeStream closes a stream and checks the stream object in the response.
func closeStream(t *T, id string, cursor int64) {
	t.Helper()
	var s Stream
	t.Post(closePath(id)).Want(200).decode(&s)
	if !s.Closed || s.ID != id || s.Cursor != cursor {
		t.Errorf("closing returned %+v, want stream %s, closed, with cursor %d", s, id, cursor)
	}
	if got := t.Stream(id); got != s {
		t.Errorf("the closed stream is %+v, closing returned %+v", got, s)
	}
}

var closeCases = []Case{
	{"close", `D37: closing a stream returns 200 with the stream object, which then has "closed": true; closing it again returns the same; later publishes get 409 stream_closed, but duplicates still get 200`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[1]`)
		t.Publish(s.ID, `[2]`, WithHeader("Idempotency-Key", "k"))
		closeStream(t, s.ID, 2)
		closeStream(t, s.ID, 2)
		one := JSONBody(`{"events":[1]}`)
		t.Post(NextPath(s.ID), one).Refused(409, "stream_closed")
		if !t.Spread { // a node that does not know yet that the stream was closed reads the body
			t.Post(NextPath(s.ID), JSONBody(`{`)).Refused(409, "stream_closed") // D19
		}
		t.Post(NextPath(s.ID), one, WithHeader("Idempotency-Key", "other")).Refused(409, "stream_closed")
		for _, seq := range []int64{0, 3, 1026, 1<<53 - 1} {
			t.Post(SeqPath(s.ID, seq), one).Refused(409, "stream_closed")
			t.Post(SeqPath(s.ID, seq), one, inOrder).Refused(409, "stream_closed")
		}
		t.Post("/v1/streams/"+s.ID+"/x", one).Refused(409, "invalid_sequence")
		for seq := int64(1); seq <= 2; seq++ {
			t.Post(SeqPath(s.ID, seq), one).Want(200)
		}
		again := t.Post(NextPath(s.ID), JSONBody(`{"events":[9]}`), WithHeader("Idempotency-Key", "k")).Want(200)
		if k := t.Ack(again, s.ID); k.Seq != 2 || !k.Duplicate {
			t.Errorf("got %+v, want a duplicate of 2", k)
		}
		if got := string(t.Batch(s.ID, 2).Events); got != `[2]` {
			t.Errorf("batch 2 holds %s", got)
		}
	}},
	{"an empty stream", `D37: a stream without a batch can be closed, and its subscribers get an end event`, func(t *T) {
		s := t.jsonStream()
		sub := t.Subscribe(s.ID, "")
		closeStream(t, s.ID, 0)
		sub.endsWith("stream_closed")
		t.Subscribe(s.ID, "cursor=0").endsWith("stream_closed")
		t.Post(SeqPath(s.ID, 0), JSONBody(`{"events":[]}`)).Refused(409, "stream_closed")
	}},
	{"subscribers get everything", `D37: every subscriber, also one that comes later, gets all batches and then an end event with the reason stream_closed`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[1]`)
		head, oldest, far := t.Subscribe(s.ID, ""), t.Subscribe(s.ID, "cursor=0"), t.Subscribe(s.ID, "cursor=900")
		t.Publish(s.ID, `[2]`)
		closeStream(t, s.ID, 2)
		head.Batch(2)
		head.endsWith("stream_closed")
		oldest.Batch(1)
		oldest.Batch(2)
		oldest.endsWith("stream_closed")
		far.endsWith("stream_closed")
		late := t.Subscribe(s.ID, "cursor=0")
		late.Batch(1)
		late.Batch(2)
		late.endsWith("stream_closed")
		t.Subscribe(s.ID, "", WithHeader("Last-Event-ID", "2")).endsWith("stream_closed")
	}},
	{"open gaps", `D37: closing a stream first closes its open gaps; a publish into one of them then gets 409 stream_closed, even if the server was already reading its body`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 1, `[1]`)
		t.PublishAt(s.ID, 4, `[4]`)
		sub := t.Subscribe(s.ID, "cursor=0")
		sub.Batch(1)
		r, w := io.Pipe()
		status := make(chan int, 1)
		go func() {
			resp, err := t.Try(context.Background(), http.MethodPost, SeqPath(s.ID, 2), func(q *Request) {
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
		w.Write(bytes.Repeat([]byte(" "), 4096)) // Write returns once the server has begun to read the body
		closeStream(t, s.ID, 4)
		w.Write([]byte(`{"events":[2]}`))
		w.Close()
		if got := <-status; got != 409 {
			t.Errorf("the publish whose body was on its way got %d, want 409", got)
		}
		sub.Batch(4)
		sub.endsWith("stream_closed")
		t.Post(SeqPath(s.ID, 3), JSONBody(`{"events":[3]}`)).Refused(409, "stream_closed")
	}},
	{"pages", `D37: a long poll at the end of a closed stream returns at once with "closed": true in the page`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[1]`)
		t.Publish(s.ID, `[2]`)
		closeStream(t, s.ID, 2)
		for query, want := range map[string]string{
			"limit=1": `"next":2,"cursor":2}`, "from=2": `"next":3,"cursor":2,"closed":true}`,
			"from=head&wait=30": `{"batches":[],"next":3,"cursor":2,"closed":true}`,
		} {
			if got := string(t.Get("/v1/streams/" + s.ID + "/batches?" + query).Want(200).Body); !strings.HasSuffix(got, want) {
				t.Errorf("%s: the page is %s, want its end to be %s", query, got, want)
			}
		}
	}},
	{"delete", `D37: a closed stream can be deleted like any other`, func(t *T) {
		s := t.rawStream()
		closeStream(t, s.ID, 0)
		t.Delete("/v1/streams/" + s.ID).Want(204)
		t.Post(closePath(s.ID)).Refused(404, "stream_not_found")
	}},
	{"refusals", `D37: closing needs the permission manage, like deleting; D22: no key can close the demo stream`, func(t *T) {
		s := t.jsonStream()
		t.Post(closePath(s.ID), WithKey("")).Refused(401, "missing_api_key")
		t.Post(closePath("short")).Refused(400, "invalid_stream_id")
		t.Post(closePath("0123456789abcdefghijkl")).Refused(404, "stream_not_found")
		t.Get(closePath(s.ID)).Refused(405, "method_not_allowed")
	}},
}
