package contract

import (
	"bytes"
	"io"
	"net/http"
	"strings"
)

// wireCases check behaviour that depends on the version of HTTP: bodies that are not read, bodies
// in pieces, many requests at once on one connection.
var wireCases = []Case{
	{"refused before the body", `D19: the key is checked first, so a refused key is reported without reading the body`, func(t *T) {
		s := t.rawStream()
		for _, k := range []string{"", unknownKey} {
			code := map[string]string{"": "missing_api_key", unknownKey: "invalid_api_key"}[k]
			t.Post(NextPath(s.ID), announced("application/octet-stream", 1<<40), WithKey(k)).Refused(401, code)
			t.Post(NextPath(s.ID), RawBody(Filler(BodyLimit)), WithKey(k)).Refused(401, code)
			t.Post(NextPath(s.ID), RawBody(Filler(BodyLimit)), undeclared(), WithKey(k)).Refused(401, code)
		}
		t.Post(NextPath(s.ID), RawBody(Filler(MiB))).Want(202) // the client can continue after a refusal
		if got := t.Stream(s.ID).Cursor; got != 1 {
			t.Errorf("cursor is %d, want 1", got)
		}
	}},
	{"refused in the middle of the body", `D9: a body that is too large is refused without reading it to the end, also when it arrives in pieces`, func(t *T) {
		s := t.rawStream()
		for range 3 {
			body, more := io.Pipe()
			go func() {
				piece := Filler(MiB)
				for { // until the HTTP client stops reading from the pipe
					if _, err := more.Write(piece); err != nil {
						return
					}
				}
			}()
			t.Post(NextPath(s.ID), func(r *Request) {
				r.Header.Set("Content-Type", "application/octet-stream")
				r.Body, r.Length = body, -1
			}).Refused(413, "payload_too_large")
			body.Close()
		}
		t.Post(NextPath(s.ID), RawBody(Filler(MiB))).Want(202)
	}},
	{"a body in pieces", `D9: a body of up to 8 MiB may arrive in pieces of any size`, func(t *T) {
		s := t.rawStream()
		want := Filler(BodyLimit)
		body, more := io.Pipe()
		go func() {
			for b := want; len(b) > 0; b = b[min(len(b), 100_000):] {
				more.Write(b[:min(len(b), 100_000)])
			}
			more.Close()
		}()
		t.Post(NextPath(s.ID), func(r *Request) {
			r.Header.Set("Content-Type", "application/octet-stream")
			r.Body, r.Length = body, -1
		}).Want(202)
		if got := t.Get(BatchPath(s.ID, 1)).Want(200).Body; !bytes.Equal(got, want) {
			t.Errorf("the batch that was read (%d bytes) differs from the one that was published", len(got))
		}
	}},
	{"many at once", `spec: "HTTP/2 and HTTP/3 are supported. HTTP/1.1 also works for streaming": many subscriptions and publishes run at the same time`, func(t *T) {
		s := t.jsonStream()
		subs := make([]*Subscription, 150) // more requests in flight than some servers allow on one connection
		for i := range subs {
			subs[i] = t.Subscribe(s.ID, "cursor=0")
		}
		for seq := int64(1); seq <= 3; seq++ {
			t.Publish(s.ID, `["to all"]`)
		}
		for _, sub := range subs {
			for seq := int64(1); seq <= 3; seq++ {
				sub.Batch(seq)
			}
		}
	}},
	{"readers that stall", `D17: slow subscribers read from the store at their own pace and slow no other client down, also on the same connection`, func(t *T) {
		s := t.rawStream()
		const n = 6 // MiB to publish; more than all buffers of one connection hold
		var stalled []*http.Response
		for range 3 {
			resp, cancel := t.Open("/v1/streams/" + s.ID + "?cursor=0")
			t.Cleanup(cancel)
			t.Cleanup(func() { resp.Body.Close() })
			stalled = append(stalled, resp)
		}
		fast := t.Subscribe(s.ID, "cursor=0")
		want := Filler(MiB)
		for seq := int64(1); seq <= n; seq++ {
			t.Post(NextPath(s.ID), RawBody(want)).Want(202)
			fast.raw(seq)
		}
		// A subscriber that starts to read again has missed nothing.
		d := NewDecoder(stalled[0].Body)
		for seq := 0; seq <= n; {
			e, err := d.Next()
			switch {
			case err != nil:
				t.Fatalf("the stalled subscription failed after %d of %d batches: %v", seq-1, n, err)
			case e.Comment:
				continue
			case seq > 0 && (e.Name != "batch" || e.ID != itoa(seq)):
				t.Fatalf("got event %q with id %q, want batch %d", e.Name, e.ID, seq)
			}
			seq++
		}
	}},
	{"long header fields", `spec: requests with header fields of ordinary size are answered`, func(t *T) {
		t.Get("/v1/health", WithHeader("X-Long", strings.Repeat("x", 8<<10))).Want(200)
	}},
	{"header fields too large", `D26: more than 16 KiB of header fields give 431 with the error object, the request id and the header fields that every response has`, func(t *T) {
		s := t.jsonStream()
		for range 2 {
			for _, path := range []string{"/v1/health", "/v1/streams", "/v1/streams/" + s.ID} {
				t.Get(path, WithHeader("X-Long", strings.Repeat("x", 24<<10))).Refused(431, "invalid_request_error")
			}
			t.Post(NextPath(s.ID), JSONBody(`{"events":[]}`), WithHeader("X-Long", strings.Repeat("x", 24<<10))).Refused(431, "invalid_request_error")
		}
		if got := t.Stream(s.ID).Cursor; got != 0 {
			t.Errorf("cursor is %d, want 0", got)
		}
	}},
}
