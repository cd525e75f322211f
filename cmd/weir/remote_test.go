package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The error for a server without HTTP/2 differs from the error for a server that does not answer.
func TestNoHTTP2(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"stream", "ls", "--url", srv.URL}, &out, &errs); code != exitFailed ||
		!strings.HasPrefix(errs.String(), "weir: "+srv.URL+" does not speak cleartext HTTP/2; use https or --http1: ") {
		t.Errorf("exit code %d: %s", code, &errs)
	}
	errs.Reset()
	if code := run(t.Context(), []string{"stream", "ls", "--url", srv.URL, "--http1"}, &out, &errs); code != exitFailed ||
		errs.String() != "weir: status 404: the response is not from Weir: 404 Not Found\n" {
		t.Errorf("exit code %d: %s", code, &errs)
	}
}
