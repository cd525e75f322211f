package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/client"
)

// stored is a transport that acknowledges every publish, unless trouble returns a response or an
// error for it.
type stored struct {
	mu      sync.Mutex
	delay   map[string]time.Duration // of responses, by sequence
	trouble func(r *http.Request) (*http.Response, error)
	asked   []time.Time // when each publish arrived
}

func (s *stored) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == "POST" {
		r.Body.Close()
		<-time.After(s.delay[path.Base(r.URL.Path)])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := `{"mode":"json"}`
	if r.Method == "POST" {
		s.asked = append(s.asked, time.Now())
		if resp, err := s.trouble(r); resp != nil || err != nil {
			return resp, err
		}
		answer = fmt.Sprintf(`{"seq":%s,"accepted":1}`, path.Base(r.URL.Path))
	}
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(answer))}, nil
}

// A publisher waits for the Retry-After of the service.
func TestPublisherRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		s := &stored{trouble: func(*http.Request) (*http.Response, error) {
			if tries++; tries == 1 {
				return refusalOf(429, "7")
			}
			return nil, nil
		}}
		c := newClient(t, client.Options{URL: "http://weir.example", Transport: s})
		p := publisher(t, c, "x", client.PublisherOptions{BatchEvents: 1})
		start := time.Now()
		addNumbers(t, p, 1, 1)
		if err := p.Close(t.Context()); err != nil || time.Since(start) != 7*time.Second {
			t.Errorf("stored after %v, want 7s: %v", time.Since(start), err)
		}
	})
}

// If a higher batch is stored, a failed batch is resent at once, whatever Retry-After says:
// otherwise the service would close the gap.
func TestPublisherFillsGaps(t *testing.T) {
	for _, delay := range []map[string]time.Duration{
		{"1": 50 * time.Millisecond, "2": 10 * time.Millisecond}, {"1": 50 * time.Millisecond, "2": 90 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			first := true
			s := &stored{delay: delay, trouble: func(r *http.Request) (*http.Response, error) {
				if path.Base(r.URL.Path) == "1" && first {
					first = false
					return refusalOf(503, "30")
				}
				return nil, nil
			}}
			c := newClient(t, client.Options{URL: "http://weir.example", Transport: s})
			p := publisher(t, c, "x", client.PublisherOptions{BatchEvents: 1})
			start := time.Now()
			addNumbers(t, p, 1, 2)
			if err := p.Close(t.Context()); err != nil || time.Since(start) > 250*time.Millisecond {
				t.Errorf("%v: stored after %v: %v", delay, time.Since(start), err)
			}
		})
	}
}

// With several batches in flight, a publisher retries at least every 250 ms, because a gap may be
// open. With one, the pauses grow up to 5 s.
func TestPublisherRetryInterval(t *testing.T) {
	for inFlight, most := range map[int]time.Duration{1: 5 * time.Second, 3: 250 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			same := 20 * time.Millisecond
			s := &stored{delay: map[string]time.Duration{"1": same, "2": same, "3": same}, trouble: func(*http.Request) (*http.Response, error) {
				if time.Since(start) < time.Minute {
					return nil, errors.New("no route")
				}
				return nil, nil
			}}
			c := newClient(t, client.Options{URL: "http://weir.example", Transport: s})
			p := publisher(t, c, "x", client.PublisherOptions{BatchEvents: 1, InFlight: inFlight})
			addNumbers(t, p, 1, inFlight)
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			longest := time.Duration(0)
			for i, at := range s.asked[1:] {
				longest = max(longest, at.Sub(s.asked[i]))
			}
			if longest > most+50*time.Millisecond || longest < most/2 {
				t.Errorf("%d in flight: the longest pause is %v, want about %v", inFlight, longest, most)
			}
		})
	}
}

func TestPublisherGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stored{trouble: func(*http.Request) (*http.Response, error) { return nil, errors.New("no route") }}
		c := newClient(t, client.Options{URL: "http://weir.example", Transport: s})
		var retries atomic.Int32
		p := publisher(t, c, "x", client.PublisherOptions{GiveUp: 30 * time.Second, OnRetry: func(err error, _ time.Duration) { retries.Add(1) }})
		addNumbers(t, p, 1, 1)
		start := time.Now()
		err := p.Close(t.Context())
		if took := time.Since(start); !errors.Is(err, client.ErrGivenUp) || !strings.Contains(err.Error(), "no route") || took < 30*time.Second || took > 36*time.Second || retries.Load() < 5 {
			t.Errorf("after %v and %d retries: %v", took, retries.Load(), err)
		}
	})
}

// A context that ends while a call waits ends this call only, and the publisher keeps its batches.
func TestPublisherContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stored{trouble: func(*http.Request) (*http.Response, error) { return nil, errors.New("no route") }}
		c := newClient(t, client.Options{URL: "http://weir.example", Transport: s})
		p := publisher(t, c, "x", client.PublisherOptions{InFlight: 1, BatchEvents: 1})
		addNumbers(t, p, 1, 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.Add(ctx, 3); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("add: %v", err)
		}
		if err := p.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("flush: %v", err)
		}
		if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		if left := p.Unacknowledged(); len(left) != 2 {
			t.Errorf("%d batches are unacknowledged, want 2", len(left))
		}
	})
}
