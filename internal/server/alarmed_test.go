package server

import (
	"errors"
	"io"
	"net/http"
	"os"
	"testing"
	"time"
)

// Read deadlines work the same over every protocol. Reading a body fails after the deadline, also
// if that was moved closer or was already in the past. A removed deadline has no effect, and an
// expired one does not affect the next request.
func TestReadDeadlines(t *testing.T) {
	each(t, func(t *testing.T, w wire) {
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
				t.Errorf("%s: %v", path, err)
			}
			send.Close()
			<-ended
		}
	})
}

// A timer that fires late has no effect: not after the deadline was moved or removed, and not after
// the request has ended.
func TestLateTimer(t *testing.T) {
	expired := 0
	a := &alarmed{ResponseWriter: deadlines{func(time.Time) error { expired++; return nil }}}
	a.SetReadDeadline(time.Now().Add(time.Hour))
	a.fire()
	a.SetReadDeadline(time.Time{})
	a.fire()
	a.SetReadDeadline(time.Now().Add(time.Hour))
	a.until = time.Unix(1, 0)
	a.end()
	a.fire()
	if expired != 0 {
		t.Errorf("the deadline expired %d times, want 0", expired)
	}
}

// deadlines is a response writer that reports read deadlines.
type deadlines struct{ read func(time.Time) error }

func (d deadlines) Header() http.Header               { return nil }
func (d deadlines) Write(b []byte) (int, error)       { return len(b), nil }
func (d deadlines) WriteHeader(int)                   {}
func (d deadlines) SetReadDeadline(t time.Time) error { return d.read(t) }
