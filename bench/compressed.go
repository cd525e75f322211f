package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// compressed compares subscriptions with and without gzip: the bytes that the server sends and the
// CPU time that it takes to send them, for batches of 20 JSON events of 1 KiB. The runs alternate,
// so that other load on the machine affects both alike.
func compressed(t *target) ([]figure, error) {
	const rounds = 3
	var bytes, cpu [2]float64
	for range rounds {
		for i, encoding := range []string{"identity", "gzip"} {
			sent, computed, err := fanOutBatches(t, encoding)
			if err != nil {
				return nil, err
			}
			bytes[i] += sent
			cpu[i] += computed.Seconds()
		}
	}
	return []figure{
		{"gzip: 200 subscribers, batches of 20 events of 1 KiB: bytes", bytes[0] / bytes[1], "times fewer"},
		{"  server CPU compared with uncompressed", cpu[1] / cpu[0], "times"},
	}, nil
}

// fanOutBatches publishes batches to a stream with 200 subscribers. It returns the bytes that all
// subscribers got together, and the CPU time of the server.
func fanOutBatches(t *target, encoding string) (float64, time.Duration, error) {
	const subscribers, batches = 200, 300
	var received atomic.Int64
	var readers sync.WaitGroup
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
		readers.Wait()
	}()
	for range subscribers {
		c, err := net.Dial("tcp", t.addr)
		if err != nil {
			return 0, 0, err
		}
		conns = append(conns, c)
		if _, err := c.Write(request("GET", "/v1/streams/"+t.streams[2], t.key, nil, "Accept: text/event-stream", "Accept-Encoding: "+encoding)); err != nil {
			return 0, 0, err
		}
		answer := make([]byte, 64<<10)
		if _, err := c.Read(answer); err != nil {
			return 0, 0, err
		}
		readers.Go(func() {
			for {
				n, err := c.Read(answer)
				received.Add(int64(n))
				if err != nil {
					return
				}
			}
		})
	}
	publisher, err := dial(t.addr)
	if err != nil {
		return 0, 0, err
	}
	defer publisher.conn.Close()
	before, start := t.cpu(), time.Now()
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range batches {
		time.Sleep(time.Until(start.Add(time.Duration(i) * 10 * time.Millisecond)))
		if err := publisher.do(request("POST", t.publishPath(2), t.key, orders(rng, 20, 1<<10))); err != nil {
			return 0, 0, err
		}
	}
	for last := int64(-1); last != received.Load(); time.Sleep(300 * time.Millisecond) {
		last = received.Load()
	}
	return float64(received.Load()), t.cpu() - before, nil
}

// orders returns the body of a publish with n JSON events of about this many bytes.
func orders(rng *rand.Rand, n, size int) []byte {
	items := []string{"green tea", "rye bread", "whole milk", "sea salt", "olive oil", "brown rice"}
	var b bytes.Buffer
	b.WriteString(`{"events":[`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		start := b.Len()
		fmt.Fprintf(&b, `{"order_id":"%08x","customer":"customer-%d","placed_at":"2026-11-15T08:%02d:%02d.%03dZ","currency":"EUR","lines":[`,
			rng.Uint32(), rng.IntN(5000), rng.IntN(60), rng.IntN(60), rng.IntN(1000))
		for b.Len()-start < size-90 {
			fmt.Fprintf(&b, `{"sku":"SKU-%05d","title":"%s","quantity":%d,"unit_price":%d.%02d},`, rng.IntN(100_000), items[rng.IntN(len(items))], 1+rng.IntN(9), rng.IntN(90), rng.IntN(100))
		}
		fmt.Fprintf(&b, `{"sku":"shipping","quantity":1,"unit_price":4.95}]}`)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}
