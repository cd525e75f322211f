package contract

import (
	"fmt"
	"strings"
)

var basicCases = []Case{
	{"health", `spec: "GET /v1/health: No authentication. 200: health object"; status "ok", uptime_s integer; D32`, func(t *T) {
		var h struct {
			Status string `json:"status"`
			Uptime int64  `json:"uptime_s"`
		}
		for _, k := range []string{"", t.Live, "svc_live_nonsense"} {
			t.Get("/v1/health", WithKey(k)).Want(200).decode(&h)
			if h.Status != "ok" || h.Uptime < 0 {
				t.Errorf("the health object is %+v, want status ok", h)
			}
		}
	}},
	{"version", `spec: "GET /v1/version returns the build version, commit and built timestamp", without a key`, func(t *T) {
		var v struct {
			Version string `json:"version"`
			Commit  string `json:"commit"`
			Built   string `json:"built"`
		}
		t.Get("/v1/version", WithKey("")).Want(200).decode(&v)
		t.checkTime(v.Built)
		if v.Version == "" || v.Commit == "" {
			t.Errorf("the version object is %+v, want a version and a commit", v)
		}
	}},
	{"content type of responses", `spec: "requests and responses are JSON (application/json)"`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `[1]`)
		for _, path := range []string{"/v1/health", "/v1/version", "/v1/streams", "/v1/streams/" + s.ID, "/v1/streams/" + s.ID + "/cursor", BatchPath(s.ID, 1), "/v1/nowhere"} {
			if got := t.Get(path).Header.Get("Content-Type"); got != "application/json" {
				t.Errorf("%s: content type is %q", path, got)
			}
		}
		if got := t.Post(NextPath(s.ID), JSONBody(`{"events":[]}`)).Want(202).Header.Get("Content-Type"); got != "application/json" {
			t.Errorf("acknowledgement: content type is %q", got)
		}
	}},
	{"unknown query parameters", `spec: "Unknown query parameters are ignored on every endpoint and are never rejected"`, func(t *T) {
		const junk = "?nonsense=1&limits=x&since=%00&a[]=b&&=&%zz"
		var s Stream
		t.Post("/v1/streams"+junk, JSONBody(`{"name":"unknown parameters"}`)).Want(201).decode(&s)
		t.Cleanup(func() { t.remove(s.ID) })
		t.Post(NextPath(s.ID)+junk, JSONBody(`{"events":[1]}`)).Want(202)
		t.Post(SeqPath(s.ID, 2)+junk, JSONBody(`{"events":[1]}`)).Want(202)
		for _, path := range []string{"/v1/health", "/v1/version", "/v1/streams", "/v1/streams/" + s.ID, "/v1/streams/" + s.ID + "/cursor", BatchPath(s.ID, 1)} {
			t.Get(path + junk).Want(200)
		}
		t.Get("/v1/streams/" + s.ID + "?cursor=nonsense&limit=0").Want(200)
		t.Get("/v1/streams/" + s.ID + "/cursor?cursor=nonsense").Want(200)
		t.Subscribe(s.ID, "cursor=0&"+junk[1:]+"&limit=x").Batch(1)
		t.Delete("/v1/streams/" + s.ID + junk).Want(204)
	}},
	{"many query parameters", `spec: "Unknown query parameters are ignored on every endpoint", even 800 of them`, func(t *T) {
		var b strings.Builder
		for i := range 800 {
			fmt.Fprintf(&b, "&p%d=x", i)
		}
		t.Get("/v1/streams?limit=1" + b.String()).Want(200)
	}},
	{"request ids", `D30: a request id is req_ followed by 16 base62 characters; the server generates it and ignores an id that the client sends`, func(t *T) {
		const theirs = "req_0123456789abcdef"
		a := t.Get("/v1/health", WithHeader("X-Request-Id", theirs), WithHeader("X-Ratelimit-Limit", "7"), WithHeader("Server", "mine"))
		if a.Header.Get("X-Request-Id") == theirs {
			t.Errorf("the response repeats the x-request-id that the client sent")
		}
	}},
	{"conditional and partial requests", `spec: "cache-control: no-store": no request gets 304 or 206`, func(t *T) {
		s := t.jsonStream()
		t.Publish(s.ID, `["whole"]`)
		for _, o := range []Option{WithHeader("Range", "bytes=0-1"), WithHeader("If-None-Match", "*"), WithHeader("If-Modified-Since", "Fri, 31 Dec 2100 00:00:00 GMT")} {
			t.Get(BatchPath(s.ID, 1), o).Want(200)
			t.Get("/v1/streams/"+s.ID, o).Want(200)
		}
	}},
	{"method override headers", `spec: an endpoint is a method and a path; no header field or parameter can replace them`, func(t *T) {
		s := t.jsonStream()
		for _, name := range []string{"X-Http-Method-Override", "X-Method-Override", "X-Http-Method"} {
			t.Get("/v1/streams/"+s.ID, WithHeader(name, "DELETE")).Want(200)
		}
		t.Get("/v1/streams/"+s.ID+"?_method=DELETE", WithHeader("X-Original-Url", "/v1/nowhere"), WithHeader("X-Rewrite-Url", "/v1/nowhere")).Want(200)
		t.Stream(s.ID)
	}},
}
