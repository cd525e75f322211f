package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"weir/internal/api"
	"weir/internal/budget"
)

// A response that is longer than a piece keeps its zstd encoder until it is sent, so it borrows the
// memory of the encoder. While that memory is not free, the client gets gzip, or the plain body if
// it does not accept gzip. Every call returns the memory that it has borrowed.
func TestMemoryOfEncoders(t *testing.T) {
	batches := budget.New(24<<20, 1<<20)
	svc := startService(t)
	api.SetMemory(svc.API, nil, batches, 10*time.Second)
	text := strings.Repeat(`{"item":"milk","count":2}`, 4<<10)
	for range 3 {
		svc.do("HTTP/1.1", svc.request("POST", "/v1/streams/{raw}/publish", []string{"Authorization: Bearer {key:live}", "Content-Type: application/octet-stream"}, text))
	}
	check := func(when, path, accept, want string) {
		t.Helper()
		a := svc.do("HTTP/1.1", svc.request("GET", path, []string{"Authorization: Bearer {key:live}", "Accept-Encoding: " + accept}, ""))
		got := a.header.Get("Content-Encoding")
		body := decoded(t, got, a.body)
		if a.status != http.StatusOK || got != want || path == batchPath && body != text || len(body) < len(text) {
			t.Errorf("%s: GET %s with %s: got %d with content-encoding %q and %d bytes, want %q and at least %d bytes", when, path, accept, a.status, got, len(body), want, len(text))
		}
		if held := batches.Stats().Held; when == "free" && held != 0 {
			t.Errorf("after GET %s with %s, %d bytes were not returned to the budget", path, accept, held)
		}
	}
	for _, path := range []string{batchPath, "/v1/streams/{raw}/batches"} {
		check("free", path, "gzip, zstd", "zstd")
		h := svc.do("HTTP/1.1", svc.request("HEAD", path, []string{"Authorization: Bearer {key:live}", "Accept-Encoding: gzip"}, "")).header
		if h.Get("Vary") != "Accept-Encoding" || h.Get("Content-Encoding") != "" {
			t.Errorf("HEAD %s: vary %q and content-encoding %q, want the header of an uncompressed response", path, h.Get("Vary"), h.Get("Content-Encoding"))
		}
	}
	// Other holders take memory until a loan of the size of an encoder would have to wait.
	for full := false; !full; {
		l := batches.Open(budget.Holder{Project: "other", Key: "other"}, 1<<20, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		full = l.Grow(ctx, api.ZstdMemory) != nil
		defer l.End()
	}
	var small []*budget.Loan
	for full := false; !full; {
		l := batches.Open(budget.Holder{Project: string(svc.Project), Key: svc.records["live"].ID}, 1<<20, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		full = l.Grow(ctx, api.ZstdMemory) != nil
		small = append(small, l)
		defer l.End()
	}
	if len(small) > 1 {
		small[0].Shrink(300 << 10) // leaves room for the batch, but not for an encoder
	}
	for _, path := range []string{batchPath, "/v1/streams/{raw}/batches"} {
		check("used up", path, "gzip, zstd", "gzip")
		check("used up", path, "zstd", "")
	}
}

const batchPath = "/v1/streams/{raw}/batches/1"

// decoded returns the content of a response body.
func decoded(t *testing.T, coding, body string) string {
	t.Helper()
	r := io.Reader(strings.NewReader(body))
	var err error
	switch coding {
	case "gzip":
		r, err = gzip.NewReader(r)
	case "zstd":
		var d *zstd.Decoder
		if d, err = zstd.NewReader(r, zstd.WithDecoderConcurrency(1)); err == nil {
			defer d.Close()
			r = d
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// An encoder never takes more memory than a response borrows for it.
func TestZstdMemory(t *testing.T) {
	text := bytes.Repeat([]byte(`{"item":"milk","count":2,"at":"2026-11-15T08:00:00Z"}`), 1<<10)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	e := api.NewZstd()
	e.Reset(io.Discard)
	for range 64 {
		e.Write(text)
		e.Flush()
	}
	e.Close()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > api.ZstdMemory {
		t.Errorf("the encoder has allocated %d bytes, want at most %d", got, api.ZstdMemory)
	}
}
