package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// A goroutine in closeWriteAndWait is not a leak. After net/http has refused a request header,
	// this function waits half a second, so that the client can read the response.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// certificate is valid for 127.0.0.1, and trust is a pool that contains the certificate.
var certificate, trust = func() (tls.Certificate, *x509.CertPool) {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return s.TLS.Certificates[0], pool
}()

func secured() TLS {
	return TLS{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }}
}

// netHTTPOnly turns the event loops off for all tests of this package.
var netHTTPOnly = os.Getenv("WEIR_EVENT_LOOP") == "false"

var quiet = slog.New(slog.DiscardHandler)

// wire is a protocol over which a test talks to the server.
type wire struct {
	proto  string
	secure bool
	client func(t *testing.T) *http.Client
}

var wires = map[string]wire{
	"HTTP1":    {"HTTP/1.1", false, clientOver(func(p *http.Protocols) { p.SetHTTP1(true) })},
	"H2C":      {"HTTP/2.0", false, clientOver(func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) })},
	"HTTP1TLS": {"HTTP/1.1", true, clientOver(func(p *http.Protocols) { p.SetHTTP1(true) })},
	"HTTP2":    {"HTTP/2.0", true, clientOver(func(p *http.Protocols) { p.SetHTTP2(true) })},
	"HTTP3":    {"HTTP/3.0", true, overQUIC},
}

// overEach runs a test over every protocol.
func overEach(t *testing.T, f func(t *testing.T, w wire)) {
	for name, w := range wires {
		t.Run(name, func(t *testing.T) { f(t, w) })
	}
}

// clientOver returns a function that creates clients for one protocol only.
func clientOver(set func(*http.Protocols)) func(t *testing.T) *http.Client {
	return func(t *testing.T) *http.Client {
		var p http.Protocols
		set(&p)
		tr := &http.Transport{Protocols: &p, TLSClientConfig: &tls.Config{RootCAs: trust}}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr, Timeout: time.Minute}
	}
}

func overQUIC(t *testing.T) *http.Client {
	tr := &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}}
	t.Cleanup(func() { tr.Close() })
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

func (w wire) url(s *Server) string {
	if w.secure {
		return "https://" + s.HTTPS()
	}
	return "http://" + s.HTTP()
}

// serve starts a server on free ports and stops it when the test ends.
func serve(t *testing.T, h http.HandlerFunc) *Server {
	t.Helper()
	s := listen(t)
	s.Serve(h, secured())
	t.Cleanup(func() { s.Shutdown(context.Background()) })
	return s
}

func listen(t *testing.T) *Server {
	t.Helper()
	s, err := Listen(Options{HTTP: "127.0.0.1:0", HTTPS: "127.0.0.1:0", Logger: quiet, NetHTTPOnly: netHTTPOnly})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// get requests a URL and returns the response and its body.
func get(t *testing.T, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// The same handler answers every version of HTTP. Responses over TLS advertise HTTP/3.
func TestProtocols(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) })
	_, port, _ := net.SplitHostPort(s.HTTPS())
	overEach(t, func(t *testing.T, w wire) {
		resp, body := get(t, w.client(t), w.url(s))
		if body != w.proto {
			t.Errorf("got %q, want %s", body, w.proto)
		}
		want := ""
		if w.secure && w.proto != "HTTP/3.0" {
			want = `h3=":` + port + `"; ma=86400`
		}
		if got := resp.Header.Get("Alt-Svc"); got != want {
			t.Errorf("alt-svc is %q, want %q", got, want)
		}
	})
}

// OPTIONS * goes to the handler like every other request.
func TestGeneralOptions(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) })
	c, err := net.Dial("tcp", s.HTTP())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	answer, err := io.ReadAll(c)
	if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 418 ")) {
		t.Errorf("OPTIONS * got %q, %v; want the response of the handler", answer, err)
	}
}

// The client gets the response even if the handler does not read the body.
func TestEarlyAnswer(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusUnauthorized) })
	overEach(t, func(t *testing.T, w wire) {
		resp, err := w.client(t).Post(w.url(s), "text/plain", bytes.NewReader(make([]byte, 20<<20)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); resp.StatusCode != 401 || string(body) != "no\n" || err != nil {
			t.Errorf("the client got %d %q, %v; want 401", resp.StatusCode, body, err)
		}
	})
}

// A write deadline ends a write to a client that reads nothing. A read deadline ends a read from a
// client that sends nothing.
func TestDeadlines(t *testing.T) {
	wrote, read := make(chan error, 1), make(chan error, 1)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		control.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, err := io.ReadAll(r.Body)
		read <- err
		control.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
		for err = nil; err == nil; {
			if _, err = w.Write(make([]byte, 64<<10)); err == nil {
				err = control.Flush()
			}
		}
		wrote <- err
	})
	overEach(t, func(t *testing.T, w wire) {
		body, end := io.Pipe()
		defer end.Close()
		r, _ := http.NewRequest("POST", w.url(s), body)
		c := w.client(t)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			if resp, err := c.Do(r); err == nil {
				<-wrote
				resp.Body.Close()
			} else {
				<-wrote
			}
		}()
		if err := <-read; !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err) {
			t.Errorf("the read ended with %v, want a timeout", err)
		}
		end.Close()
		<-answered
	})
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// Flushed data reaches the client while the response continues. When the client disconnects, the
// context of the request ends.
func TestStreaming(t *testing.T) {
	ended := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "x")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		ended <- struct{}{}
	})
	overEach(t, func(t *testing.T, w wire) {
		resp, err := w.client(t).Get(w.url(s))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		resp.Body.Close()
		<-ended
	})
}

// The server logs no part of a request, at any level, because the parameters of a URL may contain
// API keys.
func TestRequestsAreNotLogged(t *testing.T) {
	var mu sync.Mutex
	var log bytes.Buffer
	s, err := Listen(Options{HTTP: "127.0.0.1:0", HTTPS: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(&locked{&mu, &log}, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(http.NotFoundHandler(), secured())
	overEach(t, func(t *testing.T, w wire) {
		r, _ := http.NewRequest("GET", w.url(s)+"/canary?key=canary;a", nil)
		r.Header.Set("Authorization", "Bearer canary")
		resp, err := w.client(t).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	})
	s.Shutdown(t.Context())
	mu.Lock()
	defer mu.Unlock()
	if strings.Contains(log.String(), "canary") {
		t.Errorf("the log contains a part of the request: %s", &log)
	}
}

// locked is a writer that several goroutines can use.
type locked struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// A client that resumes a TLS session cannot send requests before the handshake is complete. An
// attacker could replay such early data.
func TestNoEarlyData(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !r.TLS.HandshakeComplete {
			t.Error("a request arrived before the handshake was complete")
		}
	})
	sessions := tls.NewLRUClientSessionCache(1)
	for i := range 2 {
		c, err := quic.DialAddrEarly(t.Context(), s.HTTPS(), &tls.Config{RootCAs: trust, NextProtos: []string{"h3"}, ClientSessionCache: sessions}, nil)
		if err != nil {
			t.Fatal(err)
		}
		<-c.HandshakeComplete()
		if state := c.ConnectionState(); state.Used0RTT || i == 1 && !state.TLS.DidResume {
			t.Errorf("connection %d: early data %v, resumed %v; want no early data, and the second connection resumed", i, state.Used0RTT, state.TLS.DidResume)
		}
		h3 := (&http3.Transport{}).NewClientConn(c)
		r, _ := http.NewRequest("GET", "https://"+s.HTTPS(), nil)
		resp, err := h3.RoundTrip(r) // after the response, the client has its session ticket
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		c.CloseWithError(0x100, "")
	}
}

func TestTLSVersions(t *testing.T) {
	s := serve(t, func(http.ResponseWriter, *http.Request) {})
	dial := func(c *tls.Config) error {
		c.RootCAs = trust
		conn, err := tls.Dial("tcp", s.HTTPS(), c)
		if err == nil {
			conn.Close()
		}
		return err
	}
	cbc := []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, tls.TLS_RSA_WITH_AES_128_GCM_SHA256}
	for name, c := range map[string]struct {
		config *tls.Config
		ok     bool
	}{
		"1.3":                   {&tls.Config{MinVersion: tls.VersionTLS13}, true},
		"1.2":                   {&tls.Config{MaxVersion: tls.VersionTLS12}, true},
		"1.1":                   {&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, false},
		"1.2 with weak ciphers": {&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: cbc}, false},
	} {
		if err := dial(c.config); (err == nil) != c.ok {
			t.Errorf("connecting with TLS %s returned %v", name, err)
		}
	}
}
