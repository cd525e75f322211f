package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// crowd is many subscriptions over a few HTTP/2 connections. One connection per subscription would
// exceed the limit of open files.
type crowd struct {
	conns     []net.Conn
	readers   sync.WaitGroup
	started   atomic.Int64 // subscriptions that got their first frame
	delivered atomic.Int64 // batches that have arrived, in all subscriptions together
}

// perConnection is how many subscriptions share a connection. The server allows 1,000.
const perConnection = 1000

func newCrowd(t *target, stream, n int) (*crowd, error) {
	var head bytes.Buffer
	e := hpack.NewEncoder(&head)
	for _, f := range [][2]string{
		{":method", "GET"}, {":scheme", "http"}, {":path", "/v1/streams/" + t.streams[stream]}, {":authority", "bench"},
		{"authorization", "Bearer " + t.key}, {"accept", "text/event-stream"},
	} {
		e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}) // keeps the field out of the HPACK table, so that the same bytes are valid for every request
	}
	c := &crowd{}
	for opened := 0; opened < n; opened += perConnection {
		conn, err := net.Dial("tcp", t.addr)
		if err != nil {
			return c, err
		}
		c.conns = append(c.conns, conn)
		var out bytes.Buffer
		f := http2.NewFramer(&out, nil)
		out.WriteString(http2.ClientPreface)
		f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
		f.WriteWindowUpdate(0, 1<<31-1-65535) // enough for the whole run
		for i := range min(perConnection, n-opened) {
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: head.Bytes(), EndStream: true, EndHeaders: true})
		}
		c.readers.Go(func() { c.read(conn) })
		if _, err := out.WriteTo(conn); err != nil {
			return c, err
		}
	}
	for deadline := time.Now().Add(time.Minute); c.started.Load() < int64(n); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return c, fmt.Errorf("%d of %d subscriptions started", c.started.Load(), n)
		}
	}
	return c, nil
}

// read counts the batches that arrive over a connection.
func (c *crowd) read(conn net.Conn) {
	f := http2.NewFramer(conn, bufio.NewReaderSize(conn, 64<<10)) // unbuffered, each frame would take two system calls
	f.SetReuseFrames()
	var first [2*perConnection + 1]bool
	for {
		frame, err := f.ReadFrame()
		if err != nil && !errors.As(err, new(http2.StreamError)) {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				f.WritePing(true, frame.Data)
			}
		case *http2.DataFrame:
			if id := frame.StreamID; !first[id] {
				first[id] = true
				c.started.Add(1)
			}
			c.delivered.Add(int64(bytes.Count(frame.Data(), marker)))
		}
	}
}

func (c *crowd) close() {
	for _, conn := range c.conns {
		conn.Close()
	}
	c.readers.Wait()
}

// crowdEnv is an environment variable that makes this program a child process that only subscribes.
// In the process of the benchmark, thousands of subscriptions would delay the publisher whose
// latency is measured.
const crowdEnv = "WEIR_BENCH_CROWD"

// joinCrowd runs the child process. It prints "ready" once it has subscribed. Then, for each line
// on its standard input, it prints the number of batches that have arrived.
func joinCrowd(text string) error {
	t := &target{streams: []string{""}}
	var n int
	if _, err := fmt.Sscan(text, &t.addr, &t.key, &t.streams[0], &n); err != nil {
		return err
	}
	c, err := newCrowd(t, 0, n)
	defer c.close()
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(c.delivered.Load())
	}
	return nil
}

// gathering is a crowd in a child process.
type gathering struct {
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

func gather(t *target, stream, n int) (*gathering, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	g := &gathering{process: exec.Command(exe)}
	g.process.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %d", crowdEnv, t.addr, t.key, t.streams[stream], n))
	g.process.Stderr = os.Stderr
	if g.in, err = g.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := g.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	g.out = bufio.NewReader(out)
	if err := g.process.Start(); err != nil {
		return nil, err
	}
	_, err = g.out.ReadString('\n')
	return g, err
}

// delivered returns how many batches have arrived, in all subscriptions together.
func (g *gathering) delivered() (n int64) {
	fmt.Fprintln(g.in)
	fmt.Fscanln(g.out, &n)
	return n
}

func (g *gathering) close() {
	g.in.Close()
	g.process.Wait()
}

// wakingOverHTTP measures publishes to one stream over HTTP/1.1, first without other load, then
// while n subscribers of another stream are woken 20 times per second.
func wakingOverHTTP(n int) func(*target) ([]figure, error) {
	return func(t *target) ([]figure, error) {
		const crowded, quiet = 1, 2
		c, err := gather(t, crowded, n)
		if err != nil {
			return nil, err
		}
		defer c.close()
		one := &target{name: t.name, addr: t.addr, key: t.key, process: t.process, streams: t.streams[quiet : quiet+1]}
		load := publishLoad{Connections: 1, Size: 200, Streams: 1}
		var alone, beside, tails []float64
		var delays [][]bucket
		sent, got, cpu, calls := int64(0), int64(0), time.Duration(0), int64(0)
		for range wakingTurns {
			a, err := publishing(one, load, wakingSpan)
			if err != nil {
				return nil, err
			}
			before, base := t.cpu(), c.delivered()
			early, err := t.delays()
			if err != nil {
				return nil, err
			}
			over, done := make(chan struct{}), make(chan error)
			var published int64
			go func() { done <- callOut(t, crowded, over, &published) }()
			b, err := publishing(one, load, wakingSpan)
			close(over)
			if err := errors.Join(err, <-done); err != nil {
				return nil, err
			}
			due := published * int64(n)
			calls += published
			for deadline := time.Now().Add(30 * time.Second); c.delivered()-base < due && time.Now().Before(deadline); {
				time.Sleep(50 * time.Millisecond)
			}
			late, err := t.delays()
			if err != nil {
				return nil, err
			}
			for i, d := range late {
				late[i].count = d.count - early[i].count
			}
			delays = append(delays, late)
			sent, got, cpu = sent+due, got+c.delivered()-base, cpu+t.cpu()-before
			alone, beside, tails = append(alone, a.P50), append(beside, b.P50), append(tails, b.P99)
		}
		return []figure{
			{fmt.Sprintf("%d subscribers woken 20 times/s over HTTP/2: publish p50 / p50 without wake-ups", n), middle(beside) / middle(alone), ""},
			{"  publish p50 without wake-ups", middle(alone), "ms"},
			{"  publish p50 with wake-ups", middle(beside), "ms"},
			{"  publish p99 with wake-ups", middle(tails), "ms"},
			{"  batches per second to the woken subscribers", float64(calls) / (wakingTurns * wakingSpan).Seconds(), "1/s"},
			{"  time until half of the deliveries, at most", quantile(delays, 0.5), "s"},
			{"  time until 99 % of the deliveries, at most", quantile(delays, 0.99), "s"},
			{"  share of expected deliveries", float64(got) / float64(sent), ""},
			{"  server CPU for 100,000 deliveries", cpu.Seconds() * 100_000 / float64(max(got, 1)), "s"},
		}, nil
	}
}

// bucket is a bucket of a histogram: how many observations were at most this long, in seconds.
type bucket struct{ most, count float64 }

// delays returns the server's own histogram of the time from a publish to a delivery.
func (t *target) delays() (all []bucket, err error) {
	resp, err := http.Get(t.metrics + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		if line, ok := strings.CutPrefix(in.Text(), `weir_delivery_delay_seconds_bucket{le="`); ok {
			var b bucket
			if _, err := fmt.Sscanf(strings.Replace(line, `"} `, " ", 1), "%g %g", &b.most, &b.count); err != nil {
				return nil, err
			}
			all = append(all, b)
		}
	}
	return all, nil
}

// quantile returns the upper end of the bucket that holds the given quantile of all observations.
func quantile(all [][]bucket, q float64) float64 {
	for i, b := range all[0] {
		below, total := 0.0, 0.0
		for _, turn := range all {
			below, total = below+turn[i].count, total+turn[len(turn)-1].count
		}
		if below >= q*total {
			return b.most
		}
	}
	return 0
}

// callOut publishes small batches to a stream until the channel over is closed.
func callOut(t *target, stream int, over <-chan struct{}, published *int64) error {
	c, err := dial(t.addr)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	r := request("POST", t.publishPath(stream), t.key, body(100))
	tick := time.NewTicker(time.Second / wakings)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return nil
		case <-tick.C:
			if err := c.do(r); err != nil {
				return err
			}
			*published++
		}
	}
}

func middle(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
