package main

import (
	"net"
	"time"
)

// stalledSubscribers measures what clients cost that subscribe and then read nothing: the server's memory for each, and
// how much slower others publish and hear of it.
func stalledSubscribers(t *target) ([]figure, error) {
	const (
		n      = 1000
		stream = 3
		span   = 3 * time.Second
	)
	load := publishLoad{Connections: 16, Size: 1 << 10, Streams: 1}
	one := &target{name: t.name, addr: t.addr, key: t.key, process: t.process, streams: t.streams[stream : stream+1]}
	if _, err := publishing(one, load, span); err != nil { // the heap reaches its size, and the stream too
		return nil, err
	}
	alone, err := publishing(one, load, span)
	if err != nil {
		return nil, err
	}
	before, err := t.live()
	if err != nil {
		return nil, err
	}
	for range n {
		s, err := subscribe(t, stream, "head")
		if err != nil {
			return nil, err
		}
		s.conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		defer s.conn.Close()
	}
	beside, err := publishing(one, load, span) // tens of megabytes: all buffers are full, and stay so
	if err != nil {
		return nil, err
	}
	during, err := t.live()
	if err != nil {
		return nil, err
	}
	each := float64(during-before) / n / 1024
	after, err := publishing(one, load, span)
	if err != nil {
		return nil, err
	}
	return []figure{
		{"memory that a stalled subscriber holds (of 1,000)", each, "KiB"},
		{"  publish rate while they stall / without them", beside.Rate / alone.Rate, ""},
		{"  publish rate when they have stalled / without them", after.Rate / alone.Rate, ""},
		{"  publish p99 when they have stalled", after.P99, "ms"},
		{"  publish p99 without them", alone.P99, "ms"},
	}, nil
}
