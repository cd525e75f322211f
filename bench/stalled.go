package main

import (
	"net"
	"time"
)

// stalledSubscribers measures the cost of clients that subscribe and then read nothing: the
// server's memory per client, and how much they slow down publishers.
func stalledSubscribers(t *target) ([]figure, error) {
	const (
		n      = 1000
		stream = 3
		span   = 3 * time.Second
	)
	load := publishLoad{Connections: 16, Size: 1 << 10, Streams: 1}
	one := &target{name: t.name, addr: t.addr, key: t.key, process: t.process, streams: t.streams[stream : stream+1]}
	if _, err := publishing(one, load, span); err != nil { // let the heap and the stream reach their steady size
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
	beside, err := publishing(one, load, span) // publishes tens of megabytes, which fill all buffers
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
		{"memory per stalled subscriber (of 1,000)", each, "KiB"},
		{"  publish rate while their buffers fill / rate before", beside.Rate / alone.Rate, ""},
		{"  publish rate once they are stalled / rate before", after.Rate / alone.Rate, ""},
		{"  publish p99 once they are stalled", after.P99, "ms"},
		{"  publish p99 before", alone.P99, "ms"},
	}, nil
}
