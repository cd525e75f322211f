package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"math/rand/v2"

	"weir"
	"weir/client"
	"weir/internal/access"
	"weir/internal/faultnet"
)

// take reads n batches, leaves the loop and returns their sequences.
func take(t testing.TB, s *client.Subscriber, n int) (seqs []weir.Seq) {
	t.Helper()
	for b, err := range s.Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if seqs = append(seqs, b.Seq); len(seqs) == n {
			break
		}
	}
	return seqs
}

func publishNumbers(t testing.TB, c *client.Client, id weir.StreamID, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		if _, err := c.PublishAt(t.Context(), id, weir.Seq(n), client.Events(n)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSubscriber(t *testing.T) {
	c := startService(t, nil).client(client.Options{})
	id := newStream(t, c, client.NewStream{})
	publishNumbers(t, c, id, 0, 5)
	for _, x := range []struct {
		name string
		from client.From
		want []weir.Seq
	}{
		{"oldest", client.Oldest, []weir.Seq{0, 1, 2, 3}},
		{"after 0", client.After(0), []weir.Seq{1, 2, 3, 4}},
		{"after 3", client.After(3), []weir.Seq{4, 5}},
	} {
		s := c.Subscriber(id, client.SubscriberOptions{From: x.from})
		if got := take(t, s, len(x.want)); !slices.Equal(got, x.want) {
			t.Errorf("%s: got sequences %d, want %d", x.name, got, x.want)
		}
		if at, ok := s.Position(); !ok || at.Seq != x.want[len(x.want)-1] {
			t.Errorf("%s: the position is %v, %t", x.name, at, ok)
		}
	}

	// A second loop continues where the first stopped.
	s := c.Subscriber(id, client.SubscriberOptions{From: client.Oldest})
	if got := append(take(t, s, 2), take(t, s, 3)...); !slices.Equal(got, []weir.Seq{0, 1, 2, 3, 4}) {
		t.Errorf("two loops got %d, want 0 to 4", got)
	}
}

// A subscription that starts at the head does not get a stored batch 0.
func TestSubscriberAtHead(t *testing.T) {
	c := startService(t, nil).client(client.Options{})
	id := newStream(t, c, client.NewStream{})
	publishNumbers(t, c, id, 0, 0)
	s := c.Subscriber(id, client.SubscriberOptions{})
	if at, ok := s.Position(); ok {
		t.Errorf("the position is %v before the first connection", at)
	}
	got := make(chan weir.Seq)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer close(got)
		for b, err := range s.Batches(ctx) {
			if err != nil {
				return
			}
			got <- b.Seq
		}
	}()
	for seq := 1; ; seq++ { // until the subscriber is connected and gets a batch
		publishNumbers(t, c, id, seq, seq)
		select {
		case first := <-got:
			if first == 0 {
				t.Error("got batch 0")
			}
			cancel()
			for range got {
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestSubscriberRaw(t *testing.T) {
	c := startService(t, nil).client(client.Options{})
	id := newStream(t, c, client.NewStream{Mode: weir.Raw})
	sizes := []int{0, 1, 100_000, weir.MaxBody}
	for _, n := range sizes {
		if _, err := c.Publish(t.Context(), id, client.Bytes([]byte(strings.Repeat("\xff", n)))); err != nil {
			t.Fatal(err)
		}
	}
	i := 0
	for b, err := range c.Subscriber(id, client.SubscriberOptions{From: client.Oldest}).Batches(t.Context()) {
		if err != nil || string(b.Data) != strings.Repeat("\xff", sizes[i]) || b.ContentType != "application/octet-stream" || b.Time == 0 {
			t.Fatalf("batch %d: %d bytes, %q, %v", b.Seq, len(b.Data), b.ContentType, err)
		}
		if i++; i == len(sizes) {
			break
		}
	}
}

func TestSubscriberGap(t *testing.T) {
	c := startService(t, nil).client(client.Options{})
	id := newStream(t, c, client.NewStream{Mode: weir.Raw, MaxBytes: weir.MinMaxBytes})
	for range 4 {
		if _, err := c.Publish(t.Context(), id, client.Bytes(make([]byte, weir.MinMaxBytes/2-weir.MaxIdempotencyKey))); err != nil {
			t.Fatal(err)
		}
	}
	s := c.Subscriber(id, client.SubscriberOptions{From: client.After(0)})
	for b, err := range s.Batches(t.Context()) {
		if err != nil || b.Gap == nil || *b.Gap != (client.Gap{From: 1, To: 2, Reason: "evicted"}) || b.Data != nil {
			t.Errorf("got %+v, %v; want a gap from 1 to 2", b, err)
		}
		break
	}
	if got := take(t, s, 2); !slices.Equal(got, []weir.Seq{3, 4}) {
		t.Errorf("sequences after the gap: %d, want 3 and 4", got)
	}
}

// The iteration ends when the stream is deleted, when the context ends, and with a permanent error.
func TestSubscriberEnds(t *testing.T) {
	svc := startService(t, nil)
	c := svc.client(client.Options{})
	id := newStream(t, c, client.NewStream{})
	publishNumbers(t, c, id, 1, 1)
	deleted := 0
	for _, err := range c.Subscriber(id, client.SubscriberOptions{From: client.Oldest}).Batches(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		deleted++
		if err := c.DeleteStream(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if deleted != 1 {
		t.Errorf("%d batches before the end, want 1", deleted)
	}
	last := func(ctx context.Context, c *client.Client, id weir.StreamID, from client.From) (last error) {
		for b, err := range c.Subscriber(id, client.SubscriberOptions{From: from}).Batches(ctx) {
			if last != nil || err == nil {
				t.Errorf("got %+v, %v after %v", b, err, last)
			}
			last = err
		}
		return last
	}
	for _, from := range []client.From{client.Head, client.Oldest} {
		if err := last(t.Context(), c, id, from); client.CodeOf(err) != weir.StreamNotFound {
			t.Errorf("a deleted stream: %v, want stream_not_found", err)
		}
		id := newStream(t, c, client.NewStream{})
		if err := last(t.Context(), svc.client(client.Options{Key: client.Key(svc.NewKey(access.Publish))}), id, from); client.CodeOf(err) != weir.ProjectForbidden {
			t.Errorf("without the permission to read: %v, want project_forbidden", err)
		}
		if err := last(t.Context(), svc.client(client.Options{Key: "svc_live_00000000000000000000000000000000"}), id, from); client.CodeOf(err) != weir.InvalidAPIKey {
			t.Errorf("with an unknown key: %v, want invalid_api_key", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := last(ctx, c, id, from); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a deadline: %v, want a timeout", err)
		}
		cancel()
	}
}

// Every batch is yielded once and in order, however connections fail.
func TestSubscriberBrokenConnections(t *testing.T) {
	svc := startService(t, nil)
	direct := svc.client(client.Options{})
	id := newStream(t, direct, client.NewStream{})
	proxy := startProxy(t, faultnet.Options{Backend: svc.address(), Cut: func(int) faultnet.Cut { return faultnet.Cut{Down: 3_000 + rand.Int64N(60_000)} }})
	const n = 2000
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			c := svc.client(client.Options{URL: proxy.url})
			var events []string
			for b, err := range c.Subscriber(id, client.SubscriberOptions{From: client.Oldest}).Batches(t.Context()) {
				if err != nil || b.Gap != nil {
					t.Errorf("got %+v, %v; want a batch", b, err)
					return
				}
				for _, e := range b.Events {
					events = append(events, string(e))
				}
				if len(events) >= n {
					break
				}
			}
			checkNumbers(t, events, n)
		})
	}
	p := publisher(t, direct, id, client.PublisherOptions{BatchEvents: 3})
	addNumbers(t, p, 1, n)
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	t.Logf("the subscriber opened %d connections", proxy.Opened())
}

// fake returns the response to the n-th request; the first request has n = 1. It replaces the
// network inside a synctest bubble.
type fake func(n int, r *http.Request) (*http.Response, error)

type fakes struct {
	n      int
	answer fake
}

func (f *fakes) RoundTrip(r *http.Request) (*http.Response, error) {
	f.n++
	return f.answer(f.n, r)
}

// stream returns the response to a subscription. The response body begins with the parameter text.
// Then the body ends or, if stay is true, remains open until the client cancels the request.
func stream(r *http.Request, text string, stay bool) (*http.Response, error) {
	pr, pw := io.Pipe()
	go func() {
		pw.Write([]byte(text))
		if stay {
			<-r.Context().Done()
			pw.CloseWithError(r.Context().Err())
		}
		pw.Close()
	}()
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: pr}, nil
}

func refusalOf(status int, retryAfter string) (*http.Response, error) {
	h := http.Header{}
	if retryAfter != "" {
		h.Set("Retry-After", retryAfter)
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: h, Body: io.NopCloser(strings.NewReader(""))}, nil
}

// The test logs when a subscriber reconnects, where it resumes, and how long it waits.
func TestSubscriberReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const batch = "id: %d\nevent: batch\ndata: {\"seq\":%[1]d,\"ts\":\"2026-11-15T00:00:00.000Z\",\"events\":[]}\n\n"
		start := time.Now()
		var log []string
		note := func(format string, a ...any) {
			log = append(log, fmt.Sprintf("%v ", time.Since(start).Truncate(500*time.Millisecond))+fmt.Sprintf(format, a...))
		}
		f := &fakes{answer: func(n int, r *http.Request) (*http.Response, error) {
			note("%s last=%s", r.URL.RequestURI(), r.Header.Get("Last-Event-ID"))
			switch n {
			case 1: // the service shuts down
				return stream(r, "retry: 1000\n\n"+fmt.Sprintf(batch, 4)+"retry: 4000\n\n", false)
			case 2:
				return nil, errors.New("no route")
			case 3:
				return refusalOf(503, "20")
			case 4: // no more data after the first events
				return stream(r, ":\n\n"+fmt.Sprintf(batch, 4)+fmt.Sprintf(batch, 5), true)
			case 5: // an event that this client does not know
				return stream(r, "retry: 2000\n\nevent: news\ndata: {}\n\nid: 9\nevent: gap\ndata: {\"from\":6,\"to\":9,\"reason\":\"evicted\"}\n\n", false)
			default:
				return stream(r, "event: end\ndata: {}\n\n", false)
			}
		}}
		c := newClient(t, client.Options{URL: "http://weir.example/prefix/", Transport: f})
		s := c.Subscriber("x", client.SubscriberOptions{From: client.Oldest, OnRetry: func(err error, wait time.Duration) {
			if wait <= 0 {
				t.Errorf("retry after %v, want a pause", wait)
			}
			note("%v", err)
		}})
		for b, err := range s.Batches(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			note("batch %d gap %v", b.Seq, b.Gap != nil)
		}
		within(t, log, []event{
			{0, 0, "/prefix/v1/streams/x?cursor=0 last="}, {0, 0, "batch 4 gap false"}, {0, 0, "the service closed the connection"},
			{4, 6, "/prefix/v1/streams/x last=4"}, {4, 6, "no route"},
			{12, 18, "/prefix/v1/streams/x last=4"}, {12, 18, "status 503: the response is not from Weir: 503"},
			{32, 48, "/prefix/v1/streams/x last=4"}, {32, 48, "batch 5 gap false"}, {77, 93, "the connection was silent for too long: no data, not even a heartbeat"},
			{81, 99, "/prefix/v1/streams/x last=5"}, {81, 99, "batch 0 gap true"}, {81, 99, "the service closed the connection"},
			{83, 102, "/prefix/v1/streams/x last=9"},
		})
	})
}

// event is an expected line of the log, with the range of seconds in which it may occur.
type event struct {
	from, to float64
	text     string
}

func within(t *testing.T, log []string, want []event) {
	t.Helper()
	if len(log) != len(want) {
		t.Errorf("the log has %d lines, want %d", len(log), len(want))
	}
	for i, line := range log[:min(len(log), len(want))] {
		at, text, _ := strings.Cut(line, " ")
		d, err := time.ParseDuration(at)
		if w := want[i]; err != nil || text != w.text || d.Seconds() < w.from-0.5 || d.Seconds() > w.to {
			t.Errorf("line %d: %q; want %q between %v and %v s", i+1, line, w.text, w.from, w.to)
		}
	}
}

// An event that Weir never sends ends the iteration, because a retry would bring the same event.
func TestSubscriberForeignResponses(t *testing.T) {
	for want, text := range map[string]string{
		"decode a gap: invalid data":      "event: gap\ndata: {\"from\":9,\"to\":1}\n\n",
		"decode a batch: unexpected end":  "event: batch\ndata: {\"seq\":1\n\n",
		"it has no valid sequence":        "event: batch\ndata: {\"events\":[]}\n\n",
		"batch 1: it has no array":        "event: batch\ndata: {\"seq\":1,\"events\":{}}\n\n",
		"the subscription: invalid UTF-8": "event: batch\ndata: \xff\n\n",
	} {
		c := newClient(t, client.Options{URL: "http://weir.example", Transport: &fakes{answer: func(_ int, r *http.Request) (*http.Response, error) {
			return stream(r, text, false)
		}}})
		for _, err := range c.Subscriber("x", client.SubscriberOptions{From: client.Oldest}).Batches(t.Context()) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", text, err, want)
			}
		}
	}
}

// Before the first connection, a subscriber gives up after a while and says why. After the first
// connection, it retries forever, whatever response it gets. State always returns the current
// state.
func TestSubscriberGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		page := func() (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/html"}}, Body: http.NoBody}, nil
		}
		c := newClient(t, client.Options{URL: "http://weir.example", Transport: &fakes{answer: func(int, *http.Request) (*http.Response, error) { return page() }}})
		for _, err := range c.Subscriber("x", client.SubscriberOptions{From: client.Oldest}).Batches(t.Context()) {
			if !errors.Is(err, client.ErrGivenUp) || !strings.Contains(err.Error(), `its content type is "text/html"`) || time.Since(start) > time.Minute {
				t.Errorf("an HTML page as response: gave up after %v: %v", time.Since(start), err)
			}
		}
		start = time.Now()
		c = newClient(t, client.Options{URL: "http://weir.example", Transport: &fakes{answer: func(n int, r *http.Request) (*http.Response, error) {
			switch {
			case n == 1:
				return stream(r, "retry: 1000\n\n", false)
			case n == 2:
				return refusalOf(530, "")
			case time.Since(start) < time.Hour:
				return page()
			}
			return stream(r, "event: end\ndata: {}\n\n", false)
		}}})
		opened, retried := 0, 0
		var s *client.Subscriber
		s = c.Subscriber("x", client.SubscriberOptions{From: client.Oldest,
			OnOpen: func() {
				if opened++; !s.State().Open {
					t.Error("the state is not open")
				}
			},
			OnRetry: func(err error, _ time.Duration) {
				if retried++; s.State().Open || s.State().Err != err {
					t.Errorf("the state is %+v after %v", s.State(), err)
				}
			}})
		for _, err := range s.Batches(t.Context()) {
			t.Error(err)
		}
		if opened != 2 || retried < 50 || s.State().Open {
			t.Errorf("opened %d times, retried %d times, state %+v", opened, retried, s.State())
		}
	})
}
