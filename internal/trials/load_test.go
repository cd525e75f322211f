package trials

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/contract"
)

// outcome is what a client knows about the effect of a request. If there was no response, or a 5xx,
// the outcome is unknown: either the server has carried out the whole request, or the request has
// had no effect.
type outcome int

const (
	unknown outcome = iota
	done
	refused
)

// caller sends requests and returns their outcomes. A request without a response does not fail the
// test, because the server may be killed at any time.
type caller struct {
	url    string
	client *http.Client
}

// ask sends a request and returns its outcome, the status (0 without a response) and the body.
func (c *caller) ask(ctx context.Context, method, path, body string, h http.Header) (outcome, int, []byte) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + liveKey}, "Content-Type": {"application/json"}}
	for k, v := range h {
		req.Header[k] = v
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return unknown, 0, nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	switch {
	// If the context ended, even a response below 500 proves nothing: a client that gives up while
	// it sends the body may get a 400 for the incomplete body.
	case err != nil || resp.StatusCode >= 500 || ctx.Err() != nil:
		return unknown, resp.StatusCode, b
	case resp.StatusCode >= 400:
		return refused, resp.StatusCode, b
	}
	return done, resp.StatusCode, b
}

// publish publishes events to a path. If key is not empty, it is sent as the idempotency key.
func (c *caller) publish(ctx context.Context, path, key, events string) (outcome, int, contract.Ack) {
	h := http.Header{}
	if key != "" {
		h.Set("Idempotency-Key", key)
	}
	out, status, b := c.ask(ctx, "POST", path, `{"events":`+events+`}`, h)
	var k contract.Ack
	if out == done {
		if err := json.Unmarshal(b, &k); err != nil {
			out = unknown // the response is incomplete
		}
	}
	return out, status, k
}

// sighting is a batch that a subscriber got.
type sighting struct {
	seq    int64
	ts     string
	events string
}

// follow subscribes to a stream. The parameter last is the last sequence that the caller has, or -1
// if it has none. For every batch after it, follow calls the function saw, until saw returns false,
// the response ends or the context ends. It returns an error if the events are wrong, but not if
// the connection breaks.
func (c *caller) follow(ctx context.Context, id string, last int64, saw func(sighting) (more bool)) error {
	return c.followGaps(ctx, liveKey, id, last, saw, nil)
}

// followGaps does the same as follow, with any key. It calls the function gap for every event that
// reports evicted batches. If gap is nil, such an event is an error.
func (c *caller) followGaps(ctx context.Context, key, id string, last int64, saw func(sighting) (more bool), gap func(from, to int64)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", c.url+"/v1/streams/"+id+"?cursor=0", nil)
	if err != nil {
		panic(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + key}, "Accept": {"text/event-stream"}}
	if last >= 0 {
		req.Header.Set("Last-Event-ID", strconv.FormatInt(last, 10))
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		return nil
	}
	d := contract.NewDecoder(&quiet{r: resp.Body})
	for {
		e, err := d.Next()
		if errors.Is(err, errCut) || err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if e.Name == "gap" && gap != nil {
			var g contract.PageGap
			if err := contract.Exactly([]byte(e.Data), &g); err != nil || g.Reason != "evicted" || g.From <= last || g.To < g.From {
				return fmt.Errorf("got gap %s after %d: %v", e.Data, last, err)
			}
			last = g.To
			gap(g.From, g.To)
			continue
		}
		if e.Name != "batch" {
			if e.Name != "" && e.Name != "end" {
				return fmt.Errorf("got event %q: %s", e.Name, e.Data)
			}
			continue
		}
		var b contract.Batch
		if err := contract.Exactly([]byte(e.Data), &b); err != nil || e.ID != strconv.FormatInt(b.Seq, 10) {
			return fmt.Errorf("the event with id %s holds %s: %v", e.ID, contract.Shorten(e.Data), err)
		}
		if b.Seq <= last {
			return fmt.Errorf("got batch %d after %d", b.Seq, last)
		}
		last = b.Seq
		if !saw(sighting{b.Seq, b.TS, string(b.Events)}) {
			return nil
		}
	}
}

var errCut = errors.New("the connection broke")

// quiet is a reader that replaces the errors of a broken connection with errCut. Without quiet, the
// decoder would report an incomplete event as a fault of the server.
type quiet struct{ r io.Reader }

func (q *quiet) Read(b []byte) (int, error) {
	n, err := q.r.Read(b)
	if err != nil && err != io.EOF {
		err = errCut
	}
	return n, err
}

// readAllOf reads a stream from its oldest batch to its cursor, and checks bytes_stored.
func (c *caller) readAllOf(t testing.TB, id string) (log []sighting, cursor int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, status, b := c.ask(ctx, "GET", "/v1/streams/"+id, "", nil)
	var s contract.Stream
	if out != done || json.Unmarshal(b, &s) != nil {
		t.Fatalf("stream %s: %d %s", id, status, b)
	}
	if s.Cursor == 0 {
		return nil, 0 // cursor 0 means that the stream is empty, because the trials publish from sequence 1 on
	}
	size := 0
	err := c.follow(ctx, id, -1, func(seen sighting) bool {
		log = append(log, seen)
		size += len(seen.events)
		return seen.seq < s.Cursor
	})
	if err != nil || len(log) == 0 || log[len(log)-1].seq != s.Cursor {
		t.Fatalf("stream %s with cursor %d: read %d batches: %v", id, s.Cursor, len(log), err)
	}
	if int64(size) != s.BytesStored {
		t.Errorf("stream %s has bytes_stored %d, but holds %d bytes", id, s.BytesStored, size)
	}
	return log, s.Cursor
}

// text returns a JSON array with events that differ from those of every other publish.
func text(r *rand.Rand, name string) string {
	return fmt.Sprintf(`["%s-%x",%q]`, name, r.Uint64(), bytes.Repeat([]byte("x"), r.IntN(1500)))
}

// seeded returns the random source of a test and logs its seed, so that a failure can be repeated.
func seeded(t testing.TB) (*rand.Rand, uint64) {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("repeat the same random choices with -trials.seed=%d", s)
	return rand.New(rand.NewPCG(s, 1)), s
}
