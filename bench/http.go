package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// publishLoad is a number of connections, each of which publishes, waits for the response, and
// repeats.
type publishLoad struct {
	Connections int `json:"connections"`
	Size        int `json:"size"`
	Streams     int `json:"streams"`
}

var publishLoads = []publishLoad{{64, 1 << 10, 1}, {64, 1 << 10, 10_000}, {64, 64 << 10, 1}, {16, 1 << 20, 1}, {1, 1 << 10, 1}}

func (l publishLoad) String() string {
	return workload{l.Connections, l.Size, l.Streams}.String()
}

// body returns a JSON batch of about the given size in bytes.
func body(size int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"events":["`)
	for b.Len() < size-3 {
		b.WriteByte("abcdefghijklmnopqrstuvwxyz0123456789"[b.Len()%36])
	}
	b.WriteString(`"]}`)
	return b.Bytes()
}

// client is an HTTP/1.1 connection that costs the load generator as little CPU as possible: it
// sends requests that were built in advance, and parses only the status and the length of a
// response.
type client struct {
	conn net.Conn
	r    *bufio.Reader
}

func dial(addr string) (*client, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &client{c, bufio.NewReaderSize(c, 4<<10)}, nil
}

// request builds the bytes of a request.
func request(method, path, key string, body []byte, headers ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n", method, path, key)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	if body != nil {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

var errAnswer = errors.New("unexpected response")

// do sends a request and reads the response. Any status other than 2xx is an error.
func (c *client) do(request []byte) error {
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	status, length, chunked := "", 0, false
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if status == "" {
			status = string(line[9:12])
			continue
		}
		if len(line) <= 2 {
			break
		}
		if name, v, ok := bytes.Cut(line, []byte(":")); ok && len(name) == 14 && bytes.EqualFold(name, []byte("content-length")) {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
		} else if ok && len(name) == 17 && bytes.EqualFold(name, []byte("transfer-encoding")) {
			chunked = true
		}
	}
	if status[0] != '2' {
		b, _ := io.ReadAll(io.LimitReader(c.r, int64(length)))
		return fmt.Errorf("%w: %s %s", errAnswer, status, b)
	}
	if chunked {
		return c.skipChunks()
	}
	_, err := c.r.Discard(length)
	return err
}

// skipChunks reads a chunked body without trailers.
func (c *client) skipChunks() error {
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 31)
		if err != nil {
			return err
		}
		if _, err := c.r.Discard(int(size) + len("\r\n")); err != nil || size == 0 {
			return err
		}
	}
}

// publishing measures a server under the given load.
func publishing(s *target, l publishLoad, span time.Duration) (row, error) {
	payload := body(l.Size)
	var talkers []*talker
	defer func() { closeAll(talkers) }()
	for i := range l.Connections {
		var requests [][]byte
		for k := i; k < l.Streams; k += l.Connections { // if there are enough streams, connections do not share them
			requests = append(requests, request("POST", s.publishPath(k), s.key, payload))
		}
		if len(requests) == 0 {
			requests = append(requests, request("POST", s.publishPath(i%l.Streams), s.key, payload))
		}
		n := 0
		t, err := connect(s.addr, func() []byte { n++; return requests[n%len(requests)] }, responseLength)
		if err != nil {
			return row{}, err
		}
		talkers = append(talkers, t)
	}
	r, err := talk(talkers, l.Size, span, s.cpu)
	r.Workload, r.Contender = workload{l.Connections, l.Size, l.Streams}, s.name
	return r, err
}

// proofs are the header fields with which a publisher proves its order and its identity (D38).
var proofs = []string{"X-Svc-Contiguous: true", "X-Svc-Publisher: 0123456789abcdef"}

// numbering measures publishes under sequence numbers, which all connections take from one counter.
// A publish that is refused with 412 is sent again, and counts as one request.
func numbering(s *target, l publishLoad, span time.Duration, fields []string) (row, error) {
	if err := s.createStreamsOf(1, 128<<20); err != nil {
		return row{}, err
	}
	path, payload := "/v1/streams/"+s.streams[len(s.streams)-1]+"/", body(l.Size)
	var next atomic.Int64
	publishers := make([]func() error, l.Connections)
	for i := range publishers {
		c, err := dial(s.addr)
		if err != nil {
			return row{}, err
		}
		defer c.conn.Close()
		publishers[i] = func() error {
			r := request("POST", path+strconv.FormatInt(next.Add(1), 10), s.key, payload, fields...)
			for {
				if err := c.do(r); !errors.Is(err, errAnswer) || !strings.Contains(err.Error(), "sequence_not_next") {
					return err
				}
			}
		}
	}
	r, err := work(publishers, l.Size, span, s.cpu)
	r.Workload, r.Contender = workload{l.Connections, l.Size, l.Streams}, "numbered"
	if fields != nil {
		r.Contender = "numbered, with proofs"
	}
	return r, err
}

// proving compares publishes under sequence numbers without and with the header fields of D38.
func proving(weir *target, rounds int, span time.Duration) ([]row, error) {
	var rows []row
	for _, l := range []publishLoad{{64, 100, 1}, {64, 16 << 10, 1}, {1, 100, 1}} {
		two, err := duel(l, rounds, func(i int) (row, error) { return numbering(weir, l, span, [][]string{nil, proofs}[i]) })
		if err != nil {
			return rows, err
		}
		rows = append(rows, two...)
	}
	return rows, nil
}

// duel measures two contenders; see takeTurns.
func duel(l publishLoad, rounds int, measure func(contender int) (row, error)) (rows []row, err error) {
	return takeTurns(l, 2, rounds, measure)
}

// takeTurns measures n contenders in turn in every round. It prints and returns the medians of each.
// The ratio of a contender is its rate divided by the rate of the first contender in the same round.
func takeTurns(l publishLoad, n, rounds int, measure func(contender int) (row, error)) (rows []row, err error) {
	got := make([][]row, n)
	for n := range rounds {
		for i := range got {
			r, err := measure(i)
			if err != nil {
				return nil, fmt.Errorf("%v: %s: %w", l, r.Contender, err)
			}
			r.Ratio = 1
			if i > 0 {
				r.Ratio = r.Rate / got[0][n].Rate
			}
			got[i] = append(got[i], r)
		}
	}
	for i := range got {
		r := median(got[i])
		fmt.Printf("%-28s %-22s %7.2f %10.0f %8.1f %8.3f %8.3f %8.2f\n", l, r.Contender, r.Ratio, r.Rate, r.MBps, r.P50, r.P99, r.CPU)
		rows = append(rows, r)
	}
	return rows, nil
}

// overHTTP runs the publish loads alternately against a server that does nothing and against Weir.
// It compares the many small publishes once more with a core for the server and another for the load
// generator, and then publishes to Weir without and with proofs of order and identity.
func overHTTP(dir string, rounds int, span time.Duration) ([]row, error) {
	rows, err := apart(func() ([]row, error) {
		return besideNothing(filepath.Join(dir, "apart"), "publish, a core each", publishLoads[:2], false, rounds, span)
	})
	if err != nil {
		return rows, err
	}
	more, err := besideNothing(filepath.Join(dir, "together"), "publish over HTTP/1.1", publishLoads, true, rounds, span)
	return append(rows, more...), err
}

// besideNothing compares a server that does nothing and Weir. If proofs is true, it then measures
// what proofs of order and identity cost.
func besideNothing(dir, title string, loads []publishLoad, proofs bool, rounds int, span time.Duration) ([]row, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	two, stop, err := startTwo(dir, 10_000)
	defer stop()
	if err != nil {
		return nil, err
	}
	var rows []row
	fmt.Printf("\n%-28s %-22s %7s %10s %8s %8s %8s %8s\n", title, "", "ratio", "req/s", "MB/s", "p50 ms", "p99 ms", "CPU us")
	for _, l := range loads {
		got, err := duel(l, rounds, func(i int) (row, error) { return publishing(two[i], l, span) })
		if err != nil {
			return rows, err
		}
		rows = append(rows, got...)
	}
	if !proofs {
		return rows, nil
	}
	more, err := proving(two[1], rounds, span)
	return append(rows, more...), err
}

// median returns the median of each column.
func median(rows []row) row {
	pick := func(f func(row) float64) float64 {
		v := make([]float64, 0, len(rows))
		for _, r := range rows {
			v = append(v, f(r))
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	m := rows[0]
	m.Ratio, m.Rate = pick(func(r row) float64 { return r.Ratio }), pick(func(r row) float64 { return r.Rate })
	m.MBps, m.CPU = pick(func(r row) float64 { return r.MBps }), pick(func(r row) float64 { return r.CPU })
	m.P50, m.P99 = pick(func(r row) float64 { return r.P50 }), pick(func(r row) float64 { return r.P99 })
	return m
}
