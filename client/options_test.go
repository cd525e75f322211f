package client

import "testing"

// By default fewer batches are in flight over HTTP/1.1, where each takes a connection.
func TestInFlight(t *testing.T) {
	for _, c := range []struct {
		given int
		http1 bool
		want  int
	}{{0, false, 128}, {0, true, 64}, {3, false, 3}, {100, true, 100}, {1000, false, 512}, {1000, true, 512}} {
		o := PublisherOptions{InFlight: c.given}
		if o.fill(c.http1); o.InFlight != c.want {
			t.Errorf("InFlight %d, HTTP/1.1 %v: got %d, want %d", c.given, c.http1, o.InFlight, c.want)
		}
	}
}
