package http3_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"

	quic "github.com/quic-go/quic-go"
	quichttp "github.com/quic-go/quic-go/http3"
	"go.uber.org/goleak"

	"weir"
	"weir/client"
	"weir/client/http3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is a minimal imitation of Weir: it stores batches and serves a subscription.
type service struct {
	mu      sync.Mutex
	bodies  []string
	version string
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = r.Proto
	switch {
	case r.Method == "POST":
		b, _ := io.ReadAll(r.Body)
		s.bodies = append(s.bodies, strings.TrimSuffix(strings.TrimPrefix(string(b), `{"events":`), "}"))
		fmt.Fprintf(w, `{"seq":%s,"accepted":1}`, path.Base(r.URL.Path))
	case r.Header.Get("Accept") == "text/event-stream":
		w.Header().Set("Content-Type", "text/event-stream")
		for i, b := range s.bodies {
			fmt.Fprintf(w, "id: %d\nevent: batch\ndata: {\"seq\":%[1]d,\"ts\":\"2026-11-15T00:00:00.000Z\",\"events\":%s}\n\n", i+1, b)
			w.(http.Flusher).Flush()
		}
		fmt.Fprint(w, "event: end\ndata: {}\n\n")
	default:
		fmt.Fprint(w, `{"mode":"json"}`)
	}
}

func TestTransport(t *testing.T) {
	certified := httptest.NewTLSServer(nil) // used for its certificate only
	defer certified.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	s := &service{}
	server := &quichttp.Server{Handler: s, TLSConfig: quichttp.ConfigureTLSConfig(certified.TLS), QUICConfig: &quic.Config{}}
	served := make(chan error, 1)
	go func() { served <- server.Serve(udp) }()
	defer func() { server.Close(); <-served }()

	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	transport := http3.New(&tls.Config{RootCAs: roots, ServerName: "example.com"})
	defer transport.Close()
	c, err := client.New(client.Options{URL: "https://" + udp.LocalAddr().String(), Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Publisher(t.Context(), "x", client.PublisherOptions{BatchEvents: 1, InFlight: 8})
	if err != nil {
		t.Fatal(err)
	}
	const n = 200
	for i := range n {
		if err := p.Add(t.Context(), i+1); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := map[weir.Seq]bool{}
	for b, err := range c.Subscriber("x", client.SubscriberOptions{From: client.Oldest}).Batches(t.Context()) {
		if err != nil || len(b.Events) != 1 {
			t.Fatalf("got %+v, %v", b, err)
		}
		got[b.Seq] = true
	}
	if len(got) != n || s.version != "HTTP/3.0" {
		t.Errorf("got %d batches over %s, want %d over HTTP/3.0", len(got), s.version, n)
	}
}
