package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir"
)

// endless is a backup that writes until writing fails.
type endless struct {
	closed chan struct{}
	wrote  chan struct{}
	err    error // returned after the first piece, if set
}

func (e *endless) Size() int64  { return 12345 }
func (e *endless) Close() error { close(e.closed); return nil }
func (e *endless) Copy(_ context.Context, w io.Writer) error {
	piece := make([]byte, 1<<20)
	for {
		if _, err := w.Write(piece); err != nil {
			return err
		}
		select {
		case e.wrote <- struct{}{}:
		default:
		}
		if e.err != nil {
			return e.err
		}
	}
}

func newEndless() *endless {
	return &endless{closed: make(chan struct{}), wrote: make(chan struct{}, 1)}
}

// A backup is closed when its client disconnects, or when copying fails. Then the next backup can
// start.
func TestBackupEnds(t *testing.T) {
	h := newTestHandler(t)
	var now *endless
	h.Backups(func(context.Context, []byte) (Backup, error) { return now, nil })
	s := httptest.NewServer(h)
	defer s.Close()
	for name, c := range map[string]struct {
		err  error
		read func(*http.Response) error
	}{
		"client disconnects": {nil, func(r *http.Response) error { return r.Body.Close() }},
		"copy fails": {errors.New("planted"), func(r *http.Response) error {
			if _, err := io.Copy(io.Discard, r.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("reading a failed backup: got %v, want unexpected EOF", err)
			}
			return nil
		}},
	} {
		now = newEndless()
		now.err = c.err
		var r *http.Response
		for r == nil || r.StatusCode == 503 { // the previous request ends a moment after its backup is closed
			var err error
			if r, err = s.Client().Post(s.URL+"/backup", "", nil); err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
		}
		if r.StatusCode != 200 || r.Header.Get(SizeHeader) != "12345" {
			t.Errorf("%s: %s %v", name, r.Status, r.Header)
		}
		<-now.wrote
		if err := c.read(r); err != nil {
			t.Error(err)
		}
		<-now.closed
		r.Body.Close()
	}
}

func TestBackupRefused(t *testing.T) {
	h := newTestHandler(t)
	held := newEndless()
	fault := error(nil)
	h.Backups(func(context.Context, []byte) (Backup, error) { return held, fault })
	s := httptest.NewServer(h)
	defer s.Close()
	var e Error
	h.ask(t, "POST", "/backup?rate=x", "", 400, &e)
	if !strings.Contains(e.Message, "rate") {
		t.Errorf("%+v", e)
	}
	fault = errors.New("planted")
	h.ask(t, "POST", "/backup", "", 500, &e)
	if e.Code != weir.InternalError || strings.Contains(e.Message, "planted") {
		t.Errorf("%+v", e)
	}
	fault = nil
	r, err := s.Client().Post(s.URL+"/backup", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	h.ask(t, "POST", "/backup", "", 503, &e)
	if e.Message != "another backup is in progress" {
		t.Errorf("%+v", e)
	}
	r.Body.Close()
	<-held.closed
}

// The rate limit applies from the first piece on, and Write stops waiting when the request ends.
func TestPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := httptest.NewRecorder()
		p := &paced{ctx: ctx, w: w, control: http.NewResponseController(w), rate: 1 << 20, start: time.Now()}
		if n, err := p.Write(make([]byte, 10<<20)); n != 10<<20 || err != nil {
			t.Errorf("write: %d, %v", n, err)
		}
		if took := time.Since(p.start); took < 9900*time.Millisecond || took > 10*time.Second {
			t.Errorf("10 MiB at 1 MiB/s took %v, want 9.9 s to 10 s", took)
		}
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		if _, err := p.Write(make([]byte, 10<<20)); !errors.Is(err, context.Canceled) {
			t.Errorf("write after the request ended: %v", err)
		}
	})
}
