package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// peerLoads are the loads of the comparison with other servers.
var peerLoads = []publishLoad{{64, 1 << 10, 1}, {1, 1 << 10, 1}}

// peerKeeps is the number of batches that a stream keeps, on servers that can evict old data. On
// each of these servers the stream is filled before the first round, so that every round includes
// the cost of eviction. On servers that limit bytes instead of batches, the limit is 1 KiB per
// batch. This makes 128 MiB, as much as Weir's stream keeps (see createStreamsOf).
const peerKeeps = 128 << 10

// peer is a server of the comparison: Weir or one of the servers that Weir is compared with.
type peer struct {
	*target
	means string // what an acknowledgement promises, for example that the batch is synced
	fill  int    // batches to publish before the first round
	open  opener // connects in the server's own protocol; nil if the server uses HTTP
}

// opener connects to a server and returns a connection that publishes the payload.
type opener func(addr string, payload []byte) (*talker, error)

// peers measures publishes to Weir, to a server that stores nothing, and to the other servers that
// are installed on this machine. It measures many publishers twice: with a core for the server and
// another for the load generator, and with all cores for both.
func peers(dir, npm string, rounds int, span time.Duration) ([]row, error) {
	rows, err := apart(func() ([]row, error) { return comparePeers(dir, npm, ", a core each", peerLoads[:1], rounds, span) })
	if err != nil {
		return rows, err
	}
	more, err := comparePeers(dir, npm, "", peerLoads, rounds, span)
	return append(rows, more...), err
}

// comparePeers measures one server after the other in each round. It skips servers that are not
// installed or do not start.
func comparePeers(dir, npm, cores string, loads []publishLoad, rounds int, span time.Duration) ([]row, error) {
	dir, err := emptyDir(dir, "peers")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	fmt.Println()
	var all []*peer
	defer func() {
		for _, p := range all {
			p.stop()
		}
	}()
	hello, err := startHello()
	if err != nil {
		return nil, err
	}
	hello.name = "net/http"
	all = append(all, &peer{target: hello, means: "nothing is stored"})
	weir, err := startWeir(dir)
	if err != nil {
		return nil, err
	}
	weir.name = "Weir"
	all = append(all, &peer{target: weir, means: "synced, grouped"})
	if err := weir.createStreams(1); err != nil {
		return nil, err
	}
	if err := weir.warmUp(512 << 20); err != nil {
		return nil, err
	}
	for _, s := range peerServers(npm) {
		p, err := s.start(dir)
		if err != nil {
			fmt.Printf("%s: skipped: %v\n", s.name, err)
			continue
		}
		all = append(all, p)
	}
	for _, p := range all {
		for stored := 0.0; stored < float64(p.fill); {
			r, err := p.measure(peerLoads[0], time.Second)
			if err != nil {
				return nil, fmt.Errorf("%s: fill the stream: %w", p.name, err)
			}
			stored += r.Rate
		}
	}
	var rows []row
	for _, l := range loads {
		more, err := inTurns(all, l, cores, rounds, span)
		if err != nil {
			return rows, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// inTurns measures the servers under one load, one after the other in each round. It prints and
// returns the medians.
func inTurns(all []*peer, l publishLoad, cores string, rounds int, span time.Duration) ([]row, error) {
	got := make([][]row, len(all))
	for n := range 1 + rounds { // the first round warms up the server and does not count
		for i, p := range all {
			syscall.Sync() // otherwise the disk still writes data of the previous server while this one is measured
			r, err := p.measure(l, span)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
			if n == 0 {
				continue
			}
			r.Ratio = 1
			if i > 0 {
				r.Ratio = r.Rate / got[0][len(got[0])-1].Rate
			}
			got[i] = append(got[i], r)
		}
	}
	const format = "%-46s %-31s %6s %9s %9s %8s %8s\n"
	fmt.Printf("\n"+format, l.String()+cores, "acknowledged", "ratio", "acks/s", "CPU us", "p50 ms", "p99 ms")
	var rows []row
	for i, p := range all {
		r := median(got[i])
		r.Means = p.means
		fmt.Printf(format, r.Contender, r.Means, fmt.Sprintf("%.2f", r.Ratio), fmt.Sprintf("%.0f", r.Rate),
			fmt.Sprintf("%.1f", r.CPU), fmt.Sprintf("%.3f", r.P50), fmt.Sprintf("%.2f", r.P99))
		rows = append(rows, r)
	}
	return rows, nil
}

// measure publishes to the server for the given time.
func (p *peer) measure(l publishLoad, span time.Duration) (row, error) {
	if p.open == nil {
		return publishing(p.target, l, span)
	}
	payload := body(l.Size)
	var talkers []*talker
	defer func() { closeAll(talkers) }()
	for range l.Connections {
		t, err := p.open(p.addr, payload)
		if err != nil {
			return row{}, err
		}
		talkers = append(talkers, t)
	}
	r, err := talk(talkers, l.Size, span, p.cpu)
	r.Workload, r.Contender = workload{l.Connections, l.Size, l.Streams}, p.name
	return r, err
}

// openRedis connects to Redis. Each request also trims the stream. As Redis recommends, the trimming
// is approximate: it removes only whole nodes of the tree in which Redis keeps the stream.
func openRedis(addr string, payload []byte) (*talker, error) {
	var command bytes.Buffer
	words := []string{"XADD", "bench", "MAXLEN", "~", fmt.Sprint(peerKeeps), "*", "batch", string(payload)}
	fmt.Fprintf(&command, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&command, "$%d\r\n%s\r\n", len(w), w)
	}
	return connect(addr, command.Bytes, func(b []byte) (int, error) {
		line, _, ok := bytes.Cut(b, []byte("\r\n"))
		if !ok {
			return 0, nil
		}
		if line[0] != '$' { // the id of the entry is a bulk string
			return 0, fmt.Errorf("%w: %s", errAnswer, line)
		}
		length, err := strconv.Atoi(string(line[1:]))
		if length += len(line) + 2*len("\r\n"); length > len(b) {
			return 0, err
		}
		return length, err
	})
}

// openNATS connects to NATS and publishes to a JetStream stream. It does not use the client library
// of the NATS project, which needs more CPU: the load generator and the server share the cores of
// this machine, so the server would get less.
func openNATS(addr string, payload []byte) (*talker, error) {
	return connectNATS(addr, natsStream, payload)
}

func connectNATS(addr, subject string, payload []byte) (*talker, error) {
	inbox := "_INBOX." + strconv.FormatInt(inboxes.Add(1), 10)
	publish := fmt.Appendf(nil, "PUB %s %s %d\r\n%s\r\n", subject, inbox, len(payload), payload)
	first := fmt.Appendf(nil, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB %s 1\r\n%s", inbox, publish)
	return connect(addr, func() []byte {
		message := first
		first = publish
		return message
	}, acknowledgement)
}

var inboxes atomic.Int64

// acknowledgement returns the length of all that a NATS server has sent up to the end of the next
// message, or 0 if the message is not complete. The server's pings need no answer: it waits for
// minutes before it closes the connection.
func acknowledgement(b []byte) (int, error) {
	for read := 0; ; {
		line, rest, ok := bytes.Cut(b[read:], []byte("\r\n"))
		if !ok {
			return 0, nil
		}
		read = len(b) - len(rest)
		switch {
		case bytes.HasPrefix(line, []byte("INFO ")), bytes.Equal(line, []byte("PING")):
		case bytes.HasPrefix(line, []byte("MSG ")):
			length, err := strconv.Atoi(string(line[bytes.LastIndexByte(line, ' ')+1:]))
			if err != nil || len(rest) < length+len("\r\n") {
				return 0, err
			}
			if bytes.Contains(rest[:length], []byte(`"error"`)) {
				return 0, fmt.Errorf("%w: %s", errAnswer, rest[:length])
			}
			return read + length + len("\r\n"), nil
		default:
			return 0, fmt.Errorf("%w: %s", errAnswer, line)
		}
	}
}
