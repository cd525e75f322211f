package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// durableServer is a server of the Durable Streams protocol.
type durableServer struct {
	*target
	prefix string // path under which the server has its streams
	made   int    // number of streams that newPath has named
	full   string // path of the stream that durableCatchUp reads
}

// newPath returns the path of a stream that does not exist.
func (s *durableServer) newPath() string {
	s.made++
	return s.prefix + "bench/" + strconv.Itoa(s.made)
}

// request builds the bytes of a request with a content type.
func (s *durableServer) request(method, path, contentType string, body []byte, headers ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n", method, path, s.key, contentType, len(body))
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

// create creates a stream and returns its path.
func (s *durableServer) create(contentType string) (string, error) {
	c, err := dial(s.addr)
	if err != nil {
		return "", err
	}
	defer c.conn.Close()
	path := s.newPath()
	return path, c.do(s.request("PUT", path, contentType, nil))
}

const (
	bytesType = "application/octet-stream"
	jsonType  = "application/json"
)

// durableCase is a measurement of one server. The result is a rate or a throughput, and the CPU
// time of the server per operation or per MB.
type durableCase struct {
	name    string
	unit    string
	measure func(s *durableServer, span time.Duration) (value float64, cpu time.Duration, err error)
}

var durableCases = []durableCase{
	{"append, 64 connections, 1 KiB", "appends/s", func(s *durableServer, span time.Duration) (float64, time.Duration, error) {
		return durableAppends(s, span, false)
	}},
	{"append, 64 idempotent producers, 1 KiB", "appends/s", func(s *durableServer, span time.Duration) (float64, time.Duration, error) {
		return durableAppends(s, span, true)
	}},
	{"create, 64 connections", "creates/s", durableCreates},
	{"catch-up by GET, 1 reader, 64 MiB of 64 KiB appends", "MB/s", durableCatchUp},
	{"fan-out by SSE, 200 readers, 1 KiB messages", "deliveries/s", durableFanOut},
}

// durable compares the endpoint /ds of Weir with the Node.js server of Durable Streams, if the
// directory npm contains that server. Both servers sync an append before they acknowledge it. They
// take turns in every round, and the figures are medians.
func durable(dir, npm string, rounds int, span time.Duration) ([]figure, error) {
	dir, err := emptyDir(dir, "durable")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	weir, err := startWeir(dir, "--streams-per-project", "10000000")
	if err != nil {
		return nil, err
	}
	defer weir.stop()
	all := []*durableServer{{target: weir, prefix: "/ds/"}}
	if node, err := startDurableStreams(dir, npm, "file", ""); err != nil {
		fmt.Printf("Durable Streams, Node.js server: skipped: %v\n", err)
	} else {
		defer node.stop()
		all = append(all, &durableServer{target: node.target, prefix: "/"})
	}
	fmt.Printf("\n%-54s %12s %12s %7s %9s %9s\n", "Durable Streams", "Weir", "Node.js", "ratio", "Weir us", "Node us")
	var figures []figure
	for _, c := range durableCases {
		values, cpus := make([][]float64, len(all)), make([][]float64, len(all))
		var ratios []float64
		for range rounds {
			for i, s := range all {
				syscall.Sync() // otherwise the disk still writes data of the other server
				value, cpu, err := c.measure(s, span)
				if err != nil {
					return figures, fmt.Errorf("%s: %s: %w", c.name, s.name, err)
				}
				values[i], cpus[i] = append(values[i], value), append(cpus[i], float64(cpu.Nanoseconds())/1e3)
			}
			if len(all) > 1 {
				ratios = append(ratios, values[0][len(values[0])-1]/values[1][len(values[1])-1])
			}
		}
		figures = append(figures, figure{"ds: " + c.name, middle(values[0]), c.unit}, figure{"  server CPU", middle(cpus[0]), "us"})
		if len(all) > 1 {
			fmt.Printf("%-54s %12.0f %12.0f %7.2f %9.1f %9.1f %s\n", c.name, middle(values[0]), middle(values[1]), middle(ratios), middle(cpus[0]), middle(cpus[1]), c.unit)
			figures = append(figures, figure{"  of the Node.js server", middle(values[1]), c.unit}, figure{"  ratio", middle(ratios), ""})
		} else {
			fmt.Printf("%-54s %12.0f %12s %7s %9.1f %9s %s\n", c.name, middle(values[0]), "", "", middle(cpus[0]), "", c.unit)
		}
	}
	fmt.Println()
	many, err := durableMany(all[0])
	for _, f := range many {
		fmt.Printf("%-54s %12.0f %s\n", f.Name, f.Value, f.Unit)
	}
	return append(figures, many...), err
}

// durableAppends appends 1 KiB from 64 connections to one stream. If producers is true, each
// connection is an idempotent producer, which numbers its appends.
func durableAppends(s *durableServer, span time.Duration, producers bool) (float64, time.Duration, error) {
	path, err := s.create(bytesType)
	if err != nil {
		return 0, 0, err
	}
	payload := bytes.Repeat([]byte("x"), 1<<10)
	workers := make([]func() error, 64)
	for i := range workers {
		c, err := dial(s.addr)
		if err != nil {
			return 0, 0, err
		}
		defer c.conn.Close()
		plain, seq := s.request("POST", path, bytesType, payload), 0
		workers[i] = func() error {
			if !producers {
				return c.do(plain)
			}
			r := s.request("POST", path, bytesType, payload, fmt.Sprint("Producer-Id: ", i), "Producer-Epoch: 0", fmt.Sprint("Producer-Seq: ", seq))
			seq++
			return c.do(r)
		}
	}
	r, err := work(workers, len(payload), span, s.cpu)
	return r.Rate, microseconds(r.CPU), err
}

func microseconds(us float64) time.Duration { return time.Duration(us * float64(time.Microsecond)) }

// durableCreates creates streams from 64 connections.
func durableCreates(s *durableServer, span time.Duration) (float64, time.Duration, error) {
	var next atomic.Int64
	next.Store(int64(s.made))
	before, after, _ := bytes.Cut(s.request("PUT", s.prefix+"bench/NUMBER", jsonType, nil), []byte("NUMBER"))
	workers := make([]func() error, 64)
	for i := range workers {
		c, err := dial(s.addr)
		if err != nil {
			return 0, 0, err
		}
		defer c.conn.Close()
		var request []byte
		workers[i] = func() error {
			request = strconv.AppendInt(append(request[:0], before...), next.Add(1), 10)
			request = append(request, after...)
			return c.do(request)
		}
	}
	r, err := work(workers, 0, span, s.cpu)
	s.made = int(next.Load())
	return r.Rate, microseconds(r.CPU), err
}

// The stream that durableCatchUp reads has catchUpCount appends of catchUpSize bytes.
const catchUpSize, catchUpCount = 64 << 10, 1024

// durableCatchUp reads a stream from its start again and again, each time with as many requests as the
// server wants. It returns the CPU time per MB.
func durableCatchUp(s *durableServer, span time.Duration) (float64, time.Duration, error) {
	if s.full == "" {
		if err := s.fill(); err != nil {
			return 0, 0, err
		}
	}
	transport := &http.Transport{ReadBufferSize: 256 << 10, DisableCompression: true}
	defer transport.CloseIdleConnections()
	before, start, total := s.cpu(), time.Now(), int64(0)
	for time.Since(start) < span {
		n, err := s.readAll(transport)
		if err != nil {
			return 0, 0, err
		}
		total += n
	}
	mb := float64(total) / 1e6
	return mb / time.Since(start).Seconds(), time.Duration(float64(s.cpu()-before) / mb), nil
}

// fill creates the stream of durableCatchUp.
func (s *durableServer) fill() error {
	path, err := s.create(bytesType)
	if err != nil {
		return err
	}
	var left atomic.Int64
	left.Store(catchUpCount)
	payload := bytes.Repeat([]byte("x"), catchUpSize)
	writers := make([]func() error, 16)
	for i := range writers {
		c, err := dial(s.addr)
		if err != nil {
			return err
		}
		defer c.conn.Close()
		r := s.request("POST", path, bytesType, payload)
		writers[i] = func() error {
			if left.Add(-1) < 0 {
				return errEnough
			}
			return c.do(r)
		}
	}
	_, err = work(writers, catchUpSize, 5*time.Minute, s.cpu)
	syscall.Sync()
	s.full = path
	return err
}

// readAll reads the stream of durableCatchUp once, and returns its size.
func (s *durableServer) readAll(transport *http.Transport) (total int64, err error) {
	buffer := make([]byte, 256<<10)
	for offset, last := "-1", false; !last; {
		resp, err := s.get(context.Background(), transport, s.full+"?offset="+offset)
		if err != nil {
			return 0, err
		}
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body}, buffer)
		resp.Body.Close()
		if err != nil {
			return 0, err
		}
		total += n
		offset, last = resp.Header.Get("Stream-Next-Offset"), resp.Header.Get("Stream-Up-To-Date") != ""
	}
	if total != catchUpSize*catchUpCount {
		return 0, fmt.Errorf("%w: read %d bytes of %d", errAnswer, total, catchUpSize*catchUpCount)
	}
	return total, nil
}

// get sends a GET request.
func (s *durableServer) get(ctx context.Context, transport *http.Transport, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.addr+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	resp, err := transport.RoundTrip(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		err = fmt.Errorf("%w: %s", errAnswer, resp.Status)
	}
	return resp, err
}

// durableFanOut appends messages one after another to a stream with 200 readers, and waits until all
// have arrived.
func durableFanOut(s *durableServer, span time.Duration) (float64, time.Duration, error) {
	const readers = 200
	path, err := s.create(jsonType)
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	defer done.Wait()
	defer cancel()
	transport := &http.Transport{DisableCompression: true}
	var received, ready atomic.Int64
	for range readers {
		resp, err := s.get(ctx, transport, path+"?offset=-1&live=sse")
		if err != nil {
			return 0, 0, err
		}
		done.Go(func() {
			defer resp.Body.Close()
			countMarks(resp.Body, &ready, &received)
		})
	}
	for ready.Load() < readers { // wait until each reader has its first control event
		time.Sleep(time.Millisecond)
	}
	c, err := dial(s.addr)
	if err != nil {
		return 0, 0, err
	}
	defer c.conn.Close()
	payload := append(append([]byte(`"`+fanOutMark), bytes.Repeat([]byte("x"), 1<<10)...), '"')
	r, sent := s.request("POST", path, jsonType, payload), int64(0)
	before, start := s.cpu(), time.Now()
	for time.Since(start) < span {
		if err := c.do(r); err != nil {
			return 0, 0, err
		}
		sent++
	}
	for received.Load() < sent*readers {
		if time.Since(start) > span+time.Minute {
			return 0, 0, errors.New("messages are missing")
		}
		time.Sleep(time.Millisecond)
	}
	n := float64(sent * readers)
	return n / time.Since(start).Seconds(), time.Duration(float64(s.cpu()-before) / n), nil
}

// fanOutMark is the beginning of each message of durableFanOut.
const fanOutMark = "#message#"

// countMarks counts the messages in an event stream. It adds 1 to ready when the first bytes arrive.
func countMarks(r io.Reader, ready, received *atomic.Int64) {
	room, left, begun := make([]byte, 64<<10), 0, false
	for {
		n, err := r.Read(room[left:])
		if n > 0 && !begun {
			ready.Add(1)
			begun = true
		}
		b := room[:left+n]
		received.Add(int64(bytes.Count(b, []byte(fanOutMark))))
		if i := bytes.LastIndex(b, []byte(fanOutMark)); i >= 0 {
			b = b[i+len(fanOutMark):]
		}
		left = copy(room, b[max(0, len(b)-len(fanOutMark)+1):])
		if err != nil {
			return
		}
	}
}
