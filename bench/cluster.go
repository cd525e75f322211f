package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"weir/internal/engine/jetstream/streams"
)

const (
	clusterNodes  = 3
	clusterRounds = 2 * clusterNodes
	clusterSpan   = 2 * time.Second
	clusterShards = streams.DefaultShards
	plainEnv      = "WEIR_BENCH_NATS"

	// The cluster has two sets of streams, with clusterStreams streams in each set. The streams of
	// the first set are large enough to keep everything published in the run, as the plain
	// JetStream streams do. Those of the second set are small and evict old batches during the run.
	clusterStreams = 64
	plainKeeps     = 1 << 30 // size limit in bytes of a stream that keeps everything
	// evictWarmUp is how long the function evicting publishes before it measures. Evicted batches
	// are purged with a delay, and the measurement must include purges.
	evictWarmUp = time.Minute
)

// clusterLoads are the three loads: 64 publishers to separate streams, 64 publishers to one shared
// stream, and a single publisher. Each publisher waits for an acknowledgement before it sends the
// next batch.
var clusterLoads = []publishLoad{{64, 1 << 10, 64}, {64, 1 << 10, 1}, {1, 1 << 10, 1}}

// cluster compares three nodes on this machine with a single node, which uses the journal engine,
// and with plain JetStream that stores the same bytes: synced, three replicas, and as many streams
// as Weir has shards. The nodes of Weir encrypt what they send each other; plain JetStream is
// measured without encryption, which is its default, and with it. cluster also measures the time from
// a publish on one node until a subscriber on another node has the batch, and how long publishers get
// no acknowledgement when a node is killed.
func cluster(dir string) ([]figure, error) {
	dir, err := emptyDir(dir, "cluster")
	if err != nil {
		return nil, err
	}
	one, err := startWeir(dir)
	if err != nil {
		return nil, err
	}
	defer one.stop()
	if err := one.createStreams(clusterStreams); err != nil {
		return nil, err
	}
	nodes, err := startNodes(dir)
	for _, n := range nodes {
		defer n.stop()
	}
	if err != nil {
		return nil, err
	}
	plain, err := startPlain(dir, false)
	defer plain.stop()
	if err != nil {
		return nil, err
	}
	encrypted, err := startPlain(filepath.Join(dir, "encrypted"), true)
	defer encrypted.stop()
	if err != nil {
		return nil, err
	}
	var figures []figure
	add := func(name string, v float64, unit string) { figures = append(figures, figure{name, v, unit}) }
	for _, l := range clusterLoads {
		if err := compare(l, one, nodes, plain, encrypted, add); err != nil {
			return nil, fmt.Errorf("%v: %w", l, err)
		}
	}
	if err := evicting(nodes, add); err != nil {
		return nil, err
	}
	took, err := across(nodes[0], nodes[1])
	if err != nil {
		return nil, err
	}
	add("publish on one node to a subscriber on another, p50", ms(took[len(took)/2]), "ms")
	add("publish on one node to a subscriber on another, p99", ms(took[len(took)*99/100]), "ms")
	err = failover(nodes, add)
	return figures, err
}

// compare runs a load on all four systems one after the other. JetStream chooses the leader of
// each stream at random, and a publisher that is connected to the leader saves a network hop. To
// average this advantage out, a single publisher moves to the next node and stream every round, and
// compare uses the mean rate of all rounds.
func compare(l publishLoad, one *target, nodes []*target, plain, encrypted *plainCluster, add func(string, float64, string)) error {
	var got [4][]row
	rounds := clusterRounds
	if l.Connections == 1 {
		rounds = clusterNodes * clusterShards // combines every node with every shard
	}
	for n := range 1 + rounds { // the first round opens streams and does not count
		round := n
		if l.Connections > 1 {
			round = 0
		}
		for i, measure := range []func() (row, error){
			func() (row, error) { return publishing(one, l, clusterSpan) },
			func() (row, error) { return publishingTo(nodes, l, clusterSpan, round) },
			func() (row, error) { return plain.publishing(l, clusterSpan, round) },
			func() (row, error) { return encrypted.publishing(l, clusterSpan, round) },
		} {
			syscall.Sync() // otherwise the disk still writes data of the previous system while this one is measured
			r, err := measure()
			if err != nil {
				return err
			}
			if n > 0 {
				got[i] = append(got[i], r)
			}
		}
	}
	var rate [4]float64
	for i, name := range []string{"one node, journal", "three nodes", "plain JetStream", "plain JetStream, encrypted"} {
		r := median(got[i])
		rate[i] = mean(got[i])
		add(fmt.Sprintf("%v: %s", l, name), rate[i], "publishes/s")
		add(fmt.Sprintf("%v: %s, p99", l, name), r.P99, "ms")
		add(fmt.Sprintf("%v: %s, CPU", l, name), r.CPU, "us per operation")
	}
	add(fmt.Sprintf("%v: three nodes / plain JetStream", l), rate[1]/rate[2], "ratio of rates")
	add(fmt.Sprintf("%v: three nodes / the same, encrypted", l), rate[1]/rate[3], "ratio of rates")
	return nil
}

// mean returns the mean rate of the rounds.
func mean(rows []row) (rate float64) {
	for _, r := range rows {
		rate += r.Rate / float64(len(rows))
	}
	return rate
}

// evicting repeats the first load on full streams, which evict as much as they store.
func evicting(nodes []*target, add func(string, float64, string)) error {
	l := clusterLoads[0]
	small := make([]*target, len(nodes))
	for i, n := range nodes {
		own := *n
		own.streams = n.streams[clusterStreams:]
		small[i] = &own
	}
	if _, err := publishingTo(small, l, evictWarmUp, 0); err != nil {
		return err
	}
	r, err := publishingTo(small, l, clusterRounds*clusterSpan, 0)
	add(fmt.Sprintf("%v: three nodes, evicting", l), r.Rate, "publishes/s")
	add(fmt.Sprintf("%v: three nodes, evicting, CPU", l), r.CPU, "us per operation")
	return err
}

// freeAddress returns a local address with an unused port.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// startNodes starts a cluster of Weir nodes. On an error it still returns the nodes that are
// running, so that the caller can stop them.
func startNodes(dir string) ([]*target, error) {
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("bench secret ", 4)), 0o600); err != nil {
		return nil, err
	}
	var routes []string
	for range clusterNodes {
		at, err := freeAddress()
		if err != nil {
			return nil, err
		}
		routes = append(routes, at)
	}
	nodes, faults := make([]*target, clusterNodes), make([]error, clusterNodes)
	var all sync.WaitGroup
	for i := range nodes {
		sub, err := emptyDir(dir, fmt.Sprint("node", i))
		if err != nil {
			return nil, err
		}
		all.Go(func() {
			nodes[i], faults[i] = startWeir(sub, "--engine", "nats", "--cluster-listen", routes[i], "--cluster-peers", strings.Join(routes, ","), "--cluster-secret", secret)
		})
	}
	all.Wait()
	for i, err := range faults {
		if err != nil {
			return slices.DeleteFunc(nodes, func(t *target) bool { return t == nil }), fmt.Errorf("node %d: %w", i, err)
		}
	}
	if err := errors.Join(nodes[0].createStreamsOf(clusterStreams, plainKeeps), nodes[0].createStreams(clusterStreams)); err != nil {
		return nodes, err
	}
	for _, n := range nodes {
		n.streams = nodes[0].streams
	}
	return nodes, nil
}

// publishingTo spreads a load over the nodes and returns the sum of their rates. The parameter from
// is the index of the first node to use. If the load has only one stream, from is also the index of
// that stream.
func publishingTo(nodes []*target, l publishLoad, span time.Duration, from int) (row, error) {
	rows, faults := make([]row, len(nodes)), make([]error, len(nodes))
	before := cpuOf(nodes)
	var all sync.WaitGroup
	for i := range nodes {
		n, part := nodes[(from+i)%len(nodes)], l
		if part.Connections = l.Connections / len(nodes); i < l.Connections%len(nodes) {
			part.Connections++
		}
		own := *n
		if own.streams = n.streams[from:]; l.Streams > 1 { // publishers on different nodes do not share streams
			own.streams = n.streams[i*l.Streams/len(nodes) : (i+1)*l.Streams/len(nodes)]
			part.Streams = len(own.streams)
		}
		if part.Connections > 0 {
			all.Go(func() { rows[i], faults[i] = publishing(&own, part, span) })
		}
	}
	all.Wait()
	computed := cpuOf(nodes) - before
	sum := row{}
	for i, r := range rows {
		if faults[i] != nil {
			return sum, faults[i]
		}
		sum.Rate += r.Rate
		sum.P99 = max(sum.P99, r.P99)
	}
	sum.CPU = float64(computed.Microseconds()) / (sum.Rate * span.Seconds())
	return sum, nil
}

// cpuOf returns the CPU time of all processes together.
func cpuOf(all []*target) (sum time.Duration) {
	for _, t := range all {
		sum += t.cpu()
	}
	return sum
}

// across publishes 500 batches on node a and measures how long each takes to reach a subscriber on
// node b. It returns these times in ascending order.
func across(a, b *target) ([]time.Duration, error) {
	req, err := http.NewRequest("GET", "http://"+b.addr+"/v1/streams/"+b.streams[1], nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+b.key)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	arrived := make(chan time.Time, 1024)
	go func() {
		defer close(arrived)
		buffer := make([]byte, 64<<10)
		for {
			n, err := resp.Body.Read(buffer)
			if strings.Contains(string(buffer[:n]), "event: batch") {
				arrived <- time.Now()
			}
			if err != nil {
				return
			}
		}
	}()
	c, err := dial(a.addr)
	if err != nil {
		return nil, err
	}
	defer c.conn.Close()
	publish := request("POST", a.publishPath(1), a.key, body(1<<10))
	var took []time.Duration
	for range 500 {
		start := time.Now()
		if err := c.do(publish); err != nil {
			return nil, err
		}
		select {
		case at, ok := <-arrived:
			if !ok {
				return nil, errors.New("the subscription ended early")
			}
			took = append(took, at.Sub(start))
		case <-time.After(10 * time.Second):
			return nil, errors.New("a batch did not arrive within 10 s")
		}
	}
	slices.Sort(took)
	return took, nil
}

// failover kills a node. It measures the longest time for which publishers on the other nodes got
// no acknowledgement.
func failover(nodes []*target, add func(string, float64, string)) error {
	stop := make(chan struct{})
	var worst [64]atomic.Int64
	var all sync.WaitGroup
	for i := range worst {
		all.Go(func() {
			n := nodes[1+i%2]
			c, err := dial(n.addr)
			if err != nil {
				return
			}
			defer c.conn.Close()
			publish := request("POST", n.publishPath(i), n.key, body(1<<10))
			for last := time.Now(); ; {
				select {
				case <-stop:
					worst[i].Store(max(worst[i].Load(), int64(time.Since(last))))
					return
				default:
				}
				if c.do(publish) == nil {
					worst[i].Store(max(worst[i].Load(), int64(time.Since(last))))
					last = time.Now()
				}
			}
		})
	}
	time.Sleep(2 * time.Second)
	for i := range worst {
		worst[i].Store(0)
	}
	nodes[0].process.Process.Signal(syscall.SIGKILL)
	time.Sleep(20 * time.Second)
	close(stop)
	all.Wait()
	var longest time.Duration
	affected := 0
	for i := range worst {
		d := time.Duration(worst[i].Load())
		if longest = max(longest, d); d > time.Second {
			affected++
		}
	}
	add("kill -9 of a node: longest time without an ack", longest.Seconds(), "s")
	add("kill -9 of a node: streams stalled for over 1 s", float64(affected), "of 64")
	return nil
}
