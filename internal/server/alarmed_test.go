package server

import (
	"errors"
	"io"
	"net/http"
	"os"
	"testing"
	"time"
)

// A deadline for reading means the same over every wire: a body that does not come in time is given up, also when the time was
// made shorter or is over already, and one that was taken back ends nothing. What is left of it does no harm to the next request.
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
			case "/taken":
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
		for _, path := range []string{"/late", "/taken", "/past", "/sooner", "/late", "/taken"} {
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
			inTime := path == "/taken"
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

// An alarm that rings when its request is over, or when it was put off, reaches nobody.
func TestLateAlarm(t *testing.T) {
	rung := 0
	a := &alarmed{ResponseWriter: deadlines{func(time.Time) error { rung++; return nil }}}
	a.SetReadDeadline(time.Now().Add(time.Hour))
	a.rings()
	a.SetReadDeadline(time.Time{})
	a.rings()
	a.SetReadDeadline(time.Now().Add(time.Hour))
	a.until = time.Unix(1, 0)
	a.end()
	a.rings()
	if rung != 0 {
		t.Errorf("it rang %d times", rung)
	}
}

// deadlines is an answer that is told deadlines.
type deadlines struct{ read func(time.Time) error }

func (d deadlines) Header() http.Header               { return nil }
func (d deadlines) Write(b []byte) (int, error)       { return len(b), nil }
func (d deadlines) WriteHeader(int)                   {}
func (d deadlines) SetReadDeadline(t time.Time) error { return d.read(t) }
