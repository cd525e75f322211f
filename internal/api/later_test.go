package api_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"weir/internal/api"
	"weir/internal/budget"
)

// loopWriter is a response writer like that of an event loop.
type loopWriter struct {
	*httptest.ResponseRecorder
	ready chan interface{ Finish() }
}

func (w loopWriter) ReuseBody() {}

func (w loopWriter) Ready(f interface{ Finish() }) { w.ready <- f }

// arrived is a request body whose bytes have all arrived.
type arrived struct{ io.Reader }

func (b arrived) Take() []byte { p, _ := io.ReadAll(b); return p }
func (b arrived) Close() error { return nil }

// ServeLater begins publishes and creations of streams, and answers them when their outcome is
// known. It leaves all other requests to ServeHTTP.
func TestServeLater(t *testing.T) {
	svc := startService(t)
	svc.publish("id", "1")
	svc.publish("id", "2")
	events := `{"events":["x"]}`
	for _, c := range []struct {
		name, method, path, body string
		fields                   []string
		taken, done              bool
		status                   int
	}{
		{"next sequence", "POST", "/v1/streams/{id}/publish", events, nil, true, false, 202},
		{"chosen sequence", "POST", "/v1/streams/{id}/4", events, nil, true, false, 202},
		{"contiguous", "POST", "/v1/streams/{id}/5", events, []string{"x-svc-contiguous: true"}, true, false, 202},
		{"a sequence that is not the next, refused after a wait", "POST", "/v1/streams/{id}/99", events, []string{"x-svc-contiguous: true"}, true, false, 412},
		{"duplicate, answered from the log", "POST", "/v1/streams/{id}/1", events, nil, true, false, 200},
		{"too far ahead, refused by Stream.Decide", "POST", "/v1/streams/{id}/5000", events, nil, true, false, 422},
		{"bad body", "POST", "/v1/streams/{id}/publish", "{", nil, true, true, 400},
		{"bad sequence", "POST", "/v1/streams/{id}/x", events, nil, true, true, 409},
		{"no such stream", "POST", "/v1/streams/0000000000000000000000/publish", events, nil, true, true, 404},
		{"other project", "POST", "/v1/streams/{theirs}/publish", events, nil, true, true, 403},
		{"create a stream", "POST", "/v1/streams", `{"name":"x","id":"0000000000000000000001"}`, nil, true, false, 201},
		{"create a stream again", "POST", "/v1/streams", `{"name":"x","id":"0000000000000000000001"}`, nil, true, false, 409},
		{"create a stream without a name", "POST", "/v1/streams", `{}`, nil, true, true, 400},
		{"list the streams", "GET", "/v1/streams", "", nil, false, false, 0},
		{"body that needs memory from the budget", "POST", "/v1/streams/{id}/publish", `{"events":["` + strings.Repeat("x", api.MostLater-100) + `"]}`, nil, true, false, 202},
		{"large body", "POST", "/v1/streams/{id}/publish", strings.Repeat("x", api.MostLater+1), nil, false, false, 0},
		{"create a stream with a large body", "POST", "/v1/streams", strings.Repeat(" ", api.FirstRead+1), nil, false, false, 0},
		{"subscribe without being parked", "GET", "/v1/streams/{id}", "", []string{"accept: text/event-stream"}, false, false, 0},
		{"not a publish", "GET", "/v1/streams/{id}/cursor", "", nil, false, false, 0},
		{"path outside the API", "POST", "/docs", "", nil, false, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := svc.request(c.method, c.path, append(c.fields, jsonBody), c.body)
			req.RemoteAddr, req.Body = "127.0.0.1:1", arrived{strings.NewReader(c.body)}
			w := loopWriter{httptest.NewRecorder(), make(chan interface{ Finish() }, 1)}
			taken, done := svc.API.ServeLater(w, req)
			if taken != c.taken || done != c.done {
				t.Fatalf("taken %v, done %v; want %v and %v", taken, done, c.taken, c.done)
			}
			if taken && !done {
				(<-w.ready).Finish()
			}
			if c.taken && w.Code != c.status {
				t.Errorf("status %d, want %d: %s", w.Code, c.status, w.Body)
			}
			if got := w.Header().Get("X-Request-Id"); c.taken {
				if r, found := svc.API.Request(got); !found || r.Status != c.status || r.Took < 0 || r.Took > time.Hour {
					t.Errorf("the request log has %+v, %v", r, found)
				}
			}
		})
	}
	w := httptest.NewRecorder()
	if taken, _ := svc.API.ServeLater(w, svc.request(http.MethodPost, "/v1/streams/{id}/publish", []string{jsonBody}, events)); taken {
		t.Error("ServeLater took a request whose response writer has no method Ready")
	}
}

// parkingLoopWriter is a loopWriter that keeps what was parked.
type parkingLoopWriter struct {
	loopWriter
	parked *api.Parked
}

func (w parkingLoopWriter) Park(p api.Parked) bool {
	*w.parked = p
	return true
}

// ServeLater begins subscriptions. Those that are not refused are parked, and are recorded when they
// end. It leaves other requests for the same path to ServeHTTP.
func TestSubscribeLater(t *testing.T) {
	svc := startService(t)
	svc.publish("id", "1")
	events := "accept: text/event-stream"
	for _, c := range []struct {
		name, method, path string
		fields             []string
		status             int // 0 if ServeLater does not take the request
		begins             string
	}{
		{"from the head", "GET", "/v1/streams/{id}", []string{events}, 200, "retry: 1000\nid: 1\n\n"},
		{"from the start", "GET", "/v1/streams/{id}?cursor=0", []string{events}, 200, "retry: 1000\nid: 0\n\n"},
		{"a bad start", "GET", "/v1/streams/{id}?cursor=x", []string{events}, 400, ""},
		{"no such stream", "GET", "/v1/streams/0000000000000000000000", []string{events}, 404, ""},
		{"other project", "GET", "/v1/streams/{theirs}", []string{events}, 403, ""},
		{"bad key", "GET", "/v1/streams/{id}", []string{events, "key: svc_live_00000000000000000000000000000000"}, 401, ""},
		{"the stream itself", "GET", "/v1/streams/{id}", nil, 0, ""},
		{"HEAD", "HEAD", "/v1/streams/{id}", []string{events}, 0, ""},
		{"batches", "GET", "/v1/streams/{id}/batches", []string{events}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := svc.request(c.method, c.path, c.fields, "")
			req.RemoteAddr = "127.0.0.1:1"
			w := parkingLoopWriter{loopWriter{httptest.NewRecorder(), make(chan interface{ Finish() }, 1)}, new(api.Parked)}
			taken, done := svc.API.ServeLater(w, req)
			if taken != (c.status != 0) || done {
				t.Fatalf("taken %v, done %v", taken, done)
			}
			if !taken {
				return
			}
			(<-w.ready).Finish()
			if w.Code != c.status {
				t.Fatalf("status %d, want %d: %s", w.Code, c.status, w.Body)
			}
			id := w.Header().Get("X-Request-Id")
			if c.status == 200 {
				if *w.parked == nil || svc.API.Stats().Subscribers != 1 || w.Body.String() != c.begins {
					t.Fatalf("parked %v, %d subscribers, %q", *w.parked, svc.API.Stats().Subscribers, w.Body)
				}
				if _, found := svc.API.Request(id); found {
					t.Error("the subscription is recorded before its end")
				}
				(*w.parked).Left(nil)
			}
			if r, found := svc.API.Request(id); !found || r.Status != c.status {
				t.Errorf("the request log has %+v, %v", r, found)
			}
			if n := svc.API.Stats().Subscribers; n != 0 {
				t.Errorf("%d subscribers are left", n)
			}
		})
	}
}

// endingWriter is a parkingLoopWriter that ends all subscriptions before the first byte of a body.
type endingWriter struct {
	parkingLoopWriter
	api *api.Handler
}

func (w endingWriter) Write(b []byte) (int, error) {
	w.api.EndSubscriptions()
	return w.parkingLoopWriter.Write(b)
}

// A subscription that ends while it begins, for example because its key is revoked, is not a complete
// response: the event loop closes the connection, as net/http does (D18).
func TestSubscribeLaterEnded(t *testing.T) {
	svc := startService(t)
	for _, coding := range []string{"identity", "gzip"} {
		req := svc.request("GET", "/v1/streams/{id}", []string{"accept: text/event-stream", "accept-encoding: " + coding}, "")
		req.RemoteAddr = "127.0.0.1:1"
		w := endingWriter{parkingLoopWriter{loopWriter{httptest.NewRecorder(), make(chan interface{ Finish() }, 1)}, new(api.Parked)}, svc.API}
		if taken, done := svc.API.ServeLater(w, req); !taken || done {
			t.Fatalf("taken %v, done %v", taken, done)
		}
		f := <-w.ready
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler {
					t.Errorf("%s: the end of the subscription became %v, want http.ErrAbortHandler", coding, p)
				}
			}()
			f.Finish()
		}()
		if *w.parked != nil {
			t.Errorf("%s: the subscription was parked after its end", coding)
		}
		if _, found := svc.API.Request(w.Header().Get("X-Request-Id")); !found {
			t.Errorf("%s: the request log has no entry", coding)
		}
		if n := svc.API.Stats().Subscribers; n != 0 {
			t.Errorf("%s: %d subscribers are left", coding, n)
		}
	}
}

// A publish whose body needs memory waits for it in a goroutine, not in the event loop. It holds its
// sequence open meanwhile, but no longer.
func TestServeLaterWithoutMemory(t *testing.T) {
	svc := startService(t)
	bodies := budget.New(8<<20, 1<<20)
	api.SetMemory(svc.API, bodies, nil, time.Minute)
	svc.publish("id", "1")
	var loans []*budget.Loan
	for full := false; !full; {
		l := bodies.Open(budget.Holder{Project: string(svc.Project), Key: svc.records["live"].ID}, 60<<10, nil)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		full = l.Grow(ctx, 60<<10) != nil
		cancel()
		loans = append(loans, l)
	}
	body := `{"events":["` + strings.Repeat("x", 60<<10) + `"]}`
	req := svc.request("POST", "/v1/streams/{id}/2", []string{"Authorization: Bearer {key:live}", jsonBody}, body)
	req.RemoteAddr, req.Body = "127.0.0.1:1", arrived{strings.NewReader(body)}
	w := loopWriter{httptest.NewRecorder(), make(chan interface{ Finish() }, 1)}
	if taken, done := svc.API.ServeLater(w, req); !taken || done {
		t.Fatalf("taken %v, done %v; want the request to be pending", taken, done)
	}
	for bodies.Stats().Waiting == 0 {
		if len(w.ready) > 0 {
			(<-w.ready).Finish()
			t.Fatalf("the outcome is known before there is memory: %d %s, %+v", w.Code, w.Body, bodies.Stats())
		}
		runtime.Gosched()
	}
	for _, l := range loans {
		l.End()
	}
	if (<-w.ready).Finish(); w.Code != http.StatusAccepted {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	if held := bodies.Stats().Held; held != 0 {
		t.Errorf("%d bytes were not returned to the budget", held)
	}
}
