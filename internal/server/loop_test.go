package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// mirror is a handler that returns the whole request as text. Some paths have special responses.
func mirror(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/unread":
		http.Error(w, "no", http.StatusUnauthorized)
		return
	case "/silent":
		return
	case "/none":
		w.WriteHeader(http.StatusNoContent)
		return
	case "/close":
		w.Header().Set("Connection", "close")
	case "/odd":
		w.Header()["X-Lines"] = []string{"a\r\nSet-Cookie: b", "c"}
		w.Header()["Bad Name"] = []string{"x"}
		w.Header()["Content-Type"] = []string{"text/odd"}
		w.WriteHeader(299)
		w.Header().Set("X-Late", "no")
		w.WriteHeader(500)
	case "/long":
		w.Write(bytes.Repeat([]byte("x"), 100<<10))
		return
	}
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %#v %s %s %d.%d %d %v %v\n", r.Method, r.RequestURI, *r.URL, r.Host, r.Proto, r.ProtoMajor, r.ProtoMinor, r.ContentLength, r.TransferEncoding, r.Close)
	for _, k := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintf(w, "%s: %q\n", k, r.Header[k])
	}
	fmt.Fprintf(w, "%d %x %v", len(body), sha256.Sum256(body), err)
}

// reply is a response as a client sees it.
type reply struct {
	status int
	header http.Header
	body   string
}

// ask sends raw bytes on a new connection, closes the sending side, and returns all responses.
func ask(t testing.TB, addr, raw string) []reply {
	t.Helper()
	return askInPieces(t, reach(t, addr, false), []string{raw})
}

// reach opens a connection, over TLS if secure is true.
func reach(t testing.TB, addr string, secure bool) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	if secure {
		s := tls.Client(c, &tls.Config{RootCAs: trust, ServerName: "127.0.0.1"})
		s.Handshake() // without it, CloseWrite would do nothing if nothing was sent
		return s
	}
	return c
}

// askInPieces sends pieces with one write each, closes the sending side, and returns all responses.
func askInPieces(t testing.TB, c net.Conn, pieces []string) []reply {
	t.Helper()
	defer c.Close()
	go func() { // in a goroutine, because the server may respond before it has read everything
		for _, piece := range pieces {
			io.WriteString(c, piece)
			runtime.Gosched() // so that the server can read each piece separately
		}
		c.(interface{ CloseWrite() error }).CloseWrite()
	}()
	var all []reply
	in := bufio.NewReader(c)
	for {
		resp, err := http.ReadResponse(in, &http.Request{Method: "POST"})
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%q: neither a response nor the end of the connection after %d responses of %s", pieces, len(all), c.RemoteAddr())
		}
		if err != nil {
			return all
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Header.Del("Date")
		resp.Header.Del("Connection")
		resp.Header.Del("Alt-Svc")
		if len(body) > 2<<10 {
			resp.Header.Del("Content-Length") // this field may differ: net/http sends a long response in chunks
		}
		all = append(all, reply{resp.StatusCode, resp.Header, string(body)})
	}
}

func post11(path, header, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a.example:80\r\n%sContent-Length: %d\r\n\r\n%s", path, header, len(body), body)
}

// pair is two servers with the same handler: a Server of this package, and a plain one of net/http.
type pair struct {
	ours, plain string
	secure      bool
	looped      atomic.Int64 // number of responses that a loop gave
}

// inLoop reports whether an event loop serves the request.
func inLoop(w http.ResponseWriter) bool {
	_, ok := w.(interface{ BeginHead(int) []byte })
	return ok
}

// overBoth runs a test in cleartext and over TLS.
func overBoth(t *testing.T, f func(*testing.T, *pair)) {
	t.Run("cleartext", func(t *testing.T) { f(t, newPair(t, false)) })
	t.Run("TLS", func(t *testing.T) { f(t, newPair(t, true)) })
}

// mirroring is a handler that takes over GETs from event loops, as the API does with subscriptions,
// except those to /declined.
type mirroring struct{ http.HandlerFunc }

func (m mirroring) ServeLater(w http.ResponseWriter, r *http.Request) (taken, done bool) {
	if r.Method != http.MethodGet || r.URL.Path == "/declined" {
		return false, false
	}
	go func() {
		m.HandlerFunc(w, r)
		w.(interface{ Ready(interface{ Finish() }) }).Ready(finisher(func() {}))
	}()
	return true, false
}

func newPair(t testing.TB, secure bool) *pair {
	p := &pair{secure: secure}
	h := mirroring{func(w http.ResponseWriter, r *http.Request) {
		if inLoop(w) {
			p.looped.Add(1)
		}
		mirror(w, r)
	}}
	s, err := Listen(Options{HTTP: "127.0.0.1:0", HTTPS: "127.0.0.1:0", Logger: quiet, NetHTTPOnly: netHTTPOnly})
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(h, secured())
	t.Cleanup(func() { s.Shutdown(context.Background()) })
	other := httptest.NewUnstartedServer(h)
	other.Config.MaxHeaderBytes, other.Config.DisableGeneralOptionsHandler = libraryHeaderBytes, true
	other.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	p.ours = s.HTTP()
	if secure {
		other.StartTLS()
		p.ours = s.HTTPS()
	} else {
		other.Start()
	}
	t.Cleanup(other.Close)
	p.plain = other.Listener.Addr().String()
	return p
}

// compare sends the same bytes to both servers and compares the responses.
func (p *pair) compare(t testing.TB, raw string) {
	t.Helper()
	p.compareInPieces(t, []string{raw})
}

// compareInPieces does the same as compare, with one write for each piece.
func (p *pair) compareInPieces(t testing.TB, pieces []string) {
	t.Helper()
	raw := strings.Join(pieces, "")
	want, got := askInPieces(t, reach(t, p.plain, p.secure), []string{raw}), askInPieces(t, reach(t, p.ours, p.secure), pieces)
	if len(got) != len(want) {
		t.Fatalf("%q: got %d responses, %v; net/http gives %d, %v", raw, len(got), got, len(want), want)
	}
	for i := range want {
		if got[i].status != want[i].status || got[i].body != want[i].body || !maps.EqualFunc(got[i].header, want[i].header, slices.Equal) {
			t.Errorf("%q: response %d is %v, net/http gives %v", raw, i, got[i], want[i])
		}
	}
}

// subscribing turns the requests of a test into GETs of a subscriber.
func subscribing(raw string) string {
	return strings.NewReplacer("POST /", "GET /", "PUT /", "GET /", "Host: a", "Accept: text/event-stream\r\nHost: a").Replace(raw)
}

// loopCases are requests. In the names, a length is a Content-Length field, a coding is a
// Transfer-Encoding field, and a host is a Host field.
var loopCases = []struct {
	name, raw string
	looped    int64 // expected number of responses that a loop gives
}{
	{"plain", post11("/a?b=c", "", "hello"), 1},
	{"no body", post11("/", "", ""), 1},
	{"no length", "POST / HTTP/1.1\r\nHost: a\r\n\r\n", 1},
	{"header fields", post11("/", "authorization: Bearer x\r\nX-A: 1\r\nx-a: 2\r\nEmpty:\r\nContent-Type: application/json\r\nPragma: no-cache\r\n", "{}"), 1},
	{"keep-alive", post11("/", "Connection: keep-alive\r\n", "x"), 1},
	{"close", post11("/", "Connection: close\r\n", "x") + post11("/", "", "y"), 1},
	{"several requests", post11("/1", "", "x") + post11("/2", "", "") + post11("/3", "", "zzz"), 3},
	{"PUT", "PUT /a?b=c HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 1},
	{"PUT without a length", "PUT / HTTP/1.1\r\nHost: a\r\n\r\n", 1},
	{"the same fields, other methods", post11("/1", "", "x") + strings.Replace(post11("/1", "", "x"), "POST", "PUT", 1) + strings.Replace(post11("/2", "", "y"), "POST", "PUT", 1) + post11("/1", "", "x"), 4},
	{"methods that begin like plain ones", post11("/1", "", "x") + strings.Replace(post11("/1", "", "x"), "POST", "PUTS", 1), 1},
	{"POST, then GET, then POST", post11("/1", "", "x") + "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n" + post11("/3", "", "y"), 1},
	{"GET of a subscriber", "GET /a?b=c HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n", 1},
	{"POST, then GET of a subscriber twice, then POST", post11("/1", "", "x") + strings.Repeat("GET /2 HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n", 2) + post11("/3", "", "y"), 4},
	{"POST, then GET of a subscriber that the handler declines, then POST", post11("/1", "", "x") + "GET /declined HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n" + post11("/3", "", "y"), 1},
	{"GET of a subscriber with a body", "GET / HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\nContent-Length: 5\r\n\r\nhello" + post11("/", "", "y"), 0},
	{"GET of a subscriber with a chunked body", "GET / HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + post11("/", "", "y"), 0},
	{"GET of a subscriber with two lengths", "GET / HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\nhello", 0},
	{"GET of a subscriber over HTTP/1.0", "GET / HTTP/1.0\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n", 0},
	{"GET of a subscriber without a host", "GET / HTTP/1.1\r\nAccept: text/event-stream\r\n\r\n", 0},
	{"GET of a subscriber after line breaks", post11("/1", "", "x") + "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n", 1},
	{"GET of a subscriber, incomplete", "GET / HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n", 0},
	{"the same fields, other paths and lengths", post11("/1", "X-A: b\r\n", "x") + post11("/2?c", "X-A: b\r\n", "") + post11("/3/_~.-", "X-A: b\r\n", "0123456789") + post11("/4", "X-A: b\r\n", "x"), 4},
	{"fields that differ in a value, a name, their order", post11("/", "X-A: b\r\n", "x") + post11("/", "X-A: c\r\n", "x") + post11("/", "X-C: c\r\n", "x") + post11("/", "Content-Length: 1\r\n", "x") + post11("/", "Content-Length: 1\r\n", "x"), 3},
	{"no length, then a length", "POST / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", 3},
	{"a length, then an empty length", post11("/", "", "x") + "POST / HTTP/1.1\r\nHost: a.example:80\r\nContent-Length: \r\n\r\n", 1},
	{"a length, then a list of lengths", post11("/", "", "x") + "POST / HTTP/1.1\r\nHost: a.example:80\r\nContent-Length: 1,1\r\n\r\nx", 1},
	{"a length, then a length with a sign", post11("/", "", "x") + "POST / HTTP/1.1\r\nHost: a.example:80\r\nContent-Length: +1\r\n\r\nx", 1},
	{"a length, then a longer head", post11("/", "", "x") + "POST / HTTP/1.1\r\nHost: a.example:80\r\nContent-Length: 1\r\nX-A: b\r\n\r\nx", 2},
	{"a length, then a huge length", post11("/", "", "x") + "POST /unread HTTP/1.1\r\nHost: a.example:80\r\nContent-Length: 9999999999999999999999\r\n\r\nx", 1},
	{"leading zeros in the length", post11("/", "", "x") + "POST / HTTP/1.1\r\nHost: a.example:80\r\nContent-Length: 0001\r\n\r\nx" + post11("/", "", "y"), 3},
	{"plain path, then paths with escapes", post11("/", "", "x") + post11("/a%20b", "", "x") + post11("//c", "", "x") + post11("/d:e@f;g=h,i'(j)*!$&+", "", "x"), 4},
	{"plain path, then a bad path", post11("/", "", "x") + post11("/a b", "", "x"), 1},
	{"version 1.1, then a bad version", post11("/", "", "x") + strings.Replace(post11("/", "", "x"), "1.1", "1.7", 1), 1},
	{"close on the second request", post11("/", "", "x") + post11("/", "Connection: close\r\n", "x") + post11("/", "", "x"), 2},
	{"body larger than a loop takes", post11("/", "", strings.Repeat("x", 100<<10)) + post11("/2", "", "y"), 0},
	{"body that the handler does not read", post11("/unread", "", "x") + post11("/2", "", "y"), 2},
	{"large body that the handler does not read", post11("/unread", "", strings.Repeat("x", 100<<10)) + post11("/2", "", "y"), 0},
	{"body of several segments", post11("/", "", strings.Repeat("x", 20<<10)) + post11("/2", "", "y"), 2},
	{"many requests", strings.Repeat(post11("/", "", strings.Repeat("x", 3000)), 50), 50},
	{"handler that writes nothing", post11("/silent", "", "") + post11("/none", "", ""), 2},
	{"close by the handler", post11("/close", "", "x") + post11("/", "", "y"), 1},
	{"odd response", post11("/odd", "", "x"), 1},
	{"long response", post11("/long", "", "") + post11("/", "", "y"), 2},
	{"escaped path", post11("/a%2fb//c/../d;e?f#g", "", ""), 1},
	{"bad path", post11("/a%zz", "", "x"), 0},
	{"space in the path", post11("/a b", "", "x"), 0},
	{"body cut short", strings.TrimSuffix(post11("/", "", "hello"), "lo"), 0},
	{"same length twice", post11("/", "Content-Length: 5\r\n", "hello"), 0},
	{"two lengths", post11("/", "Content-Length: 6\r\n", "hello"), 0},
	{"bad length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello", 0},
	{"chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + post11("/", "", "y"), 0},
	{"chunked and a length", post11("/", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"), 0},
	{"unknown coding", post11("/", "Transfer-Encoding: gzip\r\n", "hello"), 0},
	{"two codings", post11("/", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "5\r\nhello\r\n0\r\n\r\n"), 0},
	{"coding in capitals", post11("/", "TRANSFER-ENCODING: Chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"), 0},
	{"coding with a space before the colon", post11("/", "Transfer-Encoding : chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"), 0},
	{"coding with an underscore", post11("/", "Transfer_Encoding: chunked\r\n", "hello"), 0},
	{"lengths in a list", post11("/", "Content-Length: 5, 5\r\n", "hello"), 0},
	{"two lengths, then a hidden request", post11("/", "Content-Length: 0\r\n", "POST /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"), 0},
	{"expect", post11("/", "Expect: 100-continue\r\n", "hello"), 0},
	{"expect something else", post11("/", "Expect: more\r\n", "hello"), 0},
	{"upgrade", post11("/", "Connection: upgrade\r\nUpgrade: websocket\r\n", "hello"), 0},
	{"h2c upgrade", post11("/", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n", ""), 0},
	{"trailer", post11("/", "Trailer: X-A\r\n", "hello"), 1}, // the field is ignored without chunked encoding
	{"HTTP/1.0", "POST / HTTP/1.0\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", 0},
	{"HTTP/1.2", "POST / HTTP/1.2\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", 0},
	{"lower case method", strings.ToLower(post11("/", "", "x")), 0},
	{"absolute form", post11("http://b.example/x", "", "y"), 0},
	{"asterisk", post11("*", "", "y"), 0},
	{"no host", "POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", 0},
	{"empty host", "POST / HTTP/1.1\r\nHost:\r\nContent-Length: 1\r\n\r\nx", 0},
	{"two hosts", post11("/", "Host: b\r\n", "x"), 0},
	{"bad host", "POST / HTTP/1.1\r\nHost: a b\r\nContent-Length: 1\r\n\r\nx", 0},
	{"folded line", post11("/", "X-A: 1\r\n 2\r\n", "x"), 0},
	{"folded with a tab", post11("/", "X-A: 1\r\n\t2\r\n", "x"), 0},
	{"bare line feeds", strings.ReplaceAll(post11("/", "", "x"), "\r\n", "\n"), 0},
	{"bare carriage return", post11("/", "X-A: a\rb\r\n", "x"), 0},
	{"control character", post11("/", "X-A: a\x01b\r\n", "x"), 0},
	{"NUL", post11("/", "X-A: a\x00b\r\n", "x"), 0},
	{"not ASCII", post11("/ü", "X-A: é\r\n", "x"), 0},
	{"tab", post11("/", "X-A: a\tb\r\n", "x"), 0},
	{"space before the colon", post11("/", "X-A : a\r\n", "x"), 0},
	{"no colon", post11("/", "X-A\r\n", "x"), 0},
	{"no name", post11("/", ": a\r\n", "x"), 0},
	{"bad name", post11("/", "X(A): a\r\n", "x"), 0},
	{"line break before the request", "\r\n" + post11("/", "", "x"), 0},
	{"line break between requests", post11("/", "", "x") + "\r\n" + post11("/", "", "y"), 1},
	{"many line breaks between requests", post11("/", "", "x") + "\r\n\r\n\r\n" + post11("/", "", "y"), 1},
	{"line break after a PUT", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx\r\n" + post11("/", "", "y"), 1},
	{"line breaks after a POST and a PUT", post11("/", "", "x") + "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx\r\n\r\n" + post11("/", "", "y"), 2},
	{"line break after a PUT and a POST", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx" + post11("/", "", "x") + "\r\n" + post11("/", "", "y"), 2},
	{"long head", post11("/", "X-A: "+strings.Repeat("a", 8<<10)+"\r\n", "x"), 0},
	{"incomplete head", "POST / HTTP/1.1\r\nHost: a\r\n", 0},
	{"empty", "", 0},
	{"not HTTP", "hello\r\n\r\n", 0},
	{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 0},
}

// An event loop gives the same responses as net/http.
func TestLoopMatchesNetHTTP(t *testing.T) {
	overBoth(t, func(t *testing.T, p *pair) {
		for _, c := range loopCases {
			t.Run(c.name, func(t *testing.T) {
				before := p.looped.Load()
				p.compare(t, c.raw)
				get := p.secure && strings.Contains(c.raw, "GET /") // over TLS, a GET goes to net/http
				if n := p.looped.Load() - before; n != c.looped && !get && !netHTTPOnly {
					t.Errorf("the loop gave %d responses, want %d", n, c.looped)
				}
				p.compare(t, subscribing(c.raw))
			})
		}
	})
}

// An event loop serves bodies up to 64 KiB. A body that does not arrive within 20 ms goes to net/http,
// which may happen on a busy machine, so the test tries until a loop has served each size.
func TestLoopServesLargeBodies(t *testing.T) {
	if netHTTPOnly {
		t.Skip("needs event loops")
	}
	overBoth(t, func(t *testing.T, p *pair) {
		for _, size := range []int{21 << 10, 33 << 10, 64 << 10} {
			raw := post11("/", "", strings.Repeat("0123456789abcdef", size/16)) + post11("/2", "", "y")
			for before := p.looped.Load(); p.looped.Load()-before < 2; {
				before = p.looped.Load()
				p.compareInPieces(t, []string{raw})
				p.compareInPieces(t, []string{raw[:len(raw)/2], raw[len(raw)/2:]})
			}
		}
		before := p.looped.Load()
		if p.compare(t, post11("/", "", strings.Repeat("x", 64<<10+1))); p.looped.Load() != before {
			t.Error("a loop served a body above 64 KiB")
		}
	})
}

func FuzzLoop(f *testing.F) {
	for _, c := range loopCases {
		f.Add(c.raw)
		f.Add(subscribing(c.raw))
	}
	p := newPair(f, false)
	f.Fuzz(func(t *testing.T, raw string) {
		if strings.Contains(raw, "PRI ") {
			t.Skip("HTTP/2, which the plain server does not support")
		}
		if len(raw) > maxHeaderBytes {
			t.Skip("the servers have different limits for header fields")
		}
		p.compare(t, raw)
	})
}

// A client gets the response to a refused request before it has sent the body. Then the connection
// ends.
func TestRefusesEarly(t *testing.T) {
	s := serve(t, mirror)
	c, err := net.Dial("tcp", s.HTTP())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\nhello")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || !resp.Close {
		t.Fatalf("got %v, %v; want 401 and the end of the connection", resp, err)
	}
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "no\n" {
		t.Errorf("the body of the response is %q, %v; want \"no\"", b, err)
	}
}

// The connection stays usable if the body of a refused request arrives later than the head.
func TestUnreadBodyArrivesLater(t *testing.T) {
	waiting := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if mirror(w, r); r.URL.Path == "/unread" {
			close(waiting)
		}
	})
	c, err := net.Dial("tcp", s.HTTP())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	request := post11("/unread", "", strings.Repeat("x", 100<<10))
	io.WriteString(c, request[:500])
	<-waiting
	for rest := request[500:]; rest != ""; {
		n, err := io.WriteString(c, rest[:min(10<<10, len(rest))])
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	in := bufio.NewReader(c)
	for _, want := range []int{http.StatusUnauthorized, http.StatusOK} {
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != want || resp.Close {
			t.Fatalf("got %v, %v; want status %d and an open connection", resp, err, want)
		}
		io.Copy(io.Discard, resp.Body)
		io.WriteString(c, post11("/", "", "next"))
	}
}

// After a handler has returned, the body of its request cannot be read any more.
func TestBodyKept(t *testing.T) {
	kept := make(chan io.Reader, 1)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { kept <- r.Body })
	if got := ask(t, s.HTTP(), post11("/", "", "x")); len(got) != 1 {
		t.Fatalf("got the responses %v, want one", got)
	}
	if n, err := (<-kept).Read(make([]byte, 10)); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("after the handler had returned, Read returned %d, %v; want ErrBodyReadAfterClose", n, err)
	}
}

// A client cannot switch to HTTP/2 after the first request of a connection.
func TestLoopThenHTTP2(t *testing.T) {
	if netHTTPOnly {
		t.Skip("net/http alone passes the preface to the handler as a request")
	}
	s := serve(t, mirror)
	got := ask(t, s.HTTP(), post11("/", "", "x")+"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	if len(got) != 2 || got[1].status/100 < 4 {
		t.Errorf("got %v, want a response and then an error", got)
	}
}

// A read deadline that a handler sets applies to body data that has not arrived yet. It does not
// apply to the next request.
func TestReadDeadline(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
		}
		_, err := io.ReadAll(r.Body)
		if err == nil {
			http.NewResponseController(w).SetReadDeadline(time.Time{})
		}
		fmt.Fprint(w, errors.Is(err, os.ErrDeadlineExceeded))
	})
	got := ask(t, s.HTTP(), post11("/late", "", "here already")+post11("/next", "", "x"))
	if len(got) != 2 || got[0].body != "false" || got[1].body != "false" {
		t.Errorf("the responses (true if the handler timed out) are %v, want false twice", got)
	}
	c, err := net.Dial("tcp", s.HTTP())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "true" || !resp.Close {
		t.Errorf("timed out: %q, %v, connection closed: %v; want true and true", b, err, resp.Close)
	}
}

// A panic in a handler ends only its connection.
func TestPanic(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/panic":
			panic("planted")
		case "/abort":
			panic(http.ErrAbortHandler)
		}
	})
	for _, path := range []string{"/panic", "/abort"} {
		if got := ask(t, s.HTTP(), post11(path, "", "x")+post11("/", "", "x")); len(got) != 0 {
			t.Errorf("%s: got the responses %v, want none", path, got)
		}
	}
	if got := ask(t, s.HTTP(), post11("/", "", "x")); len(got) != 1 {
		t.Errorf("after the panics, a request got the responses %v, want one", got)
	}
}
