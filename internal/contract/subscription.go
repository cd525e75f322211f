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

// Subscription is an open text/event-stream. It checks everything it reads: the format, the order,
// and that ids match the data.
type Subscription struct {
	t      *T
	events chan Event
	ended  error // set before events is closed; io.EOF if the response was complete
	cancel context.CancelFunc
	last   int64 // highest sequence that was delivered or is in a gap event; -1 at the start
	start  Event // the first frame
}

func contextWithTimeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), Patience)
}

// Subscribe opens a subscription. It sends the live key unless an option sets another one. The
// query may be empty.
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

// Open sends a request for a subscription. It fails the test if the header fields do not arrive in
// time. The body stays open until the caller calls cancel.
func (t *T) Open(path string, options ...Option) (*http.Response, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	begin := time.AfterFunc(Patience, cancel)
	defer begin.Stop()
	return t.Send(ctx, http.MethodGet, path, append([]Option{WithHeader("Accept", "text/event-stream")}, options...)...), cancel
}

// follow checks the header fields of a subscription and starts to read its events.
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
		t.Errorf("subscribe to %s: the response does not match /openapi.json: %v", path, err)
	}
	s := &Subscription{t: t, events: make(chan Event, 1024), cancel: cancel, last: -1}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer resp.Body.Close()
		s.read(resp.Request.Context(), resp.Body)
	}()
	t.Cleanup(func() { cancel(); <-over })
	if s.start = s.nextBlock(); s.start.Retry != 1000 || s.start.HasData {
		t.Errorf("subscribe to %s: first event is %+v, want retry: 1000", path, s.start)
	}
	return s
}

// stands checks the id of the first frame. The id is the position of the subscription, which
// delivers the batches above this sequence.
func (s *Subscription) stands(at int64) {
	s.t.Helper()
	if want := strconv.FormatInt(at, 10); s.start.ID != want {
		s.t.Errorf("the first frame has id %q (it has an id: %v), want %s", s.start.ID, s.start.HasID, want)
	}
}

// standsNowhere checks that the first frame has no id.
func (s *Subscription) standsNowhere() {
	s.t.Helper()
	if s.start.HasID {
		s.t.Errorf("the first frame has id %q, want none", s.start.ID)
	}
}

// resume cancels s and subscribes again, as a browser's EventSource does if it loses its connection
// before the first batch: with the same address, and with the id of the first frame as
// Last-Event-ID.
func (s *Subscription) resume(id, query string) *Subscription {
	s.t.Helper()
	s.cancel()
	var options []Option
	if s.start.HasID {
		options = append(options, WithHeader("Last-Event-ID", s.start.ID))
	}
	return s.t.Subscribe(id, query, options...)
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

// nextBlock returns the next block of any kind, including comments.
func (s *Subscription) nextBlock() Event {
	s.t.Helper()
	return s.until(time.After(Patience + s.t.GapGrace))
}

// Next returns the next event. It skips heartbeats.
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
				s.t.Errorf("event %q does not match /openapi.json: %v in %s", e.Name, err, Shorten(e.Data))
			}
		}
		return e
	case <-deadline:
		s.t.Fatalf("no event from the subscription before the deadline")
		panic("unreachable")
	}
}

// Batch reads the next event, which must be the batch of this sequence.
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

// raw is like Batch, for a raw stream.
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

// seq decodes the next event into v. The event must be a batch with this id, and the id must be
// above all sequences delivered before.
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
		s.t.Fatalf("batch %d was delivered after %d", seq, s.last)
	}
	s.last = seq
}

// gap reads the next event, which must report that the batches with the sequences [from, to] were
// evicted.
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

// end reads the next event, which must say that the stream was deleted, and then the end of the
// response.
func (s *Subscription) end() {
	s.t.Helper()
	s.endsWith("stream_deleted")
}

// endsWith reads the next event, which must be an end with this reason, and then the end of the
// response.
func (s *Subscription) endsWith(reason string) {
	s.t.Helper()
	e := s.Next()
	var data map[string]string
	if err := json.Unmarshal([]byte(e.Data), &data); e.Name != "end" || err != nil || len(data) != 1 || data["reason"] != reason {
		s.t.Fatalf("got event %q with %s, want end with reason %s", e.Name, e.Data, reason)
	}
	s.Closed(Patience)
	if !errors.Is(s.ended, io.EOF) {
		s.t.Errorf("the response was cut off: %v", s.ended)
	}
}

// Err returns why the subscription ended: io.EOF if the response was complete. Call it after
// Closed.
func (s *Subscription) Err() error { return s.ended }

// Closed reads to the end of the response. It fails the test if another event comes, or if the
// response does not end within the given time.
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
