package server

import (
	"context"
	"net/http"
	"testing"
)

// The server sends the HSTS field only over TLS, and only if Strict is set.
func TestStrict(t *testing.T) {
	for _, strict := range []bool{false, true} {
		s := listen(t)
		secure := secured()
		secure.Strict = strict
		s.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}), secure)
		t.Cleanup(func() { s.Shutdown(context.Background()) })
		overEach(t, func(t *testing.T, w wire) {
			want := ""
			if strict && w.secure {
				want = "max-age=31536000"
			}
			if resp, _ := get(t, w.client(t), w.url(s)); resp.Header.Get("Strict-Transport-Security") != want {
				t.Errorf("got %q, want %q", resp.Header.Get("Strict-Transport-Security"), want)
			}
		})
	}
}
