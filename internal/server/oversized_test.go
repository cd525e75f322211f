package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// serveOversized starts a server. Its handler for large header fields sends "too large" and the
// path of the request.
func serveOversized(t *testing.T) *Server {
	s := listen(t)
	s.Oversized(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "one")
		w.WriteHeader(http.StatusRequestHeaderFieldsTooLarge)
		io.WriteString(w, "too large: "+r.URL.Path)
	}))
	s.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }), secured())
	t.Cleanup(func() { s.Shutdown(context.Background()) })
	return s
}

// A request with header fields above the limit gets the response of the handler for large header
// fields, over every protocol. The server then answers the next request of the same client.
func TestHeaderTooLarge(t *testing.T) {
	s := serveOversized(t)
	overEach(t, func(t *testing.T, w wire) {
		c := w.client(t)
		for _, method := range []string{"GET", "POST", "HEAD"} {
			for _, size := range []int{maxHeaderBytes, maxHeaderBytes + 8<<10} {
				r, _ := http.NewRequest(method, w.url(s)+"/path", http.NoBody)
				r.Header.Set("X-Long", strings.Repeat("a", size))
				resp, err := c.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				want := "too large: /path"
				if method == "HEAD" {
					want = ""
				}
				if resp.StatusCode != 431 || resp.Header.Get("X-Request-Id") != "one" || string(body) != want || err != nil {
					t.Errorf("%s with %d bytes: got %d %v %q, %v; want 431 and the response of the handler", method, size, resp.StatusCode, resp.Header, body, err)
				}
			}
			if resp, _ := get(t, c, w.url(s)); resp.StatusCode != 200 {
				t.Errorf("the next request got status %d, want 200", resp.StatusCode)
			}
		}
	})
}

// If the header fields are larger than libraryHeaderBytes, net/http and http3 stop reading them.
// The client then gets a 431 or an error, and its next request succeeds. Over cleartext HTTP/1.1
// the client gets the response of the handler for large header fields.
func TestHeaderMuchTooLarge(t *testing.T) {
	s := serveOversized(t)
	overEach(t, func(t *testing.T, w wire) {
		r, _ := http.NewRequest("GET", w.url(s)+"/path", nil)
		r.Header.Set("X-Long", strings.Repeat("a", 8*libraryHeaderBytes))
		c := w.client(t)
		resp, err := c.Do(r)
		switch {
		case err != nil && w.proto != "HTTP/1.1": // the client knows the limit and does not send the request
		case err != nil:
			t.Error(err)
		default:
			resp.Body.Close()
			if resp.StatusCode != 431 {
				t.Errorf("the request got status %d, want 431", resp.StatusCode)
			}
		}
		if resp, _ := get(t, c, w.url(s)); resp.StatusCode != 200 {
			t.Errorf("the next request got status %d, want 200", resp.StatusCode)
		}
	})
	for _, first := range []string{"", post11("/", "", "x")} {
		got := ask(t, s.HTTP(), first+"GET /path HTTP/1.1\r\nHost: a\r\nX-Long: "+strings.Repeat("a", 2*libraryHeaderBytes)+"\r\n\r\n")
		last := got[len(got)-1]
		if last.status != 431 || last.header.Get("X-Request-Id") != "one" || last.body != "too large: /" || last.header.Get("Content-Length") != "12" {
			t.Errorf("the last response is %+v, want that of the handler", last)
		}
	}
}

// If no handler for large header fields is set, the server refuses such requests with a 431 too.
func TestHeaderTooLargeByDefault(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {})
	got := ask(t, s.HTTP(), "GET / HTTP/1.1\r\nHost: a\r\nX-Long: "+strings.Repeat("a", maxHeaderBytes)+"\r\n\r\n")
	if len(got) != 1 || got[0].status != 431 {
		t.Errorf("got the responses %v, want one 431", got)
	}
}
