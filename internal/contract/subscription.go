package contract

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Subscription is an open text/event-stream. Whatever comes is checked: the format, the order, ids that fit the data.
type Subscription struct {
	t      *T
	events chan Event
	ended  error // why the channel was closed; io.EOF: the response ended as responses end
	cancel context.CancelFunc
	last   int64 // highest sequence seen, or told of by a gap; -1: none
}

func contextWithTimeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), Patience)
}

// subscribe opens a subscription on the live key unless an option says otherwise; query may be empty.
func (t *T) Subscribe(id, query string, options ...Option) *Subscription {
	t.Helper()
	path := "/v1/streams/" + id
	if query != "" {
		path += "?" + query
	}
	resp, cancel := t.Open(path, options...)
	if resp.StatusCode != 200 {
		t.Fatalf("subscribe to %s: %d %s", path, resp.StatusCode, ReadAll(resp))
	}
	return t.follow(path, resp, cancel)
}

// open asks for a subscription. The header fields come at once; what follows is read until cancel.
func (t *T) Open(path string, options ...Option) (*http.Response, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	begin := time.AfterFunc(Patience, cancel)
	defer begin.Stop()
	return t.Send(ctx, http.MethodGet, path, append([]Option{WithHeader("Accept", "text/event-stream")}, options...)...), cancel
}

// follow reads what is sent to an open subscription.
func (t *T) follow(path string, resp *http.Response, cancel context.CancelFunc) *Subscription {
	t.Helper()
	for _, fault := range headers(resp.Header, time.Now()) {
		t.Errorf("subscribe to %s: %s", path, fault)
	}
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" && !strings.HasPrefix(got, "text/event-stream;") {
		t.Errorf("subscribe to %s: content type %q", path, got)
	}
	if got := resp.Header.Get("X-Accel-Buffering"); got != "no" {
		t.Errorf("subscribe to %s: x-accel-buffering is %q", path, got)
	}
	if err := t.description.fault(resp, nil); err != nil {
		t.Errorf("subscribe to %s: the answer is not as /openapi.json describes it: %v", path, err)
	}
	s := &Subscription{t: t, events: make(chan Event, 1024), cancel: cancel, last: -1}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer resp.Body.Close()
		s.read(resp.Request.Context(), resp.Body)
	}()
	t.Cleanup(func() { cancel(); <-over })
	if e := s.any(); e.Retry != 1000 || e.HasData {
		t.Errorf("subscribe to %s: began with %+v, want retry: 1000", path, e)
	}
	return s
}

func (s *Subscription) read(ctx context.Context, body io.Reader) {
	defer close(s.events)
	d := NewDecoder(body)
	for {
		e, err := d.Next()
		if err != nil {
			s.ended = err
			return
		}
		select {
		case s.events <- e:
		case <-ctx.Done():
			s.ended = ctx.Err()
			return
		}
	}
}

// any returns the next block, whatever it is.
func (s *Subscription) any() Event {
	s.t.Helper()
	return s.until(time.After(Patience + s.t.GapGrace))
}

// next returns the next event, over heartbeats.
func (s *Subscription) Next() Event {
	s.t.Helper()
	deadline := time.After(Patience + s.t.GapGrace)
	for {
		if e := s.until(deadline); !e.Comment {
			return e
		}
	}
}

func (s *Subscription) until(deadline <-chan time.Time) Event {
	s.t.Helper()
	select {
	case e, ok := <-s.events:
		if !ok {
			s.t.Fatalf("the subscription ended: %v", s.ended)
		}
		if e.HasData {
			if err := s.t.description.event(e); err != nil {
				s.t.Errorf("the event %q is not as /openapi.json describes it: %v in %s", e.Name, err, Shorten(e.Data))
			}
		}
		return e
	case <-deadline:
		s.t.Fatalf("nothing came from the subscription")
		panic("unreachable")
	}
}

// batch wants the batch of this sequence next.
func (s *Subscription) Batch(seq int64) Batch {
	s.t.Helper()
	var b Batch
	s.seq(seq, &b)
	s.t.checkTime(b.TS)
	if b.Seq != seq {
		s.t.Fatalf("the event with id %d holds batch %d", seq, b.Seq)
	}
	return b
}

// raw wants the batch of this sequence next, of a raw stream.
func (s *Subscription) raw(seq int64) RawBatch {
	s.t.Helper()
	var b RawBatch
	s.seq(seq, &b)
	s.t.checkTime(b.TS)
	if b.Seq != seq {
		s.t.Fatalf("the event with id %d holds batch %d", seq, b.Seq)
	}
	return b
}

func (s *Subscription) seq(seq int64, v any) {
	s.t.Helper()
	e := s.Next()
	if e.Name != "batch" || e.ID != strconv.FormatInt(seq, 10) {
		s.t.Fatalf("got event %q with id %q (%s), want batch %d", e.Name, e.ID, Shorten(e.Data), seq)
	}
	if err := Exactly([]byte(e.Data), v); err != nil {
		s.t.Fatalf("batch %d: %v in %s", seq, err, Shorten(e.Data))
	}
	if seq <= s.last {
		s.t.Fatalf("batch %d came after %d", seq, s.last)
	}
	s.last = seq
}

// gap wants to be told of a loss next.
func (s *Subscription) gap(from, to int64) {
	s.t.Helper()
	e := s.Next()
	var g struct {
		From   int64  `json:"from"`
		To     int64  `json:"to"`
		Reason string `json:"reason"`
	}
	if e.Name != "gap" || e.ID != strconv.FormatInt(to, 10) {
		s.t.Fatalf("got event %q with id %q (%s), want gap %d to %d", e.Name, e.ID, Shorten(e.Data), from, to)
	}
	if err := Exactly([]byte(e.Data), &g); err != nil || g.From != from || g.To != to || g.Reason != "evicted" {
		s.t.Fatalf("got gap %s (%v), want %d to %d, evicted", e.Data, err, from, to)
	}
	s.last = to
}

// end wants the event that says that the stream is deleted, and the end of the response.
func (s *Subscription) end() {
	s.t.Helper()
	e := s.Next()
	var data map[string]string
	if err := json.Unmarshal([]byte(e.Data), &data); e.Name != "end" || err != nil || len(data) != 1 || data["reason"] != "stream_deleted" {
		s.t.Fatalf("got event %q with %s, want end with reason stream_deleted", e.Name, e.Data)
	}
	s.Closed(Patience)
	if !errors.Is(s.ended, io.EOF) {
		s.t.Errorf("the response was cut off: %v", s.ended)
	}
}

// Err says why the subscription ended, once Closed has returned: io.EOF when the response was complete.
func (s *Subscription) Err() error { return s.ended }

// Closed wants nothing more than heartbeats and the connection's end.
func (s *Subscription) Closed(within time.Duration) {
	s.t.Helper()
	deadline := time.After(within)
	for {
		select {
		case e, ok := <-s.events:
			switch {
			case !ok:
				return
			case e.HasData:
				s.t.Fatalf("got event %q (%s), want the end", e.Name, Shorten(e.Data))
			}
		case <-deadline:
			s.t.Fatalf("the subscription did not end within %v", within)
		}
	}
}
