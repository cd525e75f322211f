package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
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
