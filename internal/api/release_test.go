package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"weir"
	"weir/internal/hub"
	"weir/internal/service/servicetest"
)

// slowReader is the response writer of a client that takes a while for the first piece of a
// response. It records the memory in use at the first piece, and again when all but the last 1 MiB
// was sent.
type slowReader struct {
	http.ResponseWriter
	held          func() int64 // bytes that are borrowed from the budget
	size, written int
	first, last   usage
	done          func()
}

type usage struct{ heap, held int64 }

func (r *slowReader) use() usage {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{int64(m.HeapAlloc), r.held()}
}

func (r *slowReader) Write(b []byte) (int, error) {
	if len(b) > 1<<10 {
		if r.first.heap == 0 {
			r.first = r.use()
			time.Sleep(200 * time.Millisecond) // the client is slow
		}
		if r.written += len(b); r.last.heap == 0 && r.written > r.size-mib {
			r.last = r.use()
			r.done()
		}
	}
	return len(b), nil
}

func (r *slowReader) Flush() {}

// A slow client holds only memory for the bytes that it has not received yet, and not for the whole
// response (D34).
func TestSentBytesAreReleased(t *testing.T) {
	s := servicetest.Start(t, servicetest.Options{})
	raw := string(s.NewStream(hub.Spec{Mode: weir.Raw}))
	json := string(s.NewStream(hub.Spec{}))
	body := make([]byte, 7*mib)
	call(t, s, "POST", "/v1/streams/"+raw+"/publish", s.Key, body, http.StatusAccepted)
	st, err := s.Hub.Stream(weir.StreamID(json))
	if err != nil {
		t.Fatal(err)
	}
	for i := range body {
		body[i] = '1'
	}
	body[0], body[1], body[len(body)-2], body[len(body)-1] = '[', '"', '"', ']'
	if _, err := st.Publish(t.Context(), &hub.Publish{Batch: weir.Batch{Events: 1, Payload: body}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, accept string
		size         int
	}{
		{raw + "/batches/1", "*/*", 7 * mib},
		{json + "/batches/1", "*/*", 7 * mib},
		{raw + "?cursor=0", "text/event-stream", 7 * mib / 3 * 4},
		{json + "?cursor=0", "text/event-stream", 7 * mib},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		req := httptest.NewRequestWithContext(ctx, "GET", "/v1/streams/"+c.path, nil)
		req.Header.Set("Authorization", "Bearer "+s.Key)
		req.Header.Set("Accept", c.accept)
		r := &slowReader{
			ResponseWriter: httptest.NewRecorder(), size: c.size, done: cancel,
			held: func() int64 { return s.API.Batches.Stats().Held },
		}
		s.API.ServeHTTP(r, req)
		cancel()
		if r.first.held < 7*mib || r.last.held == 0 || r.last.held > 2*mib+128<<10 {
			t.Errorf("GET %s with 1 MiB left to send: %d of %d bytes are still borrowed, want about 2 MiB at most", c.path, r.last.held, r.first.held)
		}
		if freed := r.first.heap - r.last.heap; freed < 4*mib {
			t.Errorf("GET %s with 1 MiB left to send: %d bytes of %d were freed, want at least 4 MiB", c.path, freed, c.size)
		}
	}
}
