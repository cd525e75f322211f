package server

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"time"

	"weir/internal/server/loop"
)

// headerBytes returns the size that the request target and the header fields have in HTTP/1.1. It is
// not inlined, to keep the stack of its caller small. Otherwise Go would have to copy the stack of
// each HTTP/2 request to a larger one.
//
//go:noinline
func headerBytes(r *http.Request) int {
	const around = len(": \r\n")
	n := len(r.RequestURI) + len(r.Host) + around
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v) + around
		}
	}
	return n
}

// oversized is the default handler of requests with large header fields.
func oversized(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, http.StatusText(http.StatusRequestHeaderFieldsTooLarge), http.StatusRequestHeaderFieldsTooLarge)
}

// bareTooLarge is the start of the response that net/http writes, with one call of Write, when it
// stops reading header fields that are too large. No response of a handler starts with these bytes,
// because every response of a handler has a Date field before the blank line. If a version of
// net/http writes other bytes, clients get the response of net/http, and TestHeaderTooLarge fails.
var bareTooLarge = []byte("HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// tooLarge returns the response of handler h to a request that could not be read: h learns only the
// client's address. The connection is closed after this response.
func tooLarge(h http.Handler, remote string) []byte {
	a := &kept{status: http.StatusOK, header: make(http.Header)}
	h.ServeHTTP(a, &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: "/"}, RequestURI: "/", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: http.NoBody, RemoteAddr: remote,
	})
	a.header.Del("Content-Length")
	a.header.Set("Date", loop.Date(time.Now()))
	var b bytes.Buffer
	resp := http.Response{
		StatusCode: a.status, ProtoMajor: 1, ProtoMinor: 1, Header: a.header, Close: true,
		Body: io.NopCloser(&a.body), ContentLength: int64(a.body.Len()),
	}
	_ = resp.Write(&b) // writing to a bytes.Buffer does not fail
	return b.Bytes()
}

// kept is an http.ResponseWriter that keeps the response in memory.
type kept struct {
	status int
	header http.Header
	body   bytes.Buffer
}

func (k *kept) Header() http.Header         { return k.header }
func (k *kept) WriteHeader(status int)      { k.status = status }
func (k *kept) Write(p []byte) (int, error) { return k.body.Write(p) }
