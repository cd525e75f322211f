package contract

import (
	"errors"
	"io"
	"testing"
	"time"
)

// A gap that was open at a crash gets a fresh grace period, counted from the moment the server serves, however long it
// was down: a publisher's retry still finds it open (D4).
func TestOpenGapAfterCrash(t *testing.T) {
	for grace := 2 * time.Second; !openAfterCrash(t, grace); grace *= 2 {
		t.Logf("this machine is too busy for a retry within %v", grace)
	}
}

// openAfterCrash tells whether the retry came within the grace period.
func openAfterCrash(t *testing.T, grace time.Duration) bool {
	data := t.TempDir()
	s := serve(t, data, "--gap-grace", grace.String())
	c := newT(t, s.target())
	stream := c.createBody(`{"name":"gap"}`).ID
	c.publishAt(stream, 1, `[1]`)
	c.publishAt(stream, 4, `[4]`)
	stored := time.Now()
	s.kill()
	<-time.After(time.Until(stored.Add(grace))) // down for longer than a grace period
	started := time.Now()
	s = serve(t, data, "--gap-grace", grace.String())
	c = newT(t, s.target())
	sub := c.subscribe(stream, "cursor=0")
	sub.batch(1)
	retry := c.post(seqPath(stream, 2), jsonBody(`{"events":[2]}`))
	if retry.Status == 409 && time.Since(started) > grace {
		return false
	}
	retry.want(202)
	sub.batch(2)
	sub.batch(4) // 3 is given up
	if open := time.Since(started); open < grace {
		t.Errorf("the gap was closed %v after the server was started, within the grace of %v", open, grace)
	}
	c.post(seqPath(stream, 3), jsonBody(`{"events":[]}`)).refused(409, "invalid_sequence")
	return true
}

// A restart never opens a closed gap again, and keys, deletions and what was evicted stay as they were (D4, D25, D31).
func TestRestart(t *testing.T) {
	for name, down := range map[string]func(testing.TB, *server){
		"kill -9": func(_ testing.TB, s *server) { s.kill() },
		"SIGTERM": func(t testing.TB, s *server) { s.stop(t) },
	} {
		t.Run(name, func(t *testing.T) {
			data := t.TempDir()
			s := serve(t, data, "--gap-grace", "300ms")
			c := newT(t, s.target())
			c.GapGrace = 300 * time.Millisecond
			stream, gone := c.createBody(`{"name":"kept"}`).ID, c.createBody(`{"name":"gone"}`).ID
			full := c.overfull(5)
			c.publish(stream, `["one"]`, idempotent("k"))
			c.publishAt(stream, 3, `["three"]`)
			sub := c.subscribe(stream, "cursor=0")
			sub.batch(1)
			sub.batch(3)
			c.delete("/v1/streams/" + gone).want(204)
			revoked, revoke := s.newKey(t, Key{Kind: "live"})
			c.get("/v1/streams", key(revoked)).want(200)
			revoke()
			before, fullBefore, cursor := c.stream(stream), c.stream(full.ID), c.cursor(stream)
			down(t, s)

			s = serve(t, data, "--gap-grace", "300ms")
			c = newT(t, s.target())
			if after := c.stream(stream); after != before {
				t.Errorf("was %+v, is %+v", before, after)
			}
			if after := c.stream(full.ID); after != fullBefore {
				t.Errorf("was %+v, is %+v", fullBefore, after)
			}
			if after := c.cursor(stream); after != cursor {
				t.Errorf("was %+v, is %+v", cursor, after)
			}
			c.post(seqPath(stream, 2), jsonBody(`{"events":[]}`)).refused(409, "invalid_sequence")
			c.post(seqPath(full.ID, 2), rawBody(nil)).refused(409, "invalid_sequence")
			c.get(batchPath(full.ID, 1)).refused(404, "stream_not_found")
			k := c.ack(c.post(nextPath(stream), jsonBody(`{"events":[]}`), idempotent("k")).want(200), stream)
			if k != (Ack{stream, 1, 1, 3, true}) {
				t.Errorf("the key is answered with %+v", k)
			}
			c.get("/v1/streams/"+gone).refused(404, "stream_not_found")
			c.get("/v1/streams", key(revoked)).refused(401, "key_revoked")
			resumed := c.subscribe(stream, "", header("Last-Event-ID", "1"))
			resumed.batch(3)
			c.publish(stream, `["four"]`)
			resumed.batch(4)
		})
	}
}

// SIGTERM: subscribers are told when to come back, spread out, and their responses end; what is in flight is finished (D16).
func TestShutdown(t *testing.T) {
	s := serve(t, t.TempDir())
	c := newT(t, s.target())
	stream := c.createBody(`{"name":"shutdown"}`).ID
	subs := []*Subscription{c.subscribe(stream, ""), c.subscribe(stream, "cursor=0")}
	c.publish(stream, `[1]`)
	for _, sub := range subs {
		sub.batch(1)
	}
	body, finish := io.Pipe()
	status := make(chan int, 1)
	go func() {
		resp, err := c.try(t.Context(), "POST", nextPath(stream), func(r *request) {
			r.header.Set("Content-Type", "application/json")
			r.header.Set("Expect", "100-continue") // so that it is in flight when the first of the body is taken
			r.body, r.length = body, -1
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
		if e := sub.next(); e.Retry < 500 || e.Retry > 5000 || e.HasData {
			t.Errorf("the server says goodbye with %+v, want retry: 500 to 5000", e)
		}
		sub.closed(patience)
		if !errors.Is(sub.ended, io.EOF) {
			t.Errorf("the response was cut off: %v", sub.ended)
		}
	}
	finish.Write([]byte(`[2]}`))
	finish.Close()
	if got := <-status; got != 202 {
		t.Errorf("the publish in flight got %d", got)
	}
	<-stopped
}
