package trials

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"weir/internal/contract"
)

var cycles = flag.Int("trials.cycles", 20, "number of times that TestCrash and TestPowerCut kill the server")

// The test kills the server under load again and again, and restarts it on the same data. After
// each restart every acknowledged batch is stored byte for byte, no cursor is lower than before,
// the server remembers idempotency keys, deleted streams stay deleted, and every batch that a
// subscriber saw before the crash is stored (D5, D4, D25, D31).
func TestCrash(t *testing.T) {
	t.Parallel()
	r, _ := seeded(t)
	data := t.TempDir()
	c := &crash{t: t, r: r, ledger: newLedger()}
	for cycle := range *cycles {
		c.start(data)
		c.verify()
		c.load(time.Duration(20+r.IntN(400))*time.Millisecond, func() { c.server.kill() })
		if t.Failed() {
			c.fail(data, cycle)
		}
	}
	c.start(data)
	c.verify()
	c.verify() // a second time, to check the batches that the first call published again
	c.server.stop(t)
	t.Log(c.summary())
}

// crash starts a server again and again, publishes to it under load and kills it.
type crash struct {
	t      testing.TB
	r      *rand.Rand
	ledger *ledger // what the clients know about each stream
	server *server
	caller *caller
	starts int
}

// start starts the server and connects to it, with HTTP/1.1 and HTTP/2 in turn.
func (c *crash) start(data string) {
	c.t.Helper()
	s, err := start(program(c.t), data, "--gap-grace", "200ms", "--rate-live", "0", "--demo=false")
	if err != nil {
		c.t.Fatal(err)
	}
	c.server = s
	c.starts++
	if c.caller != nil {
		c.caller.client.CloseIdleConnections()
	}
	client := contract.HTTP1
	if c.starts%2 == 0 {
		client = contract.H2C
	}
	c.caller = &caller{s.url, client()}
}

// fail copies the data of a failed run to a directory that outlives the test.
func (c *crash) fail(data string, cycle int) {
	c.server.kill()
	kept, err := os.MkdirTemp("", "weir-crash-")
	if err == nil {
		err = os.CopyFS(kept, os.DirFS(data))
	}
	c.t.Fatalf("failed in cycle %d; the data is in %s (%v)\n%s", cycle, kept, err, c.server.logged())
}

func (c *crash) summary() string {
	stored, keys, deleted := 0, 0, 0
	for _, a := range c.ledger.all() {
		stored += len(a.log)
		if a.gone {
			deleted++
		}
		if a.keyed {
			keys += len(a.batches)
		}
	}
	return fmt.Sprintf("%d starts: %d batches stored, %d keys remembered, %d streams deleted", c.starts, stored, keys, deleted)
}

// load runs publishers, subscribers, creators and deleters. After some time it calls the function
// kill, which kills the server.
func (c *crash) load(last time.Duration, kill func()) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var work sync.WaitGroup
	spawn := func(f func(ctx context.Context, r *rand.Rand)) {
		own := rand.New(rand.NewPCG(c.r.Uint64(), 5))
		work.Go(func() { f(ctx, own) })
	}
	living := 0
	for _, a := range c.ledger.all() {
		if a.gone {
			continue
		}
		living++
		for range 6 {
			spawn(func(ctx context.Context, r *rand.Rand) { c.publisher(ctx, r, a) })
		}
		spawn(func(ctx context.Context, r *rand.Rand) { c.subscriber(ctx, r, a) })
	}
	for i := living; i < 4; i++ {
		spawn(func(ctx context.Context, r *rand.Rand) { c.creator(ctx, c.ledger.open(i%2 == 0), r) })
	}
	if living >= 4 && c.r.IntN(2) == 0 {
		list := c.ledger.all()
		if a := list[c.r.IntN(len(list))]; !a.gone {
			spawn(func(ctx context.Context, r *rand.Rand) { c.deleter(ctx, r, a) })
		}
	}
	timer := time.NewTimer(last)
	<-timer.C
	kill()
	cancel()
	work.Wait()
}

// creator creates a stream and then publishes to it.
func (c *crash) creator(ctx context.Context, a *account, r *rand.Rand) {
	out, status, b := c.caller.ask(ctx, "POST", "/v1/streams", `{"name":"crash","id":"`+a.id+`"}`, nil)
	c.ledger.mu.Lock()
	a.created = c.ledger.sure(out)
	c.ledger.mu.Unlock()
	switch out {
	case refused:
		c.t.Errorf("create %s: %d %s", a.id, status, b)
	case done:
		c.publisher(ctx, r, a)
	}
}

// deleter deletes a stream while other clients use it.
func (c *crash) deleter(ctx context.Context, r *rand.Rand, a *account) {
	select {
	case <-time.After(time.Duration(r.IntN(200)) * time.Millisecond):
	case <-ctx.Done():
		return
	}
	c.ledger.mu.Lock()
	a.deleted = unknown
	c.ledger.mu.Unlock()
	out, status, b := c.caller.ask(ctx, "DELETE", "/v1/streams/"+a.id, "", nil)
	if out == refused {
		c.t.Errorf("delete %s: %d %s", a.id, status, b)
	}
	if out == done {
		c.ledger.mu.Lock()
		a.deleted = c.ledger.sure(done)
		c.ledger.mu.Unlock()
	}
}

// publisher publishes until the server is killed or the stream is deleted.
func (c *crash) publisher(ctx context.Context, r *rand.Rand, a *account) {
	for ctx.Err() == nil {
		c.ledger.mu.Lock()
		n := a.next
		a.next++
		c.ledger.mu.Unlock()
		if !a.keyed && r.IntN(50) == 0 {
			continue // leaves a gap
		}
		if out, status := c.publish(ctx, a, n, text(r, fmt.Sprint(n))); out == unknown || status == 404 {
			return
		}
	}
}

// publish sends a batch and enters the outcome in the ledger.
func (c *crash) publish(ctx context.Context, a *account, n int64, body string) (outcome, int) {
	c.ledger.attempt(a, n, body)
	path, key := contract.SeqPath(a.id, n), ""
	if a.keyed {
		path, key = contract.NextPath(a.id), fmt.Sprintf("key-%d", n)
	}
	out, status, k := c.caller.publish(ctx, path, key, body)
	if out == refused && status == 422 {
		return out, status // the sequence is too far above the cursor
	}
	if err := c.ledger.answer(a, n, body, out, status, k); err != nil {
		c.t.Error(err)
	}
	return out, status
}

// subscriber reads a stream, over several connections, until the server is killed.
func (c *crash) subscriber(ctx context.Context, r *rand.Rand, a *account) {
	last := int64(-1)
	for i := 0; ctx.Err() == nil && i < 20; i++ {
		left := 1 + r.IntN(500)
		err := c.caller.follow(ctx, a.id, last, func(s sighting) bool {
			c.ledger.saw(a, s)
			last = s.seq
			left--
			return left > 0
		})
		if err != nil {
			c.t.Errorf("subscriber of %s: %v", a.id, err)
			return
		}
	}
}

// verify checks that a server that has just started has everything that the ledger records.
func (c *crash) verify() {
	c.t.Helper()
	for _, a := range c.ledger.all() {
		if c.exists(a) {
			log, cursor := c.caller.readAllOf(c.t, a.id)
			a.audit(c.t, log, cursor)
			c.retry(a)
		}
	}
}

// exists reports whether a stream exists. It fails the test if the ledger says otherwise.
func (c *crash) exists(a *account) bool {
	out, status, b := c.caller.ask(context.Background(), "GET", "/v1/streams/"+a.id, "", nil)
	switch {
	case out == done && a.gone:
		c.t.Errorf("stream %s was missing after an earlier restart, but exists now", a.id)
	case out == done && a.deleted == done:
		c.t.Errorf("stream %s was deleted, but exists", a.id)
	case out == refused && status == 404 && a.deleted == refused && (a.created == done || len(a.log) > 0):
		c.t.Errorf("stream %s is lost", a.id)
	case out != done && status != 404:
		c.t.Errorf("stream %s: %d %s", a.id, status, b)
	}
	if out == done {
		a.created, a.deleted = done, refused // settles unknown outcomes
		var s contract.Stream
		if err := json.Unmarshal(b, &s); err != nil || s.Mode != "json" || s.Name != "crash" {
			c.t.Errorf("stream %s is %s", a.id, b)
		}
		return true
	}
	a.gone = true
	return false
}

// retry repeats publishes, as a client does that got no response. A repeated publish that was
// acknowledged before must be a duplicate. If the outcome of a publish was unknown, the response to
// the repeated publish settles it.
func (c *crash) retry(a *account) {
	known := 30 // the number of acknowledged publishes to repeat
	var again []int64
	for n, p := range a.batches {
		if p.seq < 0 && !a.closed[n] {
			again = append(again, n)
		} else if p.seq >= 0 && known > 0 {
			known--
			again = append(again, n)
		}
	}
	for _, n := range again {
		p := a.batches[n]
		acknowledged := p.seq >= 0
		_, there := a.log[n]
		body := text(c.r, fmt.Sprintf("again-%d", n))
		out, status := c.publish(context.Background(), a, n, body)
		switch {
		case out == unknown:
			c.t.Errorf("%s: repeating publish %d got %d", a.id, n, status)
		case acknowledged && status != 200:
			c.t.Errorf("%s: publish %d was acknowledged, but repeating it got %d", a.id, n, status)
		case !a.keyed && there && status != 200:
			c.t.Errorf("%s: batch %d is stored, but publishing it again got %d", a.id, n, status)
		case !a.keyed && !there && status == 200:
			c.t.Errorf("%s: batch %d was not stored, but publishing it was answered as a duplicate", a.id, n)
		case a.keyed && status == 200 && !acknowledged:
			if s, ok := a.log[p.seq]; !ok || s.events == body {
				c.t.Errorf("%s: publish %d was answered as a duplicate of batch %d, which was not stored before: %+v", a.id, n, p.seq, short(s))
			}
		}
	}
}
