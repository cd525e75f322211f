package contract

import (
	"net/http"
)

var subscribeCases = []Case{
	{"what is sent", `D16: "First, at once, the header fields and retry: 1000. Then per batch" id, event: batch and the batch object as data`, func(t *T) {
		s := t.jsonStream()
		sub := t.subscribe(s.ID, "cursor=0")
		t.publish(s.ID, `[{"n":1}]`)
		t.publish(s.ID, `[]`)
		for seq := int64(1); seq <= 2; seq++ {
			got, want := sub.batch(seq), t.batch(s.ID, seq)
			t.same(got.Events, want.Events)
			if got.TS != want.TS {
				t.Errorf("ts is %s, and %s in the batch object", got.TS, want.TS)
			}
		}
	}},
	{"head", `D15: "cursor=head (and no cursor): as cursor=N with N the cursor at that moment"`, func(t *T) {
		s := t.jsonStream()
		t.publishAt(s.ID, 0, `["zero"]`)
		empty := t.subscribe(s.ID, "cursor=head") // a stored 0 is behind it
		t.publish(s.ID, `["before"]`)
		subs := []*Subscription{t.subscribe(s.ID, ""), t.subscribe(s.ID, "cursor=head"), t.subscribe(s.ID, "cursor=1")}
		t.publish(s.ID, `["after"]`)
		empty.batch(1)
		empty.batch(2)
		for _, sub := range subs {
			sub.batch(2)
		}
	}},
	{"head above a gap", `D15: "as cursor=N": what fills a gap below the cursor later is behind the head`, func(t *T) {
		s := t.jsonStream()
		t.publishAt(s.ID, 3, `[]`)
		sub := t.subscribe(s.ID, "")
		t.publishAt(s.ID, 2, `[]`)
		t.publishAt(s.ID, 4, `[]`)
		sub.batch(4)
	}},
	{"zero", `D15: "cursor=0: from the oldest batch kept, sequence 0 included"`, func(t *T) {
		s := t.jsonStream()
		t.publishAt(s.ID, 0, `["zero"]`)
		t.publishAt(s.ID, 1, `["one"]`)
		sub := t.subscribe(s.ID, "cursor=0")
		sub.batch(0)
		sub.batch(1)
		empty := t.jsonStream()
		early := t.subscribe(empty.ID, "cursor=0")
		t.publishAt(empty.ID, 0, `["zero"]`)
		early.batch(0)
	}},
	{"a number", `D15: "cursor=N: every batch with a sequence above N"`, func(t *T) {
		s := t.jsonStream()
		for range 5 {
			t.publish(s.ID, `[]`)
		}
		for n := int64(1); n <= 5; n++ {
			sub := t.subscribe(s.ID, "cursor="+itoa(int(n)))
			for seq := n + 1; seq <= 5; seq++ {
				sub.batch(seq)
			}
		}
	}},
	{"the future", `D15: "N may lie in the future"`, func(t *T) {
		s := t.jsonStream()
		sub := t.subscribe(s.ID, "cursor=3")
		for seq := int64(1); seq <= 5; seq++ {
			t.publishAt(s.ID, seq, `[]`)
		}
		sub.batch(4)
		sub.batch(5)
		t.subscribe(s.ID, "cursor=9007199254740991")
	}},
	{"Last-Event-ID", `D15: "A Last-Event-ID header takes precedence over the parameter and means strictly above it"`, func(t *T) {
		s := t.jsonStream()
		t.publishAt(s.ID, 0, `["zero"]`)
		for range 3 {
			t.publish(s.ID, `[]`)
		}
		for _, query := range []string{"", "cursor=0", "cursor=head", "cursor=1"} {
			t.subscribe(s.ID, query, header("Last-Event-ID", "2")).batch(3)
		}
		sub := t.subscribe(s.ID, "", header("Last-Event-ID", "0"))
		sub.batch(1) // strictly above: unlike cursor=0
		sub.batch(2)
	}},
	{"bad starts", `D15: "Anything else: 400 invalid_request_error"`, func(t *T) {
		s := t.jsonStream()
		sse := header("Accept", "text/event-stream")
		for _, v := range []string{"abc", "-1", "HEAD", "1.0", "01", "1e1", "%2B1", "9007199254740992", "18446744073709551616", "%00", "tail", "1%20"} {
			t.get("/v1/streams/"+s.ID+"?cursor="+v, sse).refused(400, "invalid_request_error")
		}
		for _, v := range []string{"abc", "-1", "head", "1.0", "01", "9007199254740992", "1 2"} {
			t.get("/v1/streams/"+s.ID, sse, header("Last-Event-ID", v)).refused(400, "invalid_request_error")
		}
	}},
	{"accept", `D28: "a request is a subscription when its Accept lists text/event-stream with a quality above 0"`, func(t *T) {
		s := t.jsonStream()
		t.publish(s.ID, `[]`)
		for _, values := range [][]string{{"text/event-stream"}, {"text/event-stream;q=0.1, application/json"}, {"application/json", "text/event-stream"},
			{"TEXT/Event-Stream"}, {"application/json,text/event-stream ; q=0.001"}, {"text/event-stream;charset=utf-8"}} {
			t.subscribe(s.ID, "cursor=0", header("Accept", values...)).batch(1)
		}
		for _, values := range [][]string{nil, {"*/*"}, {"application/json"}, {"text/*"}, {"text/event-stream;q=0"}, {"text/event-stream;q=0.000, */*"}, {"text/html"}, {"text/event-streams"}, {"x-text/event-stream"}} {
			var got Stream
			t.get("/v1/streams/"+s.ID, header("Accept", values...)).want(200).into(&got)
		}
	}},
	{"HEAD never subscribes", `D30: "HEAD works wherever GET does and never subscribes"`, func(t *T) {
		s := t.jsonStream()
		a := t.do(http.MethodHead, "/v1/streams/"+s.ID+"?cursor=0", header("Accept", "text/event-stream")).want(200)
		if got := a.Header.Get("Content-Type"); got != "application/json" {
			t.Errorf("the content type is %q, and should be that of the stream object", got)
		}
	}},
	{"refused subscriptions", `spec: "Errors: 404 stream_not_found; 400 invalid_stream_id; 403 project_forbidden"`, func(t *T) {
		s := t.jsonStream()
		sse := header("Accept", "text/event-stream")
		t.get("/v1/streams/"+newID(), sse).refused(404, "stream_not_found")
		t.get("/v1/streams/short", sse).refused(400, "invalid_stream_id")
		t.get("/v1/streams/"+s.ID, sse, key(t.OtherLive)).refused(403, "project_forbidden")
		t.get("/v1/streams/"+s.ID, sse, key("")).refused(401, "missing_api_key")
	}},
}
