package server

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Read deadlines work the same over every protocol. Reading a body fails after the deadline, even
// if the deadline was moved closer or was already in the past when it was set. A removed deadline
// has no effect. An expired deadline does not affect the next request.
func TestReadDeadlines(t *testing.T) {
	overEach(t, func(t *testing.T, w wire) {
		soon := 20 * time.Millisecond
		got := make(chan error, 1)
		arrived := make(chan struct{}, 1)
		s := serve(t, func(rw http.ResponseWriter, r *http.Request) {
			control := http.NewResponseController(rw)
			set := func(at time.Time) {
				if err := control.SetReadDeadline(at); err != nil {
					t.Errorf("%s: %v", r.URL.Path, err)
				}
			}
			switch r.URL.Path {
			case "/late":
				set(time.Now().Add(soon))
			case "/past":
				set(time.Now().Add(-time.Second))
			case "/removed":
				set(time.Now().Add(time.Hour))
				set(time.Time{})
			case "/sooner":
				set(time.Now().Add(time.Hour))
				set(time.Now().Add(soon))
			}
			arrived <- struct{}{}
			_, err := io.ReadAll(r.Body)
			got <- err
		})
		c := w.client(t)
		for _, path := range []string{"/late", "/removed", "/past", "/sooner", "/late", "/removed"} {
			body, send := io.Pipe()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				resp, err := c.Post(w.url(s)+path, "text/plain", body)
				if err == nil {
					resp.Body.Close()
				}
			}()
			send.Write([]byte("some"))
			<-arrived
			inTime := path == "/removed"
			if inTime {
				send.Close()
			}
			if err := <-got; inTime && err != nil || !inTime && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: reading the body returned %v; it must fail with a deadline error unless the path is /removed", path, err)
			}
			send.Close()
			<-ended
		}
	})
}

// A timer that fires late has no effect if the deadline was moved or removed, or if the request has
// ended.
func TestLateTimer(t *testing.T) {
	expired := 0
	a := &alarmed{ResponseWriter: deadlines{func(time.Time) error { expired++; return nil }}}
	for _, m := range []*alarm{&a.read, &a.write} {
		a.done = false
		a.set(m, time.Now().Add(time.Hour))
		a.fire(m)
		a.set(m, time.Time{})
		a.fire(m)
		a.set(m, time.Now().Add(time.Hour))
		m.until = time.Unix(1, 0)
		a.end()
		a.fire(m)
		a.set(m, time.Unix(1, 0))
	}
	if expired != 0 {
		t.Errorf("a deadline expired %d times, want 0", expired)
	}
}

// If a deadline is set again and again, alarmed (the HTTP/2 response writer) keeps one timer. When
// the timer fires, it checks the latest deadline. alarmed calls net/http only when that deadline has
// expired.
func TestDeadlinesThatMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var expired []time.Duration
		a := &alarmed{ResponseWriter: deadlines{func(time.Time) error {
			expired = append(expired, time.Since(start))
			return nil
		}}}
		defer a.end()
		for range 100 { // like a subscription that sends a batch per second
			a.SetWriteDeadline(time.Now().Add(30 * time.Second))
			a.SetWriteDeadline(time.Time{})
			time.Sleep(time.Second)
		}
		a.SetWriteDeadline(time.Now().Add(30 * time.Second)) // like a write that takes too long
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []time.Duration{130 * time.Second}; !slices.Equal(expired, want) {
			t.Errorf("the deadline expired after %v, want %v", expired, want)
		}
	})
}

// deadlines is a response writer that passes each deadline to the function set.
type deadlines struct{ set func(time.Time) error }

func (d deadlines) Header() http.Header                { return nil }
func (d deadlines) Write(b []byte) (int, error)        { return len(b), nil }
func (d deadlines) WriteHeader(int)                    {}
func (d deadlines) SetReadDeadline(t time.Time) error  { return d.set(t) }
func (d deadlines) SetWriteDeadline(t time.Time) error { return d.set(t) }
