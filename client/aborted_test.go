package client_test

import (
	"errors"
	"net/http"
	"net/http/httptrace"
	"path"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/client"
)

// A batch whose write was aborted does not count as written. So the publisher sends no later batch
// before it has sent the aborted batch again.
func TestPublisherAbortedWrite(t *testing.T) {
	broken := errors.New("connection reset")
	for name, abort := range map[string]func(r *http.Request){
		"body closed before its end": func(r *http.Request) {
			r.Body.Read(make([]byte, 5))
			r.Body.Close()
		},
		"write failed": func(r *http.Request) {
			httptrace.ContextClientTrace(r.Context()).WroteRequest(httptrace.WroteRequestInfo{Err: broken})
			r.Body.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stored{}
				var mu sync.Mutex
				var sent []string
				transport := roundTrip(func(r *http.Request) (*http.Response, error) {
					if r.Method == "POST" {
						mu.Lock()
						sent = append(sent, path.Base(r.URL.Path))
						first := len(sent) == 1
						mu.Unlock()
						if first {
							abort(r)
							time.Sleep(100 * time.Millisecond) // in simulated time; meanwhile a faulty publisher would send a later batch
							return nil, broken
						}
					}
					return s.RoundTrip(r)
				})
				p := publisher(t, newClient(t, client.Options{URL: "http://weir.example", Transport: transport}), "x", client.PublisherOptions{BatchEvents: 1})
				addNumbers(t, p, 1, 3)
				if err := p.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				// Only the first two batches that are sent are certain: later batches may overtake
				// each other, and are then sent again.
				if want := []string{"1", "1"}; !slices.Equal(sent[:2], want) {
					t.Errorf("sent batches %v, want them to begin with %v", sent, want)
				}
			})
		})
	}
}
