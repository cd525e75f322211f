package contract

import (
	"net/http"
	"slices"
	"strings"
)

// list returns the names in a comma-separated header field, in lower case.
func list(h http.Header, name string) []string {
	return strings.FieldsFunc(strings.ToLower(strings.Join(h.Values(name), ",")), func(r rune) bool { return r == ',' || r == ' ' })
}

var corsCases = []Case{
	{"preflight", `D29: a preflight needs no key and allows authorization, content-type, idempotency-key, last-event-id, x-svc-contiguous and x-svc-publisher`, func(t *T) {
		s := t.jsonStream()
		for path, methods := range map[string][]string{
			"/v1/health": {"GET"}, "/v1/streams": {"GET", "POST"}, "/v1/streams/" + s.ID: {"GET", "PATCH", "DELETE"},
			NextPath(s.ID): {"POST"}, SeqPath(s.ID, 1): {"POST"}, "/v1/streams/" + s.ID + "/cursor": {"GET"}, BatchPath(s.ID, 1): {"GET"},
			PagePath(s.ID, ""): {"GET"},
		} {
			for _, m := range methods {
				a := t.do(http.MethodOptions, path, WithKey(""), WithHeader("Origin", "https://page.example"), WithHeader("Access-Control-Request-Method", m),
					WithHeader("Access-Control-Request-Headers", "authorization,content-type,idempotency-key,last-event-id,x-svc-contiguous,x-svc-publisher"))
				if a.Status != 204 && a.Status != 200 {
					t.Errorf("%s: preflight has status %d", path, a.Status)
				}
				if o := a.Header.Get("Access-Control-Allow-Origin"); o != "*" && o != "https://page.example" {
					t.Errorf("%s: allow-origin is %q", path, o)
				}
				if got := list(a.Header, "Access-Control-Allow-Methods"); !slices.Contains(got, strings.ToLower(m)) {
					t.Errorf("%s: allow-methods is %v, without %s", path, got, m)
				}
				got := list(a.Header, "Access-Control-Allow-Headers")
				for _, want := range []string{"authorization", "content-type", "idempotency-key", "last-event-id", "x-svc-contiguous", "x-svc-publisher"} {
					if !slices.Contains(got, want) {
						t.Errorf("%s: allow-headers is %v, without %s", path, got, want)
					}
				}
			}
		}
	}},
	{"exposed header fields", `D29: scripts can read x-request-id, the rate-limit fields, retry-after, x-svc-cursor, x-svc-outcome, x-svc-publisher and x-svc-stream-created`, func(t *T) {
		s := t.jsonStream()
		from := WithHeader("Origin", "https://page.example")
		for _, a := range []*Answer{
			t.Get("/v1/health", from), t.Get("/v1/streams", from), t.Get("/v1/streams", from, WithKey("")), t.Get("/v1/nowhere", from),
			t.Post(NextPath(s.ID), JSONBody(`{"events":[]}`), from), t.do("PUT", "/v1/streams", from), t.Post(NextPath(s.ID), JSONBody(`x`), from),
		} {
			if o := a.Header.Get("Access-Control-Allow-Origin"); o != "*" && o != "https://page.example" {
				t.Errorf("%s: allow-origin is %q", a.request, o)
			}
			got := list(a.Header, "Access-Control-Expose-Headers")
			for _, want := range []string{"x-request-id", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after", "x-svc-cursor", "x-svc-outcome", "x-svc-publisher", "x-svc-stream-created"} {
				if !slices.Contains(got, want) {
					t.Errorf("%s: expose-headers is %v, without %s", a.request, got, want)
				}
			}
			if a.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s: credentials are allowed", a.request)
			}
		}
	}},
	{"subscriptions", `D29: /v1 answers CORS requests, so browsers can subscribe`, func(t *T) {
		s := t.jsonStream()
		ctx, cancel := contextWithTimeout()
		defer cancel()
		resp := t.Send(ctx, "GET", "/v1/streams/"+s.ID, WithHeader("Accept", "text/event-stream"), WithHeader("Origin", "https://page.example"))
		defer resp.Body.Close()
		if o := resp.Header.Get("Access-Control-Allow-Origin"); o != "*" && o != "https://page.example" {
			t.Errorf("allow-origin is %q", o)
		}
	}},
}
