package contract

import (
	"maps"
	"slices"
	"strings"
)

// errorCases check the page that explains errors, the header field x-content-type-options and the
// wording of messages. The checks that hold for every error (envelope, type, status, doc_url) are
// in universal.go and run on every response of every case.
var errorCases = []Case{
	{"explained on a page", `D26: doc_url is {base_url}/docs/errors#<code>, a page of the same server with an anchor for every code`, func(t *T) {
		a := t.Get("/docs/errors", WithKey("")).Want(200)
		if got := a.Header.Get("Content-Type"); !strings.HasPrefix(got, "text/html") {
			t.Errorf("content type %q", got)
		}
		for _, code := range slices.Sorted(maps.Keys(faults)) {
			if !strings.Contains(string(a.Body), `id="`+code+`"`) {
				t.Errorf("/docs/errors has no anchor for %s", code)
			}
		}
	}},
	{"nosniff everywhere", `D30: x-content-type-options: nosniff is on every response`, func(t *T) {
		for _, path := range []string{"/docs/errors", "/v1/health", "/v1/nowhere", "/nowhere"} {
			if got := t.Get(path, WithKey("")).Header.Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("%s: x-content-type-options is %q", path, got)
			}
		}
	}},
	{"messages", `spec: error.message "Human-readable text": it reveals no server internals and does not echo markup sent by the client`, func(t *T) {
		s := t.jsonStream()
		for _, a := range []*Answer{
			t.Get("/v1/streams/%3Cscript%3E"), t.Get("/v1/streams?cursor=%3Cscript%3E"), t.Get("/v1/%3Cscript%3E"),
			t.Post(NextPath(s.ID), JSONBody(`{"events":<script>}`)), t.Post("/v1/streams", JSONBody(`{"name":1}`)),
		} {
			for _, word := range []string{"<script", ".go:", "goroutine", "panic", "0xc0"} {
				if strings.Contains(a.message(), word) {
					t.Errorf("%s: the message contains %q: %s", a.request, word, a.message())
				}
			}
		}
	}},
}
