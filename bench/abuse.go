package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// peaceful is the index of the stream that well-behaved clients publish to.
const peaceful = 3

// assault is an attack in progress.
type assault struct {
	t     *target
	over  chan struct{}
	work  sync.WaitGroup
	conns []net.Conn
}

// connect opens a connection that is closed when the attack ends.
func (a *assault) connect() (net.Conn, error) { return a.connectFrom("") }

// connectFrom is like connect, but connects from the given local address. An empty address lets the
// system choose one.
func (a *assault) connectFrom(address string) (net.Conn, error) {
	var d net.Dialer
	if address != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(address)}
	}
	c, err := d.Dial("tcp", a.t.addr)
	if err == nil {
		a.conns = append(a.conns, c)
	}
	return c, err
}

// repeat opens a connection and starts a goroutine that calls the function do at the given interval
// until the attack ends. If do fails, the goroutine opens a new connection. The interval limits the
// CPU time of the attack, because the measured clients run in this process and share its cores.
func (a *assault) repeat(every time.Duration, do func(c net.Conn) error) error {
	c, err := net.Dial("tcp", a.t.addr)
	if err != nil {
		return err
	}
	a.work.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-a.over:
				c.Close()
				return
			case <-tick.C:
			}
			c.SetDeadline(time.Now().Add(2 * time.Second))
			if do(c) == nil {
				continue
			}
			c.Close()
			if c, err = net.Dial("tcp", a.t.addr); err != nil {
				return
			}
		}
	})
	return nil
}

// end stops the attack and closes its connections.
func (a *assault) end() {
	close(a.over)
	a.work.Wait()
	for _, c := range a.conns {
		c.Close()
	}
}

// attack is a flood that a single machine can produce with little effort.
type attack struct {
	name  string
	begin func(a *assault) error

	victims func(t *target, span time.Duration) (row, error) // load of the well-behaved clients; if nil, they publish batches of 1 KiB
	prepare func(t *target) error                            // called before anything is measured
	env     []string                                         // environment variables of the server
	flags   []string
}

var floods = []attack{
	{name: "2,000 idle connections", begin: func(a *assault) error { return a.openSilent(2000, "") }},
	{name: "2,000 slow headers", begin: func(a *assault) error {
		return a.openSilent(2000, "POST /v1/streams HTTP/1.1\r\nHost: bench\r\nX-Slow: ")
	}},
	{name: "1,000 slow bodies", begin: func(a *assault) error {
		return a.openSilent(1000, string(request("POST", a.t.publishPath(1), a.t.key, nil, "Content-Type: application/json", "Content-Length: 8000000"))+`{"events":[`)
	}},
	{name: "1,000 stalled subscribers", begin: func(a *assault) error {
		return a.openSilent(1000, string(request("GET", "/v1/streams/"+a.t.streams[peaceful]+"?cursor=head", a.t.key, nil, "Accept: text/event-stream")))
	}},
	{name: "8 MiB bodies, 16/s", begin: func(a *assault) error {
		r := request("POST", a.t.publishPath(2), a.t.key, body(8<<20))
		return a.loops(8, time.Second/2, func(c net.Conn) error { return ask(c, r) })
	}},
	{name: "8 MiB bodies of invalid JSON, 16/s", begin: func(a *assault) error {
		r := request("POST", a.t.publishPath(2), a.t.key, bytes.Repeat([]byte("["), 8<<20))
		return a.loops(8, time.Second/2, func(c net.Conn) error { return ask(c, r) })
	}},
	{name: "guessed keys, 2,000/s", begin: func(a *assault) error {
		return a.loops(8, 4*time.Millisecond, func(c net.Conn) error {
			return ask(c, request("GET", "/v1/streams", fmt.Sprintf("svc_live_%016x%016x", rand.Uint64(), rand.Uint64()), nil))
		})
	}},
	{name: "HTTP/2 requests that are reset, 10,000/s", begin: func(a *assault) error {
		return a.floods(4, func(f *http2.Framer, id uint32, head []byte) {
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head, EndStream: true, EndHeaders: true})
			f.WriteRSTStream(id, http2.ErrCodeCancel)
		})
	}},
	{name: "HTTP/2 headers without end, 10,000/s", begin: func(a *assault) error {
		return a.floods(4, func(f *http2.Framer, id uint32, head []byte) {
			if id == 1 {
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head})
			}
			f.WriteContinuation(1, false, nil)
		})
	}},
	{name: "HTTP/2 pings, 10,000/s", begin: func(a *assault) error {
		return a.floods(4, func(f *http2.Framer, _ uint32, _ []byte) { f.WritePing(false, [8]byte{}) })
	}},
}

// openSilent opens n connections that send the given text and then nothing more.
func (a *assault) openSilent(n int, first string) error {
	for range n {
		c, err := a.connect()
		if err != nil {
			return err
		}
		c.(*net.TCPConn).SetReadBuffer(4 << 10)
		if _, err := io.WriteString(c, first); err != nil {
			return err
		}
	}
	return nil
}

// loops calls repeat n times, so that n connections are busy at once.
func (a *assault) loops(n int, every time.Duration, do func(net.Conn) error) error {
	for range n {
		if err := a.repeat(every, do); err != nil {
			return err
		}
	}
	return nil
}

// ask sends a request and accepts any response.
func ask(c net.Conn, r []byte) error {
	if _, err := c.Write(r); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 4<<10)) // one call reads the whole response, because responses are small
	return err
}

// floods sends HTTP/2 frames, a hundred at a time, over n connections. When the server closes a
// connection, floods opens another.
func (a *assault) floods(n int, write func(f *http2.Framer, id uint32, head []byte)) error {
	var head bytes.Buffer
	e := hpack.NewEncoder(&head)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":path", "/v1/streams"}, {":authority", "bench"}, {"authorization", "Bearer " + a.t.key}} {
		e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}) // keeps the field out of the HPACK table, so that the same bytes are valid on every connection
	}
	for range n {
		var last net.Conn
		id := uint32(1)
		err := a.repeat(40*time.Millisecond, func(c net.Conn) error {
			var out bytes.Buffer
			f := http2.NewFramer(&out, nil)
			f.AllowIllegalWrites = true
			if c != last {
				out.WriteString(http2.ClientPreface)
				f.WriteSettings()
				last, id = c, 1
				a.work.Go(func() { io.Copy(io.Discard, c) })
			}
			for range 100 {
				write(f, id, head.Bytes())
				id += 2
			}
			_, err := out.WriteTo(c)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// abuse measures what each attack costs: the rate and latency of well-behaved clients during the
// attack, and the server's memory. Each attack runs against a fresh server. If the server refuses a
// request of a well-behaved client, abuse returns an error.
func abuse(dir string) ([]figure, error) {
	var figures []figure
	for i, attack := range slices.Concat(floods, hoards, strangers) {
		f, err := attack.measure(filepath.Join(dir, "abuse"+strconv.Itoa(i)))
		if err != nil {
			return figures, fmt.Errorf("%s: %w", attack.name, err)
		}
		figures = append(figures, f...)
	}
	return figures, nil
}

func (x *attack) measure(dir string) ([]figure, error) {
	const span = 3 * time.Second
	dir, err := emptyDir(dir, "server")
	if err != nil {
		return nil, err
	}
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte(adminPassword), 0o600); err != nil {
		return nil, err
	}
	t, err := startWeirIn(dir, x.env, append(x.flags, "--admin-password-file", password)...)
	if err != nil {
		return nil, err
	}
	defer t.stop()
	if err := t.createStreams(peaceful + 1); err != nil {
		return nil, err
	}
	if x.prepare != nil {
		if err := x.prepare(t); err != nil {
			return nil, err
		}
	}
	victims, what := x.victims, "of the rate"
	if victims == nil {
		victims, what = publishes(1<<10), "of the publish rate"
	}
	one := &target{name: t.name, addr: t.addr, key: t.key, process: t.process, streams: t.streams[peaceful : peaceful+1]}
	if _, err := victims(one, span); err != nil { // let the heap reach its steady size
		return nil, err
	}
	alone, err := victims(one, span)
	if err != nil {
		return nil, err
	}
	before := t.memory()
	a := &assault{t: t, over: make(chan struct{})}
	defer a.end()
	if err := x.begin(a); err != nil {
		return nil, err
	}
	beside, err := victims(one, span)
	if err != nil {
		return nil, fmt.Errorf("during the attack: %w", err)
	}
	return []figure{
		{x.name, beside.Rate / alone.Rate, what},
		{"  p99 / p99 without the attack", beside.P99 / alone.P99, ""},
		{"  p99", beside.P99, "ms"},
		{"  memory / memory without the attack", float64(t.memory()) / float64(before), ""},
		{"  memory", float64(t.memory()) / (1 << 20), "MiB"},
		{"  threads", float64(t.threads()), ""},
	}, nil
}

// publishes returns clients that publish batches of this size over 16 connections.
func publishes(size int) func(*target, time.Duration) (row, error) {
	return func(t *target, span time.Duration) (row, error) {
		return publishing(t, publishLoad{Connections: 16, Size: size, Streams: 1}, span)
	}
}
