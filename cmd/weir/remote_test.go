package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// If a server speaks only HTTP/1.1, commands use it even without --http1.
func TestNoHTTP2(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	for _, flags := range [][]string{nil, {"--http1"}} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), append([]string{"stream", "ls", "--url", srv.URL}, flags...), &out, &errs); code != exitFailed ||
			errs.String() != "weir: status 404: the response is not from Weir: 404 Not Found\n" {
			t.Errorf("%q: exit code %d: %s", flags, code, &errs)
		}
	}
}

// limited starts a server that refuses every second request because of a rate limit. It answers the
// others with a stream, a list of streams, a page of one batch out of three, or a closed stream.
func limited(t *testing.T) *httptest.Server {
	const stream = `{"id":"0000000000000000000001","name":"orders","created_at":"2026-11-15T00:00:00.000Z","retention_seconds":60,"max_bytes":1048576,"cursor":3,"bytes_stored":3,"mode":"json"}`
	var requests atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("content-type", "application/json")
		if requests.Add(1)%2 == 1 {
			h.Set("retry-after", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			w.Write([]byte(`{"error":{"type":"rate_limit_error","code":"rate_limited","message":"too many requests"}}`))
			return
		}
		switch from, _ := strconv.Atoi(r.FormValue("from")); {
		case r.Header.Get("accept") == "text/event-stream":
			h.Set("content-type", "text/event-stream")
			w.Write([]byte("id: 3\nevent: end\ndata: {\"reason\":\"stream_closed\"}\n\n"))
		case strings.HasSuffix(r.URL.Path, "/batches"):
			seq := strconv.Itoa(max(from, 1))
			w.Write([]byte(`{"batches":[{"seq":` + seq + `,"ts":"2026-11-15T00:00:00.000Z","events":["e` + seq + `"]}],"next":` + strconv.Itoa(max(from, 1)+1) + `,"cursor":3}`))
		case r.URL.Path == "/v1/streams":
			w.Write([]byte(`{"data":[` + stream + `],"has_more":false,"next_cursor":null}`))
		default:
			w.Write([]byte(stream))
		}
	}))
	t.Cleanup(srv.Close)
	return srv
}

// A command that a rate limit refuses says when it tries again, and then does. It prints nothing
// twice.
func TestRateLimited(t *testing.T) {
	const id = "0000000000000000000001"
	before := commandRetry
	commandRetry = time.Millisecond
	t.Cleanup(func() { commandRetry = before })
	for _, c := range []struct {
		command, out string
		refused      int
	}{
		{"stream show " + id, "orders", 1},
		{"stream ls", "orders", 1},
		{"read " + id, "\"e1\"\n\"e2\"\n\"e3\"\n", 3},
		{"read " + id + " --from 2 --limit 1", "\"e2\"\n", 1},
		{"tail " + id, "", 2},
	} {
		t.Run(c.command, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			args := append(strings.Fields(c.command), "--url", limited(t).URL, "--http1")
			code := run(t.Context(), args, &out, &errs)
			said := regexp.MustCompile(`(?m)^weir: rate limited; retrying in 1 s$`).FindAllString(errs.String(), -1)
			if code != exitDone || len(said) != c.refused || strings.Contains(errs.String(), "rate_limited") ||
				!strings.Contains(out.String(), c.out) || strings.HasPrefix(c.command, "read") && out.String() != c.out {
				t.Errorf("exit code %d\n%s\n%s", code, &out, &errs)
			}
		})
	}
}
