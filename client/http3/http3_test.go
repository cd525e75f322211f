package http3_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"weir/client"
	"weir/client/http3"
	"weir/internal/service/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newTransport returns a transport that trusts the certificate authority of the server with this
// data directory.
func newTransport(t *testing.T, data string) http3.Transport {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(data, "tls", "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		t.Fatal("ca.pem contains no certificate")
	}
	transport := http3.New(&tls.Config{RootCAs: roots})
	t.Cleanup(func() { transport.Close() })
	return transport
}

// checkNumbers reads a stream from its beginning and checks that its events are the numbers from 1
// to n, each once and in order.
func checkNumbers(t *testing.T, s *client.Subscriber, n int) {
	t.Helper()
	next := 1
	for b, err := range s.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range b.Events {
			if string(event) != fmt.Sprint(next) {
				t.Fatalf("got %s, want %d", event, next)
			}
			next++
		}
		if next > n {
			return
		}
	}
	t.Fatalf("the subscription ended before event %d", next)
}

// All requests of a client, a publisher and a subscriber go over HTTP/3.
func TestTransport(t *testing.T) {
	var mu sync.Mutex
	versions := map[string]int{}
	svc := servicetest.Start(t, servicetest.Options{
		Args: []string{"--https", "127.0.0.1:0"},
		Wrap: func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				versions[r.Proto]++
				mu.Unlock()
				h.ServeHTTP(w, r)
			})
		},
	})
	c, err := client.New(client.Options{URL: svc.HTTPS, Key: client.Key(svc.Key), Transport: newTransport(t, svc.Data)})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := c.CreateStream(t.Context(), client.NewStream{Name: "over HTTP/3"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Publisher(t.Context(), stream.ID, client.PublisherOptions{BatchEvents: 1, InFlight: 8})
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
	checkNumbers(t, c.Subscriber(stream.ID, client.SubscriberOptions{From: client.Oldest}), n)
	mu.Lock()
	defer mu.Unlock()
	if len(versions) != 1 || versions["HTTP/3.0"] < n {
		t.Errorf("requests by HTTP version: %v, want at least %d over HTTP/3.0 only", versions, n)
	}
}
