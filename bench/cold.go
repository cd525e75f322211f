package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	coldStreams = 10_000
	coldBatches = 10
	coldRate    = 1000 // first touches per second
	coldClients = 256
)

// cold measures the first touch of streams that a node of a cluster has not opened yet: reads on the
// second node, and publishes on the third. The touches begin at a fixed rate, whether or not
// earlier ones have ended, and each is timed from the moment at which it was due.
func cold(dir string) ([]figure, error) {
	dir, err := emptyDir(dir, "cold")
	if err != nil {
		return nil, err
	}
	nodes, err := startNodes(dir)
	for _, n := range nodes {
		defer n.stop()
	}
	if err != nil {
		return nil, err
	}
	id := func(i int) string { return fmt.Sprintf("cold%018d", i) }
	writer := nodes[0]
	if _, err := writer.each(coldStreams, func(i int) []byte {
		return request("POST", "/v1/streams", writer.key, fmt.Appendf(nil, `{"name":"cold","id":%q}`, id(i)))
	}); err != nil {
		return nil, err
	}
	payload := body(100)
	publish := func(t *target, i int) []byte {
		return request("POST", "/v1/streams/"+id(i)+"/publish", t.key, payload)
	}
	if _, err := writer.each(coldStreams*coldBatches, func(i int) []byte { return publish(writer, i%coldStreams) }); err != nil {
		return nil, err
	}
	var figures []figure
	for _, c := range []struct {
		name  string
		node  *target
		touch func(t *target, i int) []byte
	}{
		{"read", nodes[1], func(t *target, i int) []byte { return request("GET", "/v1/streams/"+id(i)+"/batches/5", t.key, nil) }},
		{"publish", nodes[2], publish},
	} {
		before := cpuOf(nodes)
		took, span, err := c.node.paced(coldStreams, coldRate, func(i int) []byte { return c.touch(c.node, i) })
		if err != nil {
			return figures, fmt.Errorf("first %s: %w", c.name, err)
		}
		cpu := cpuOf(nodes) - before
		figures = append(figures,
			figure{fmt.Sprintf("%d cold streams of %d batches on three nodes, %d a second: first %s", coldStreams, coldBatches, coldRate, c.name), coldStreams / span.Seconds(), "streams/s"},
			figure{"  p50", ms(took[len(took)/2]), "ms"},
			figure{"  p99", ms(took[len(took)*99/100]), "ms"},
			figure{"  CPU of all nodes", ms(cpu) / coldStreams, "ms per stream"})
	}
	return figures, nil
}

// paced sends n requests that begin at the given rate per second. It returns, in ascending order, the
// times from the moment at which each request was due until its response, and how long all of them
// took.
func (t *target) paced(n, rate int, request func(i int) []byte) ([]time.Duration, time.Duration, error) {
	took := make([]time.Duration, n)
	var next atomic.Int64
	var fault atomic.Pointer[error]
	var all sync.WaitGroup
	begin := time.Now()
	for range coldClients {
		c, err := dial(t.addr)
		if err != nil {
			return nil, 0, err
		}
		all.Go(func() {
			defer c.conn.Close()
			for i := int(next.Add(1)) - 1; i < n && fault.Load() == nil; i = int(next.Add(1)) - 1 {
				due := begin.Add(time.Duration(i) * time.Second / time.Duration(rate))
				time.Sleep(time.Until(due))
				if err := c.do(request(i)); err != nil {
					fault.Store(&err)
				}
				took[i] = time.Since(due)
			}
		})
	}
	all.Wait()
	span := time.Since(begin)
	if err := fault.Load(); err != nil {
		return nil, 0, *err
	}
	slices.Sort(took)
	return took, span, nil
}
