package contract

import (
	"net/http"
)

var subscribeCases = []Case{
	{"events of a subscription", `D16: the header fields and a first frame with retry: 1000 come at once; then each batch is an event named batch, with its sequence as id and the batch object as data`, func(t *T) {
		s := t.jsonStream()
		sub := t.Subscribe(s.ID, "cursor=0")
		t.Publish(s.ID, `[{"n":1}]`)
		t.Publish(s.ID, `[]`)
		for seq := int64(1); seq <= 2; seq++ {
			got, want := sub.Batch(seq), t.Batch(s.ID, seq)
			t.same(got.Events, want.Events)
			if got.TS != want.TS {
				t.Errorf("ts is %s, but %s in the batch object", got.TS, want.TS)
			}
		}
	}},
	{"head", `D15: with cursor=head, and without a cursor parameter, delivery starts above the stream's cursor at that moment`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 0, `["zero"]`)
		empty := t.Subscribe(s.ID, "cursor=head") // starts above the stored sequence 0
		t.Publish(s.ID, `["before"]`)
		subs := []*Subscription{t.Subscribe(s.ID, ""), t.Subscribe(s.ID, "cursor=head"), t.Subscribe(s.ID, "cursor=1")}
		t.Publish(s.ID, `["after"]`)
		empty.Batch(1)
		empty.Batch(2)
		for _, sub := range subs {
			sub.Batch(2)
		}
	}},
	{"head in an empty stream", `D15: in a stream that never had a batch, a subscriber at head gets every batch, even a first one with sequence 0`, func(t *T) {
		for _, query := range []string{"", "cursor=head"} {
			s := t.jsonStream()
			sub := t.Subscribe(s.ID, query)
			t.PublishAt(s.ID, 0, `["zero"]`)
			t.PublishAt(s.ID, 1, `["one"]`)
			sub.Batch(0)
			sub.Batch(1)
		}
	}},
	{"head above a gap", `D15: a batch that later fills a gap below the start of the subscription is not delivered`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 3, `[]`)
		sub := t.Subscribe(s.ID, "")
		t.PublishAt(s.ID, 2, `[]`)
		t.PublishAt(s.ID, 4, `[]`)
		sub.Batch(4)
	}},
	{"start above a gap", `D4: a subscriber does not wait for a gap that lies wholly below its start`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 1, `[]`)
		t.PublishAt(s.ID, 3, `[]`)
		t.PublishAt(s.ID, 4, `[]`)
		sub := t.Subscribe(s.ID, "cursor=3")
		sub.Batch(4)
		// Publishing 2 succeeds, so the gap is still open: the subscription delivered 4 without
		// waiting for the gap to close.
		t.PublishAt(s.ID, 2, `[]`)
		t.PublishAt(s.ID, 5, `[]`)
		sub.Batch(5)
	}},
	{"the first frame", `D16: the first frame has retry: 1000; its id is the position of the subscription, and it has no id if there is no such position`, func(t *T) {
		s := t.create(`"mode":"raw","max_bytes":1048576`)
		for _, query := range []string{"", "cursor=head", "cursor=0"} {
			t.Subscribe(s.ID, query).standsNowhere()
		}
		t.Subscribe(s.ID, "cursor=7").stands(7)
		t.Subscribe(s.ID, "cursor=head", WithHeader("Last-Event-ID", "0")).stands(0)
		for range 3 {
			t.Post(NextPath(s.ID), RawBody([]byte("x"))).Want(202)
		}
		t.Subscribe(s.ID, "").stands(3)
		t.Subscribe(s.ID, "cursor=head").stands(3)
		t.Subscribe(s.ID, "cursor=0").stands(0)
		t.Subscribe(s.ID, "cursor=2").stands(2)
		t.Subscribe(s.ID, "cursor=2", WithHeader("Last-Event-ID", "1")).stands(1)
		t.Post(NextPath(s.ID), RawBody(Filler(MiB))).Want(202) // evicts all other batches
		t.Subscribe(s.ID, "cursor=0").stands(3)
		t.Subscribe(s.ID, "cursor=1").stands(1)
		zero := t.jsonStream()
		t.PublishAt(zero.ID, 0, `[]`)
		t.Subscribe(zero.ID, "").stands(0)
		t.Subscribe(zero.ID, "cursor=0").standsNowhere() // there is no sequence below a stored batch 0
	}},
	{"reconnect before the first batch", `D16: a client that loses its connection before the first batch resumes at the id of the first frame and misses nothing`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `["before"]`)
		for i, query := range []string{"", "cursor=head", "cursor=3", "cursor=0"} {
			sub := t.Subscribe(s.ID, query)
			seq := t.Publish(s.ID, `["meanwhile"]`).Seq
			again := sub.resume(s.ID, query)
			if query == "cursor=0" {
				for seq := int64(1); seq <= int64(i+1); seq++ {
					again.Batch(seq)
				}
			}
			again.Batch(seq)
		}
	}},
	{"zero", `D15: cursor=0 starts with the oldest batch kept, sequence 0 included`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 0, `["zero"]`)
		t.PublishAt(s.ID, 1, `["one"]`)
		sub := t.Subscribe(s.ID, "cursor=0")
		sub.Batch(0)
		sub.Batch(1)
		empty := t.jsonStream()
		early := t.Subscribe(empty.ID, "cursor=0")
		t.PublishAt(empty.ID, 0, `["zero"]`)
		early.Batch(0)
	}},
	{"a number", `D15: cursor=N gives every batch with a sequence above N`, func(t *T) {
		s := t.jsonStream()
		for range 5 {
			t.Publish(s.ID, `[]`)
		}
		for n := int64(1); n <= 5; n++ {
			sub := t.Subscribe(s.ID, "cursor="+itoa(int(n)))
			for seq := n + 1; seq <= 5; seq++ {
				sub.Batch(seq)
			}
		}
	}},
	{"the future", `D15: N in cursor=N may be above the stream's cursor`, func(t *T) {
		s := t.jsonStream()
		sub := t.Subscribe(s.ID, "cursor=3")
		for seq := int64(1); seq <= 5; seq++ {
			t.PublishAt(s.ID, seq, `[]`)
		}
		sub.Batch(4)
		sub.Batch(5)
		t.Subscribe(s.ID, "cursor=9007199254740991")
	}},
	{"Last-Event-ID", `D15: a Last-Event-ID header takes precedence over the cursor parameter; delivery starts strictly above the given id`, func(t *T) {
		s := t.jsonStream()
		t.PublishAt(s.ID, 0, `["zero"]`)
		for range 3 {
			t.Publish(s.ID, `[]`)
		}
		for _, query := range []string{"", "cursor=0", "cursor=head", "cursor=1"} {
			t.Subscribe(s.ID, query, WithHeader("Last-Event-ID", "2")).Batch(3)
		}
		sub := t.Subscribe(s.ID, "", WithHeader("Last-Event-ID", "0"))
		sub.Batch(1) // strictly above 0, unlike cursor=0
		sub.Batch(2)
	}},
	{"bad starts", `D15: any other value of cursor or Last-Event-ID gives 400 invalid_request_error`, func(t *T) {
		s := t.jsonStream()
		sse := WithHeader("Accept", "text/event-stream")
		for _, v := range []string{"abc", "-1", "HEAD", "1.0", "01", "1e1", "%2B1", "9007199254740992", "18446744073709551616", "%00", "tail", "1%20"} {
			t.Get("/v1/streams/"+s.ID+"?cursor="+v, sse).Refused(400, "invalid_request_error")
		}
		for _, v := range []string{"abc", "-1", "head", "1.0", "01", "9007199254740992", "1 2"} {
			t.Get("/v1/streams/"+s.ID, sse, WithHeader("Last-Event-ID", v)).Refused(400, "invalid_request_error")
		}
	}},
	{"malformed queries", `D35: if the parameter cursor cannot be parsed, the response is 400; the server does not start at the head instead`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[]`)
		sse := WithHeader("Accept", "text/event-stream")
		for _, q := range []string{"cursor=%zz", "cursor=1;a=b", "cursor=0%", "cursor=0;", "cursor;a=b", "c%75rsor=%zz", "a=b&cursor=%zz", "cursor=0&cursor=%zz"} {
			t.Get("/v1/streams/"+s.ID+"?"+q, sse).Refused(400, "invalid_request_error")
		}
		for _, q := range []string{"a=%zz", "%zz=1", "a;b", "a=b;cursor=x", "curso%=7", "cursors=%zz"} {
			t.Subscribe(s.ID, q+"&cursor=0").Batch(1)
		}
	}},
	{"accept", `D28: a request is a subscription when its Accept lists text/event-stream with a quality above 0`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[]`)
		for _, values := range [][]string{{"text/event-stream"}, {"text/event-stream;q=0.1, application/json"}, {"application/json", "text/event-stream"},
			{"TEXT/Event-Stream"}, {"application/json,text/event-stream ; q=0.001"}, {"text/event-stream;charset=utf-8"}} {
			t.Subscribe(s.ID, "cursor=0", WithHeader("Accept", values...)).Batch(1)
		}
		for _, values := range [][]string{nil, {"*/*"}, {"application/json"}, {"text/*"}, {"text/event-stream;q=0"}, {"text/event-stream;q=0.000, */*"}, {"text/html"}, {"text/event-streams"}, {"x-text/event-stream"}} {
			var got Stream
			t.Get("/v1/streams/"+s.ID, WithHeader("Accept", values...)).Want(200).decode(&got)
		}
	}},
	{"HEAD never subscribes", `D30: HEAD works wherever GET does and never subscribes`, func(t *T) {
		s := t.jsonStream()
		a := t.do(http.MethodHead, "/v1/streams/"+s.ID+"?cursor=0", WithHeader("Accept", "text/event-stream")).Want(200)
		if got := a.Header.Get("Content-Type"); got != "application/json" {
			t.Errorf("content type is %q, want that of the stream object", got)
		}
	}},
	{"refused subscriptions", `spec: "Errors: 404 stream_not_found; 400 invalid_stream_id; 403 project_forbidden"`, func(t *T) {
		s := t.jsonStream()
		sse := WithHeader("Accept", "text/event-stream")
		t.Get("/v1/streams/"+NewID(), sse).Refused(404, "stream_not_found")
		t.Get("/v1/streams/short", sse).Refused(400, "invalid_stream_id")
		t.Get("/v1/streams/"+s.ID, sse, WithKey(t.OtherLive)).Refused(403, "project_forbidden")
		t.Get("/v1/streams/"+s.ID, sse, WithKey("")).Refused(401, "missing_api_key")
	}},
}
