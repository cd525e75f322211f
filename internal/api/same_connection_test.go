package api_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"
)

// An event loop keeps what it knows about the header fields of a connection. Each request must still
// be judged by its own fields, and by what has become of its key since the last request.
func TestFieldsChangeOnOneConnection(t *testing.T) {
	svc := startService(t)
	conn, err := net.Dial("tcp", svc.address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(conn)
	const (
		body  = `{"events":["x"]}`
		plain = "Authorization: Bearer {key:writer}\r\nContent-Type: application/json\r\n"
	)
	send := func(name, path, fields string, status int) http.Header {
		t.Helper()
		fmt.Fprint(conn, svc.fill(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a.example\r\n%sContent-Length: %d\r\n\r\n%s", path, fields, len(body), body)))
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("%s: status %d, want %d", name, resp.StatusCode, status)
		}
		return resp.Header
	}
	next, raw := "/v1/streams/{id}/publish", "/v1/streams/{raw}/publish"
	send("first", next, plain, 202)
	send("same fields", next, plain, 202)
	send("another stream", "/v1/streams/{other}/publish", plain, 202)
	send("a chosen sequence", "/v1/streams/{id}/3", plain, 202)
	send("a raw stream", raw, plain, 415)
	send("an unknown key", next, "Authorization: Bearer {key:unknown}\r\nContent-Type: application/json\r\n", 401)
	send("a key of another project", next, "Authorization: Bearer {key:theirs}\r\nContent-Type: application/json\r\n", 403)
	send("no key", next, "Content-Type: application/json\r\n", 401)
	send("the first fields", next, plain, 202)
	send("another content type", next, "Authorization: Bearer {key:writer}\r\nContent-Type: text/plain\r\n", 415)
	send("bytes", raw, "Authorization: Bearer {key:writer}\r\nContent-Type: application/octet-stream\r\n", 202)
	send("a content coding", next, plain+"Content-Encoding: gzip\r\n", 415)
	send("an idempotency key", next, plain+"Idempotency-Key: k\r\n", 202)
	send("the same idempotency key", next, plain+"Idempotency-Key: k\r\n", 200)
	send("an empty idempotency key", next, plain+"Idempotency-Key:\r\n", 400)
	send("not contiguous", "/v1/streams/{id}/99", plain+"X-Svc-Contiguous: true\r\n", 412)
	if h := send("a page of another origin", next, plain+"Origin: https://b.example\r\n", 202); h.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("a page of another origin gets the header fields %v", h)
	}
	if h := send("the first fields again", next, plain, 202); h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a request without an origin gets the header fields %v", h)
	}
	if _, err := svc.Access.Revoke(context.Background(), svc.records["writer"].ID); err != nil {
		t.Fatal(err)
	}
	send("the key was revoked", next, plain, 401)
}
