package trials

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/internal/contract"
)

// The abuse tests attack a real server while well-behaved clients use it. The well-behaved clients
// must see no error, miss no batch and get no batch twice. The benchmark in bench/abuse.go measures
// their speed.

// bystanders are well-behaved clients: for each transport a publisher and a subscriber, on one
// stream.
type bystanders struct {
	t      *testing.T
	ctx    context.Context
	stream string
	sent   []atomic.Int64 // number of batches sent by each publisher
	seen   []atomic.Int64 // last sequence seen by each subscriber
	moved  chan struct{}
	over   atomic.Bool
	work   sync.WaitGroup
}

// newBystanders starts well-behaved clients. At the end of the test it waits until every subscriber
// has seen every batch.
func newBystanders(t *testing.T, s *server) *bystanders {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	p := &bystanders{t: t, ctx: ctx, stream: contract.NewT(t, s.target()).CreateBody(`{"name":"peace"}`).ID, moved: make(chan struct{}, 1),
		sent: make([]atomic.Int64, len(contract.Transports)), seen: make([]atomic.Int64, len(contract.Transports))}
	var publishers sync.WaitGroup
	for i, by := range contract.Transports {
		c := caller{s.url, by.Client(s.trust(t))}
		if by.Secure {
			c.url = s.secure
		}
		p.work.Go(func() { p.subscribe(&c, i) })
		publishers.Go(func() { p.publish(&c, i) })
		t.Cleanup(c.client.CloseIdleConnections)
	}
	t.Cleanup(func() {
		p.over.Store(true)
		publishers.Wait()
		total := int64(0)
		for i := range p.sent {
			total += p.sent[i].Load()
		}
		p.await("all subscribers see all batches", func() bool { return least(p.seen) >= total })
		cancel()
		p.work.Wait()
		t.Logf("bystanders published %d batches, and every subscriber saw all of them", total)
	})
	p.progress(2)
	return p
}

// publish publishes until the test ends. Every batch must be stored. Each batch has an idempotency
// key. The server may close an idle connection just when net/http uses it. Then net/http sends the
// request again, because the key makes this safe.
func (p *bystanders) publish(c *caller, i int) {
	for !p.over.Load() && p.ctx.Err() == nil {
		key := http.Header{"Idempotency-Key": {fmt.Sprintf("%d-%d", i, p.sent[i].Load())}}
		out, status, answer := c.ask(p.ctx, "POST", contract.NextPath(p.stream), `{"events":["a","b"]}`, key)
		if out != done || status != http.StatusAccepted {
			p.t.Errorf("%s: a publish got %d %s, want 202", contract.Transports[i].Name, status, answer)
			return
		}
		p.sent[i].Add(1)
		p.move()
		pause(p.ctx)
	}
}

// subscribe reads batches until the test ends. The server chooses the sequences, so each sequence
// must be one higher than the one before.
func (p *bystanders) subscribe(c *caller, i int) {
	fail := func(format string, a ...any) {
		if p.ctx.Err() == nil {
			p.t.Errorf("%s: after batch %d: %s", contract.Transports[i].Name, p.seen[i].Load(), fmt.Sprintf(format, a...))
		}
	}
	req, err := http.NewRequestWithContext(p.ctx, "GET", c.url+"/v1/streams/"+p.stream+"?cursor=0", nil)
	if err != nil {
		fail("%v", err)
		return
	}
	req.Header = http.Header{"Authorization": {"Bearer " + liveKey}, "Accept": {"text/event-stream"}}
	resp, err := c.client.Do(req)
	if err != nil {
		fail("%v", err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		fail("a subscription got %d", resp.StatusCode)
		return
	}
	for d := contract.NewDecoder(resp.Body); ; {
		e, err := d.Next()
		if err != nil {
			fail("the subscription ended with %v", err)
			return
		}
		if e.Name != "batch" {
			continue
		}
		if want := p.seen[i].Load() + 1; e.ID != strconv.FormatInt(want, 10) {
			fail("got batch %s", e.ID)
			return
		}
		p.seen[i].Add(1)
		p.move()
	}
}

// move wakes a caller of await.
func (p *bystanders) move() {
	select {
	case p.moved <- struct{}{}:
	default:
	}
}

func least(counts []atomic.Int64) int64 {
	n := counts[0].Load()
	for i := range counts {
		n = min(n, counts[i].Load())
	}
	return n
}

// await waits until condition returns true. It calls condition again whenever a client makes
// progress.
func (p *bystanders) await(what string, condition func() bool) {
	p.t.Helper()
	for !condition() {
		if p.t.Failed() {
			return
		}
		select {
		case <-p.moved:
		case <-time.After(time.Second): // look whether a client has failed the test
		case <-p.ctx.Done():
			p.t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// progress waits until every publisher has published n more batches and every subscriber has
// received at least n more.
func (p *bystanders) progress(n int64) {
	p.t.Helper()
	sent, seen := make([]int64, len(p.sent)), make([]int64, len(p.seen))
	for i := range p.sent {
		sent[i], seen[i] = p.sent[i].Load(), p.seen[i].Load()
	}
	p.await("well-behaved clients make progress", func() bool {
		for i := range p.sent {
			if p.sent[i].Load() < sent[i]+n || p.seen[i].Load() < seen[i]+n {
				return false
			}
		}
		return true
	})
}

// confined runs shell commands that limit the server, such as ulimit or export, and then starts it.
func confined(t *testing.T, commands string, flags ...string) *server {
	t.Helper()
	script := filepath.Join(t.TempDir(), "weir")
	text := "#!/bin/sh\n" + commands + "\nexec " + program(t) + ` "$@"` + "\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	s, err := start(script, data, flags...)
	// A process that another test forked at this moment may have inherited the open script, and the
	// kernel does not execute a file that a process has open for writing.
	for errors.Is(err, syscall.ETXTBSY) {
		s, err = start(script, data, flags...)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.stop(t)
		if text := s.logged(); hasOwnRace(text) || strings.Contains(text, "panic") {
			t.Errorf("data race or panic in the server's log:\n%s", text)
		}
	})
	return s
}

// host returns the address of the server, without the scheme.
func (s *server) host(secure bool) string {
	if secure {
		return strings.TrimPrefix(s.secure, "https://")
	}
	return strings.TrimPrefix(s.url, "http://")
}

// dial connects to the server. If proto is empty, the connection is in clear text, otherwise it
// uses TLS and this protocol.
func (s *server) dial(t testing.TB, proto string) net.Conn {
	t.Helper()
	var c net.Conn
	var err error
	if proto == "" {
		c, err = net.Dial("tcp", s.host(false))
	} else {
		c, err = tls.Dial("tcp", s.host(true), &tls.Config{RootCAs: s.trust(t), NextProtos: []string{proto}})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ending waits until the server closes a connection, and returns everything that the server sent
// before.
func ending(t testing.TB, c net.Conn, within time.Duration) string {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(within))
	var said strings.Builder
	if _, err := bufio.NewReader(c).WriteTo(&said); err != nil {
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Errorf("the server did not close the connection within %v; it sent %q", within, contract.Shorten(said.String()))
		}
	}
	return said.String()
}

// trickle sends one byte per second until the connection is closed.
func trickle(ctx context.Context, c net.Conn, b string) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := range len(b) {
		if _, err := c.Write([]byte{b[i]}); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
