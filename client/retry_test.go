package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/client"
)

// stored is a transport that acts as a service. It stores every publish in order (D38), unless the
// function trouble returns a response or an error for the request.
type stored struct {
	mu      sync.Mutex
	delay   map[string]time.Duration // delay of each response, by sequence
	trouble func(r *http.Request) (*http.Response, error)
	asked   []time.Time // when each publish request arrived
	cursor  int
}

func (s *stored) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == "POST" {
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
		if d := s.delay[path.Base(r.URL.Path)]; d > 0 { // a timer that ends at once has crashed the runtime of Go 1.26 under the race detector
			select {
			case <-time.After(d):
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method != "POST" {
		return respond(200, `{"id":"x","mode":"json"}`, ""), nil
	}
	s.asked = append(s.asked, time.Now())
	if s.trouble != nil {
		if resp, err := s.trouble(r); resp != nil || err != nil {
			return resp, err
		}
	}
	seq, err := strconv.Atoi(path.Base(r.URL.Path))
	switch {
	case err != nil:
		return nil, err
	case seq > s.cursor+1:
		return respond(412, `{"error":{"code":"sequence_not_next","message":"not next"}}`, ""), nil
	}
	duplicate := seq <= s.cursor
	s.cursor = max(seq, s.cursor)
	return respond(200, fmt.Sprintf(`{"stream_id":"x","seq":%d,"accepted":1,"duplicate":%t}`, seq, duplicate), r.Header.Get("X-Svc-Publisher")), nil
}

func respond(status int, text, publisher string) *http.Response {
	h := http.Header{}
	if publisher != "" {
		h.Set("X-Svc-Publisher", publisher)
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: h, Body: io.NopCloser(strings.NewReader(text))}
}

// The first batch of a publisher is refused because of a rate limit. This only delays the publisher:
// it sends the batch again at the time in Retry-After, and all batches are stored.
func TestPublisherRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		s := &stored{delay: map[string]time.Duration{"1": 10 * time.Millisecond}, trouble: func(r *http.Request) (*http.Response, error) {
			if path.Base(r.URL.Path) == "1" && first {
				first = false
				return refusalOf(429, "37")
			}
			return nil, nil
		}}
		c := newClient(t, client.Options{URL: "http://weir.example", Transport: s})
		var acks []weir.Seq
		var waits []time.Duration
		p := publisher(t, c, "x", client.PublisherOptions{BatchEvents: 1, OnAck: func(a weir.Ack) { acks = append(acks, a.Seq) },
			OnRetry: func(_ error, wait time.Duration) { waits = append(waits, wait) }})
		start := time.Now()
		addNumbers(t, p, 1, 10)
		if err := p.Close(t.Context()); err != nil || time.Since(start).Truncate(time.Second) != 37*time.Second {
			t.Errorf("stored everything after %v, want 37s: %v", time.Since(start), err)
		}
		if !slices.Equal(acks, []weir.Seq{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) || !slices.Equal(waits, []time.Duration{37 * time.Second}) {
			t.Errorf("acknowledged %v, retried after %v; want 1 to 10, and one retry after 37s", acks, waits)
		}
		// Besides the first batch, each of the nine others may have been sent twice, because the
		// service refuses a batch while an earlier one is missing.
		if n := len(s.asked); n > 20 {
			t.Errorf("%d publishes, want at most 20", n)
		}
	})
}

// The pauses between retries grow: up to 500 ms if open connections break, and up to 5 s if no
// connection can be opened.
func TestPublisherRetryInterval(t *testing.T) {
	for most, broken := range map[time.Duration]error{
		500 * time.Millisecond: errors.New("reset"),
		5 * time.Second:        &net.OpError{Op: "dial", Err: errors.New("no route")},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			s := &stored{trouble: func(*http.Request) (*http.Response, error) {
				if time.Since(start) < time.Minute {
					return nil, broken
				}
				return nil, nil
			}}
			c := newClient(t, client.Options{URL: "http://weir.example", Transport: s})
			p := publisher(t, c, "x", client.PublisherOptions{BatchEvents: 1, InFlight: 1})
			addNumbers(t, p, 1, 1)
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			longest := time.Duration(0)
			for i, at := range s.asked[1:] {
				longest = max(longest, at.Sub(s.asked[i]))
			}
			if longest > most || longest < most/2 {
				t.Errorf("%v: the longest pause is %v, want about %v", broken, longest, most)
			}
		})
	}
}

// A publisher gives up on time, whether attempts fail or hang. Done is closed then, even if no call
// is waiting.
func TestPublisherGivesUp(t *testing.T) {
	for name, s := range map[string]*stored{
		"no route": {trouble: func(*http.Request) (*http.Response, error) { return nil, errors.New("no route") }},
		"":         {delay: map[string]time.Duration{"1": time.Hour}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t, client.Options{URL: "http://weir.example", Transport: s})
			p := publisher(t, c, "x", client.PublisherOptions{GiveUp: 7 * time.Second, Linger: -1})
			if p.Err() != nil {
				t.Error(p.Err())
			}
			start := time.Now()
			addNumbers(t, p, 1, 1)
			go p.Flush(t.Context())
			<-p.Done()
			if err := p.Err(); !errors.Is(err, client.ErrGivenUp) || !strings.Contains(err.Error(), name) || time.Since(start) != 7*time.Second {
				t.Errorf("%q: gave up after %v, want 7s: %v", name, time.Since(start), err)
			}
			if err := p.Close(t.Context()); !errors.Is(err, client.ErrGivenUp) || time.Since(start) != 7*time.Second {
				t.Errorf("%q: Close returned after %v, want 7s: %v", name, time.Since(start), err)
			}
			if left := p.Unacknowledged(); len(left) != 1 || !left[0].Sent {
				t.Errorf("%q: unacknowledged: %+v", name, left)
			}
		})
	}
}

// If the stream cannot be fetched, opening a publisher is retried for the time in GiveUp.
func TestPublisherOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := newClient(t, client.Options{URL: "http://weir.example", Transport: &fakes{answer: func(_ int, r *http.Request) (*http.Response, error) {
			if time.Since(start) < 2*time.Minute {
				return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
			}
			return respond(200, `{"id":"x","mode":"json"}`, ""), nil
		}}})
		if _, err := c.Publisher(t.Context(), "x", client.PublisherOptions{GiveUp: time.Minute}); err == nil || time.Since(start) < 50*time.Second {
			t.Errorf("gave up after %v, want about a minute: %v", time.Since(start), err)
		}
		told := 0
		p := publisher(t, c, "x", client.PublisherOptions{GiveUp: 2 * time.Minute, OnRetry: func(error, time.Duration) { told++ }})
		if told == 0 {
			t.Error("OnRetry was not called")
		}
		p.Close(t.Context())
	})
}

// A response that is not from Weir neither acknowledges a batch nor makes the publisher fail.
func TestPublisherForeignAnswers(t *testing.T) {
	for name, answer := range map[string]func() (*http.Response, error){
		"captive portal":      func() (*http.Response, error) { return respond(200, `{"status":"ok"}`, ""), nil },
		"another stream":      func() (*http.Response, error) { return respond(200, `{"stream_id":"y","seq":1}`, ""), nil },
		"another batch":       func() (*http.Response, error) { return respond(202, `{"stream_id":"x","seq":99}`, ""), nil },
		"521":                 func() (*http.Response, error) { return refusalOf(521, "") },
		"404 from an ingress": func() (*http.Response, error) { return respond(404, `{"error":"no backend"}`, ""), nil },
		"404 from a platform": func() (*http.Response, error) {
			return respond(404, `{"error":{"code":"404","message":"The page could not be found"}}`, ""), nil
		},
		"maintenance":         func() (*http.Response, error) { return refusalOf(503, "86400") },
		"403 from a firewall": func() (*http.Response, error) { return refusalOf(403, "") },
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			s := &stored{trouble: func(*http.Request) (*http.Response, error) {
				if time.Since(start) < 20*time.Second {
					return answer()
				}
				return nil, nil
			}}
			c := newClient(t, client.Options{URL: "http://weir.example", Transport: s})
			acks := 0
			p := publisher(t, c, "x", client.PublisherOptions{BatchEvents: 1, GiveUp: 2 * time.Minute, OnAck: func(weir.Ack) { acks++ }})
			addNumbers(t, p, 1, 3)
			if err := p.Close(t.Context()); err != nil || acks != 3 || s.cursor != 3 || time.Since(start) < 20*time.Second {
				t.Errorf("%s: %d acknowledgements, cursor %d, after %v: %v", name, acks, s.cursor, time.Since(start), err)
			}
		})
	}
}

// One attempt that hangs does not stop the other attempts. Its batch is sent again as soon as later
// batches show that the service answers.
func TestPublisherHungAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := false
		s := &stored{}
		hang := roundTrip(func(r *http.Request) (*http.Response, error) {
			if !hung && path.Base(r.URL.Path) == "2" {
				hung = true
				io.Copy(io.Discard, r.Body)
				r.Body.Close()
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return s.RoundTrip(r)
		})
		c := newClient(t, client.Options{URL: "http://weir.example", Transport: hang})
		p := publisher(t, c, "x", client.PublisherOptions{BatchEvents: 1})
		start := time.Now()
		addNumbers(t, p, 1, 5)
		if err := p.Close(t.Context()); err != nil || time.Since(start) > 5*time.Second || s.cursor != 5 {
			t.Errorf("cursor %d after %v, want 5 within 5s: %v", s.cursor, time.Since(start), err)
		}
	})
}

type roundTrip func(r *http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A publisher fails with a reason if the service does not support publisher names, or if the stream
// has lost acknowledged batches.
func TestPublisherRefusesToGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := &stored{trouble: func(*http.Request) (*http.Response, error) {
			return respond(202, `{"stream_id":"x","seq":1,"accepted":1}`, ""), nil
		}}
		p := publisher(t, newClient(t, client.Options{URL: "http://weir.example", Transport: old}), "x", client.PublisherOptions{BatchEvents: 1})
		addNumbers(t, p, 1, 1)
		if err := p.Close(t.Context()); !errors.Is(err, client.ErrUnsupported) || len(p.Unacknowledged()) != 1 {
			t.Errorf("a service without publisher names: %v, want ErrUnsupported", err)
		}
		s := &stored{}
		p = publisher(t, newClient(t, client.Options{URL: "http://weir.example", Transport: s}), "x", client.PublisherOptions{BatchEvents: 1})
		addNumbers(t, p, 1, 3)
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.cursor = 0
		addNumbers(t, p, 4, 4)
		if err := p.Close(t.Context()); !errors.Is(err, client.ErrReset) {
			t.Errorf("a restored stream: %v, want ErrReset", err)
		}
	})
}

// If the context of a call ends while the call waits, only this call ends. The publisher keeps its
// batches.
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

// A second Close waits for the first, but not longer than until its own context ends.
func TestPublisherSecondClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stored{trouble: func(*http.Request) (*http.Response, error) { return nil, errors.New("no route") }}
		c := newClient(t, client.Options{URL: "http://weir.example", Transport: s})
		p := publisher(t, c, "x", client.PublisherOptions{BatchEvents: 1})
		addNumbers(t, p, 1, 1)
		start := time.Now()
		patient, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		first := make(chan error, 1)
		go func() { first <- p.Close(patient) }()
		synctest.Wait()
		hasty, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.Close(hasty); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("the second close ended after %v: %v, want its deadline", time.Since(start), err)
		}
		if err := p.Close(t.Context()); !errors.Is(err, client.ErrClosed) || time.Since(start) != time.Hour {
			t.Errorf("the third close ended after %v: %v, want ErrClosed after the first", time.Since(start), err)
		}
		if err := <-first; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the first close: %v", err)
		}
	})
}

// If Close ends before everything is stored, nothing more will be stored. So Close ends a Flush
// that is waiting, and any later Flush returns at once.
func TestPublisherFlushAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stored{trouble: func(*http.Request) (*http.Response, error) { return nil, errors.New("no route") }}
		c := newClient(t, client.Options{URL: "http://weir.example", Transport: s})
		p := publisher(t, c, "x", client.PublisherOptions{BatchEvents: 1})
		addNumbers(t, p, 1, 1)
		patient, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		waiting := make(chan error, 1)
		go func() { waiting <- p.Flush(patient) }()
		synctest.Wait()
		hasty, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.Close(hasty); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		if err := <-waiting; !errors.Is(err, client.ErrClosed) {
			t.Errorf("a flush during the close: %v, want ErrClosed", err)
		}
		if err := p.Flush(patient); !errors.Is(err, client.ErrClosed) {
			t.Errorf("a flush after the close: %v, want ErrClosed", err)
		}
	})
}

// The response to a create is lost, and the service cannot be reached when the client asks whether its
// first attempt has created the stream. So the name may be taken by the client itself.
func TestCreateStreamThatCannotBeLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{answer: func(n int, r *http.Request) (*http.Response, error) {
			switch {
			case n == 1 || r.Method == "GET":
				return nil, io.ErrUnexpectedEOF
			default:
				return respond(409, `{"error":{"type":"conflict_error","code":"stream_name_taken","message":"taken"}}`, ""), nil
			}
		}}
		c := newClient(t, client.Options{URL: "http://weir.example", Transport: f})
		_, err := c.CreateStream(t.Context(), client.NewStream{Name: "x", ID: "aaaaaaaaaaaaaaaaaaaaaa"})
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the error is %v, want the reason why the service could not be asked", err)
		}
	})
}
