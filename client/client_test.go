package client_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir"
	"weir/client"
	"weir/internal/access"
)

func TestNewInvalidOptions(t *testing.T) {
	for _, c := range []struct {
		o    client.Options
		want string
	}{
		{client.Options{}, "must start with http:// or https://"},
		{client.Options{URL: "127.0.0.1:8080"}, "is malformed"},
		{client.Options{URL: "localhost:8080"}, "must start with http:// or https://"},
		{client.Options{URL: "ftp://example.com"}, "must start with http:// or https://"},
		{client.Options{URL: "http://"}, "must start with http:// or https://"},
		{client.Options{URL: "http://me:secret@example.com"}, "contains a user name"},
		{client.Options{URL: "http://example.com?a=b"}, "must not have a query"},
		{client.Options{URL: "http://me:secret@exa mple.com"}, "is malformed"},
		{client.Options{URL: "http://example.com", Key: "svc_live_secret\n"}, "a control character"},
	} {
		_, err := client.New(c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("New(%q) = %v, want %q", c.o.URL, err, c.want)
		}
	}
}

func TestStreams(t *testing.T) {
	for _, http1 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP1=%t", http1), func(t *testing.T) {
			ctx := t.Context()
			c := startService(t, nil).client(client.Options{HTTP1: http1})
			made, err := c.CreateStream(ctx, client.NewStream{Name: "orders", RetentionSeconds: 60, MaxBytes: 1 << 20, Mode: weir.Raw})
			if err != nil || made.Name != "orders" || made.RetentionSeconds != 60 || made.MaxBytes != 1<<20 || made.Mode != weir.Raw || !weir.IsID(string(made.ID)) {
				t.Fatalf("created %+v, %v", made, err)
			}
			if got, err := c.Stream(ctx, made.ID); err != nil || got != made {
				t.Errorf("got %+v, %v; want %+v", got, err, made)
			}
			if cursor, err := c.Cursor(ctx, made.ID); err != nil || cursor.Cursor != 0 || cursor.UpdatedAt != made.CreatedAt {
				t.Errorf("cursor: %+v, %v; want 0 at %v", cursor, err, made.CreatedAt)
			}
			readToEnd(t, c, made.ID)
			if err := c.DeleteStream(ctx, made.ID); err != nil {
				t.Error(err)
			}
			if _, err := c.Stream(ctx, made.ID); client.CodeOf(err) != weir.StreamNotFound {
				t.Errorf("read a deleted stream: %v, want stream_not_found", err)
			}
			if h, err := c.Health(ctx); err != nil || h.Status != "ok" {
				t.Errorf("health: %+v, %v", h, err)
			}
			if v, err := c.Version(ctx); err != nil || v.Version != thisBuild.Version || v.Commit != thisBuild.Commit {
				t.Errorf("version: %+v, %v", v, err)
			}
		})
	}
}

// readToEnd closes a stream and reads it to its end, which ends the iteration without an error.
func readToEnd(t *testing.T, c *client.Client, id weir.StreamID) {
	t.Helper()
	ctx := t.Context()
	if _, err := c.Publish(ctx, id, client.Bytes([]byte("one"))); err != nil {
		t.Error(err)
	}
	sub, n := c.Subscriber(id, client.SubscriberOptions{From: client.Oldest}), 0
	for b, err := range sub.Batches(ctx) {
		if n++; err != nil || b.Seq != 1 {
			t.Errorf("got batch %d, %v", b.Seq, err)
			break
		}
		if s, err := c.CloseStream(ctx, id); err != nil || !s.Closed || s.Cursor != 1 {
			t.Errorf("closing returned %+v, %v", s, err)
		}
	}
	if n != 1 || sub.End() != client.StreamClosed {
		t.Errorf("read %d batches, the end is %q", n, sub.End())
	}
	if _, err := c.Publish(ctx, id, client.Bytes([]byte("two"))); client.CodeOf(err) != weir.StreamClosed {
		t.Errorf("publish to a closed stream: %v", err)
	}
}

func TestStreamsPaging(t *testing.T) {
	c := startService(t, nil).client(client.Options{})
	var want []weir.StreamID
	for range 2*weir.MaxPage + 3 {
		want = append(want, newStream(t, c, client.NewStream{}))
	}
	slices.Reverse(want)
	var got []weir.StreamID
	for s, err := range c.Streams(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, s.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %d streams, want %d, newest first", len(got), len(want))
	}
	for s := range c.Streams(t.Context()) {
		if s.ID != want[0] {
			t.Errorf("the first stream is %s, want %s", s.ID, want[0])
		}
		break
	}
}

func TestErrors(t *testing.T) {
	svc := startService(t, nil)
	c := svc.client(client.Options{})
	_, err := c.Stream(t.Context(), weir.NewStreamID())
	e, ok := errors.AsType[*client.Error](err)
	if !ok {
		t.Fatalf("got %v, want an *Error", err)
	}
	if e.Status != 404 || e.Code != weir.StreamNotFound || e.Type != "not_found_error" || e.Message == "" ||
		!strings.HasPrefix(e.RequestID, "req_") || e.DocURL != svc.URL()+"/docs/errors#stream_not_found" {
		t.Errorf("got %+v, want a complete stream_not_found error", e)
	}
	if got := e.Error(); got != "stream_not_found: "+e.Message+" ("+e.RequestID+")" {
		t.Errorf("Error() = %q", got)
	}
	for _, x := range []struct {
		code weir.Code
		err  error
	}{
		{weir.InvalidStreamID, func() error { _, err := c.Cursor(t.Context(), "a/../b"); return err }()},
		{weir.InvalidAPIKey, func() error {
			_, err := svc.client(client.Options{Key: "nonsense"}).Cursor(t.Context(), weir.NewStreamID())
			return err
		}()},
		{weir.ProjectForbidden, svc.client(client.Options{Key: client.Key(svc.NewKey(access.Read))}).DeleteStream(t.Context(), newStream(t, c, client.NewStream{}))},
		{weir.InvalidRequest, func() error {
			_, err := c.CreateStream(t.Context(), client.NewStream{Name: strings.Repeat("x", 129)})
			return err
		}()},
		{"", errors.New("else")},
	} {
		if got := client.CodeOf(x.err); got != x.code {
			t.Errorf("code %q, want %q: %v", got, x.code, x.err)
		}
	}
}

// A response may come from a proxy in front of the service or, if the URL is wrong, from another
// server. Such a response can have any status and body.
func TestForeignResponses(t *testing.T) {
	var status atomic.Int32
	var text atomic.Value
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(int(status.Load()))
		w.Write([]byte(text.Load().(string)))
	}))
	defer srv.Close()
	c := newClient(t, client.Options{URL: srv.URL, HTTP1: true, Retry: -1})
	for _, x := range []struct {
		status int
		text   string
		want   string
	}{
		{502, "<html>", "status 502: the response is not from Weir: 502 Bad Gateway"},
		{302, "", "status 302: the response is not from Weir: 302 Found"},
		{404, `{"error":"gone"}`, "status 404: the response is not from Weir: 404 Not Found"},
		{403, strings.Repeat("x", 1<<20), "status 403: the response is not from Weir: 403 Forbidden"},
		{200, "<html>", "the response is not from Weir: invalid character"},
		{200, strings.Repeat(" ", 13<<20), "the response is not from Weir: it is larger than"},
	} {
		status.Store(int32(x.status))
		text.Store(x.text)
		_, err := c.Stream(t.Context(), weir.NewStreamID())
		if err == nil || !strings.HasPrefix(err.Error(), x.want) {
			t.Errorf("%d %.10q: got %v, want %q", x.status, x.text, err, x.want)
		}
	}
}

func TestPublish(t *testing.T) {
	ctx := t.Context()
	c := startService(t, nil).client(client.Options{})
	id := newStream(t, c, client.NewStream{})
	ack, err := c.Publish(ctx, id, client.Events("a", map[string]int{"b": 1}, json.RawMessage(" [1.50, 2] "), nil))
	if err != nil || ack != (weir.Ack{StreamID: id, Seq: 1, Accepted: 4, Cursor: 1}) {
		t.Fatalf("publish four events: got %+v, %v", ack, err)
	}
	b, err := c.Batch(ctx, id, 1)
	var events []string
	for _, e := range b.Events {
		events = append(events, string(e))
	}
	if want := []string{`"a"`, `{"b":1}`, `[1.50,2]`, `null`}; err != nil || b.Seq != 1 || b.Time == 0 || !slices.Equal(events, want) {
		t.Errorf("got %+v, %v; want %q", b, err, want)
	}
	if ack, err = c.PublishAt(ctx, id, 7, client.Events()); err != nil || ack.Seq != 7 || ack.Accepted != 0 || ack.Duplicate {
		t.Errorf("publish an empty batch at 7: got %+v, %v", ack, err)
	}
	if ack, err = c.PublishAt(ctx, id, 7, client.Events(1)); err != nil || !ack.Duplicate || ack.Accepted != 0 {
		t.Errorf("publish at 7 again: %+v, %v; want a duplicate", ack, err)
	}
	if b, err := c.Batch(ctx, id, 7); err != nil || b.Events == nil || len(b.Events) != 0 {
		t.Errorf("read the empty batch: %+v, %v", b, err)
	}
	if _, err = c.PublishAt(ctx, id, 7+weir.MaxAhead+1, client.Events(1)); client.CodeOf(err) != weir.SequenceTooFarAhead {
		t.Errorf("publish too far ahead: %v, want sequence_too_far_ahead", err)
	}
	first, err := c.PublishOnce(ctx, id, "k", client.Events(1))
	if again, err2 := c.PublishOnce(ctx, id, "k", client.Events(1)); err != nil || err2 != nil || again.Seq != first.Seq || !again.Duplicate {
		t.Errorf("publish twice with the same idempotency key: %+v, %v; then %+v, %v", first, err, again, err2)
	}
	if _, err := c.Batch(ctx, id, 5); client.CodeOf(err) != weir.StreamNotFound {
		t.Errorf("read a missing batch: %v, want stream_not_found", err)
	}
}

func TestPublishRaw(t *testing.T) {
	ctx := t.Context()
	c := startService(t, nil).client(client.Options{})
	id := newStream(t, c, client.NewStream{Mode: weir.Raw})
	for i, data := range [][]byte{{0, 1, 255}, {}, []byte(`{"seq":1}`), bytes.Repeat([]byte{7}, weir.MaxBody)} {
		if _, err := c.Publish(ctx, id, client.Bytes(data)); err != nil {
			t.Fatal(err)
		}
		b, err := c.Batch(ctx, id, weir.Seq(i+1))
		if err != nil || b.ContentType != "application/octet-stream" || !bytes.Equal(b.Data, data) || b.Events != nil || b.Seq != weir.Seq(i+1) {
			t.Errorf("published %d bytes, read back %d of type %q, %v", len(data), len(b.Data), b.ContentType, err)
		}
	}
	if _, err := c.Publish(ctx, id, client.Events(1)); client.CodeOf(err) != weir.UnsupportedMediaType {
		t.Errorf("publish events to a raw stream: %v, want unsupported_media_type", err)
	}
}

// An invalid payload or key is refused before anything is sent. The test proves this with a URL at
// which no service listens.
func TestPublishInvalid(t *testing.T) {
	c := newClient(t, client.Options{URL: "http://127.0.0.1:1"})
	for name, err := range map[string]error{
		"event 1: ":         second(c.Publish(t.Context(), "x", client.Events(1, make(chan int)))),
		"payload_too_large": second(c.Publish(t.Context(), "x", client.Bytes(make([]byte, weir.MaxBody+1)))),
		"the batch is":      second(c.PublishAt(t.Context(), "x", 1, client.Events(strings.Repeat("x", weir.MaxBody)))),
		"idempotency key":   second(c.PublishOnce(t.Context(), "x", "", client.Events())),
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want an error with %q", err, name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// flaky is a service that first refuses some requests with 503, then handles some requests but
// drops their responses, and then works normally.
type flaky struct {
	http.Handler
	refuse, lose atomic.Int32 // requests still to be refused; responses still to be dropped
	after        string       // Retry-After field of a refusal
	seen         atomic.Int32 // number of requests so far
}

func (d *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.seen.Add(1)
	if d.refuse.Add(-1) >= 0 {
		if d.after != "" {
			w.Header().Set("Retry-After", d.after)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if d.lose.Add(-1) >= 0 {
		d.Handler.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	d.Handler.ServeHTTP(w, r)
}

func newFlaky(t testing.TB) (*flaky, *testService) {
	d := new(flaky)
	svc := startService(t, func(h http.Handler) http.Handler { d.Handler = h; return d })
	return d, svc
}

// If the response to a successful call is lost, the retry neither repeats the effect nor fails.
func TestRetryAfterLostResponse(t *testing.T) {
	ctx := t.Context()
	d, svc := newFlaky(t)
	c := svc.client(client.Options{})
	trouble := func() { d.refuse.Store(1); d.lose.Store(1) }
	trouble()
	s, err := c.CreateStream(ctx, client.NewStream{Name: "once"})
	if err != nil || s.Name != "once" {
		t.Fatalf("create: %+v, %v", s, err)
	}
	trouble()
	ack, err := c.Publish(ctx, s.ID, client.Events("a"))
	if err != nil || ack.Seq != 1 || !ack.Duplicate {
		t.Errorf("publish: %+v, %v", ack, err)
	}
	trouble()
	if ack, err = c.PublishAt(ctx, s.ID, 2, client.Events("a")); err != nil || ack.Cursor != 2 || !ack.Duplicate {
		t.Errorf("publish at 2: %+v, %v", ack, err)
	}
	n := 0
	trouble()
	for _, err := range c.Streams(ctx) {
		if n++; err != nil {
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("%d streams were created, want 1", n)
	}
	trouble()
	if err := c.DeleteStream(ctx, s.ID); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := c.DeleteStream(ctx, s.ID); client.CodeOf(err) != weir.StreamNotFound {
		t.Errorf("delete again: %v, want stream_not_found", err)
	}
}

func TestRetryTime(t *testing.T) {
	d, svc := newFlaky(t)
	d.refuse.Store(100)
	for retry, least := range map[time.Duration]int32{-1: 1, time.Second: 3} {
		d.seen.Store(0)
		_, err := svc.client(client.Options{Retry: retry}).Version(t.Context())
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != 503 || d.seen.Load() < least || retry < 0 && d.seen.Load() > 1 {
			t.Errorf("Options.Retry = %v: %d requests, %v", retry, d.seen.Load(), err)
		}
	}
	d.after = "1000" // longer than Options.Retry, so that waiting is pointless
	d.seen.Store(0)
	if _, err := svc.client(client.Options{}).Version(t.Context()); err == nil || d.seen.Load() != 1 {
		t.Errorf("%d requests, want 1: %v", d.seen.Load(), err)
	}
}

// An attempt that times out is retried.
func TestTimeoutIsRetried(t *testing.T) {
	var asked atomic.Int32
	release := make(chan struct{})
	svc := startService(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) == 1 {
				select {
				case <-release:
				case <-r.Context().Done():
				}
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	defer close(release)
	if _, err := svc.client(client.Options{Timeout: 50 * time.Millisecond}).Version(t.Context()); err != nil || asked.Load() < 2 {
		t.Errorf("%d requests: %v", asked.Load(), err)
	}
}
