package trials

import (
	"errors"
	"io"
	"testing"
	"time"

	"weir/internal/contract"
)

// A gap that was open at a crash gets a new grace period, which starts when the server is ready
// again. However long the server was down, a publisher that retries can still fill the gap (D4).
func TestOpenGapAfterCrash(t *testing.T) {
	for grace := 2 * time.Second; !openAfterCrash(t, grace); grace *= 2 {
		t.Logf("the machine is too busy to retry within %v", grace)
	}
}

// openAfterCrash checks that a gap is still open after a crash. It returns false if the machine was
// too slow to retry within the grace period.
func openAfterCrash(t *testing.T, grace time.Duration) bool {
	data := t.TempDir()
	s := serve(t, data, "--gap-grace", grace.String())
	c := contract.NewT(t, s.target())
	stream := c.CreateBody(`{"name":"gap"}`).ID
	c.PublishAt(stream, 1, `[1]`)
	c.PublishAt(stream, 4, `[4]`)
	stored := time.Now()
	s.kill()
	<-time.After(time.Until(stored.Add(grace))) // stay down until the first grace period would have ended
	started := time.Now()
	s = serve(t, data, "--gap-grace", grace.String())
	c = contract.NewT(t, s.target())
	sub := c.Subscribe(stream, "cursor=0")
	sub.Batch(1)
	retry := c.Post(contract.SeqPath(stream, 2), contract.JSONBody(`{"events":[2]}`))
	if retry.Status == 409 && time.Since(started) > grace {
		return false
	}
	retry.Want(202)
	sub.Batch(2)
	sub.Batch(4) // arrives when the gap at 3 is closed
	if open := time.Since(started); open < grace {
		t.Errorf("the gap was closed %v after the start, within the grace period of %v", open, grace)
	}
	c.Post(contract.SeqPath(stream, 3), contract.JSONBody(`{"events":[]}`)).Refused(409, "invalid_sequence")
	return true
}

// A restart never reopens a closed gap. The server still remembers idempotency keys and revoked
// keys, and deleted streams and evicted batches do not return (D4, D25, D31).
func TestRestart(t *testing.T) {
	for name, down := range map[string]func(testing.TB, *server){
		"kill -9": func(_ testing.TB, s *server) { s.kill() },
		"SIGTERM": func(t testing.TB, s *server) { s.stop(t) },
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			s := serve(t, data, "--gap-grace", "300ms")
			c := contract.NewT(t, s.target())
			c.GapGrace = 300 * time.Millisecond
			stream, gone := c.CreateBody(`{"name":"kept"}`).ID, c.CreateBody(`{"name":"gone"}`).ID
			full := c.Overfull(5)
			c.Publish(stream, `["one"]`, contract.Idempotent("k"))
			c.PublishAt(stream, 3, `["three"]`)
			sub := c.Subscribe(stream, "cursor=0")
			sub.Batch(1)
			sub.Batch(3)
			c.Delete("/v1/streams/" + gone).Want(204)
			revoked, revoke := s.newKey(t, contract.Key{Kind: "live"})
			c.Get("/v1/streams", contract.WithKey(revoked)).Want(200)
			revoke()
			before, fullBefore, cursor := c.Stream(stream), c.Stream(full.ID), c.Cursor(stream)
			down(t, s)

			s = serve(t, data, "--gap-grace", "300ms")
			c = contract.NewT(t, s.target())
			if after := c.Stream(stream); after != before {
				t.Errorf("stream before the restart %+v, after it %+v", before, after)
			}
			if after := c.Stream(full.ID); after != fullBefore {
				t.Errorf("full stream before the restart %+v, after it %+v", fullBefore, after)
			}
			if after := c.Cursor(stream); after != cursor {
				t.Errorf("cursor before the restart %+v, after it %+v", cursor, after)
			}
			c.Post(contract.SeqPath(stream, 2), contract.JSONBody(`{"events":[]}`)).Refused(409, "invalid_sequence")
			c.Post(contract.SeqPath(full.ID, 2), contract.RawBody(nil)).Refused(409, "invalid_sequence")
			c.Get(contract.BatchPath(full.ID, 1)).Refused(404, "stream_not_found")
			k := c.Ack(c.Post(contract.NextPath(stream), contract.JSONBody(`{"events":[]}`), contract.Idempotent("k")).Want(200), stream)
			if k != (contract.Ack{StreamID: stream, Seq: 1, Accepted: 1, Cursor: 3, Duplicate: true}) {
				t.Errorf("repeating the idempotency key got %+v", k)
			}
			c.Get("/v1/streams/"+gone).Refused(404, "stream_not_found")
			c.Get("/v1/streams", contract.WithKey(revoked)).Refused(401, "key_revoked")
			resumed := c.Subscribe(stream, "", contract.WithHeader("Last-Event-ID", "1"))
			resumed.Batch(3)
			c.Publish(stream, `["four"]`)
			resumed.Batch(4)
		})
	}
}

// After SIGTERM each subscriber gets a random retry time and its response ends. Requests in flight
// are completed (D16).
func TestShutdown(t *testing.T) {
	s := serve(t, t.TempDir())
	c := contract.NewT(t, s.target())
	stream := c.CreateBody(`{"name":"shutdown"}`).ID
	subs := []*contract.Subscription{c.Subscribe(stream, ""), c.Subscribe(stream, "cursor=0")}
	c.Publish(stream, `[1]`)
	for _, sub := range subs {
		sub.Batch(1)
	}
	body, finish := io.Pipe()
	status := make(chan int, 1)
	go func() {
		resp, err := c.Try(t.Context(), "POST", contract.NextPath(stream), func(r *contract.Request) {
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Expect", "100-continue") // the request is in flight once the server reads the body
			r.Body, r.Length = body, -1
		})
		if err != nil {
			t.Errorf("the publish in flight: %v", err)
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	finish.Write([]byte(`{"events":`))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.stop(t)
	}()
	for _, sub := range subs {
		if e := sub.Next(); e.Retry < 500 || e.Retry > 5000 || e.HasData {
			t.Errorf("the last event is %+v, want retry: 500 to 5000", e)
		}
		sub.Closed(contract.Patience)
		if !errors.Is(sub.Err(), io.EOF) {
			t.Errorf("the response is incomplete: %v", sub.Err())
		}
	}
	finish.Write([]byte(`[2]}`))
	finish.Close()
	if got := <-status; got != 202 {
		t.Errorf("the publish in flight got %d", got)
	}
	<-stopped
}
