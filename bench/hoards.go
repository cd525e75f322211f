package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// large is the index of the stream that attackers fill with large batches.
const large = 0

// hoards are attacks that take a resource that other clients need, such as memory or connections,
// and do not give it back. The attackers' key belongs to the same project as the key of the
// measured clients. See also strangers.
var hoards = []attack{
	{name: "32 bodies of 8 MiB that stall after 4.1 KiB", victims: publishes(64 << 10), begin: func(a *assault) error {
		return a.openSilent(32, declared(a.t, 4200))
	}},
	{name: "64 bodies of 8 MiB that stall after 7 MiB", victims: publishes(64 << 10), begin: func(a *assault) error {
		return a.pour(64, declared(a.t, 7<<20))
	}},
	{name: "64 stalled bodies of 8 MiB, others publish 1 MiB", victims: publishes(1 << 20), begin: func(a *assault) error {
		return a.pour(64, declared(a.t, 7<<20))
	}},
	{name: "1 event in 8 MiB of padding, 16/s, one stalled reader", begin: func(a *assault) error {
		if err := a.openSilent(1, subscription(a.t, large, "head")); err != nil {
			return err
		}
		r := request("POST", a.t.publishPath(large), attackKey, []byte(`{"pad":"`+strings.Repeat("x", 8<<20-100)+`","events":[1]}`))
		return a.loops(8, time.Second/2, func(c net.Conn) error { return ask(c, r) })
	}},
	{name: "120 readers stalled at recent batches of 8 MiB", prepare: oneBatch, victims: reads, begin: func(a *assault) error {
		r := request("POST", a.t.publishPath(large), attackKey, body(8<<20-100))
		for range 20 {
			if err := a.openSilent(6, subscription(a.t, large, "head")); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if err := ask(c, r); err != nil {
				return err
			}
		}
		return nil
	}},
	{name: "120 readers stalled at older batches of 8 MiB", prepare: oneBatch, victims: reads, begin: func(a *assault) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		if err := ask(c, request("POST", a.t.publishPath(large), attackKey, body(8<<20-100))); err != nil {
			return err
		}
		return a.openSilent(120, subscription(a.t, large, "0"))
	}},
	{name: "1,000 readers that catch up at once, cold disk", prepare: oneBatch, victims: reads, begin: func(a *assault) error {
		if err := a.t.cool(); err != nil {
			return err
		}
		return a.openSilent(1000, subscription(a.t, large, "0"))
	}},
	{name: "2,000 subscriptions, which is the limit", victims: subscribes, flags: []string{"--max-subscribers", "2000"}, begin: func(a *assault) error {
		return a.openSilent(2000, subscription(a.t, large, "head"))
	}},
	// With 128 MiB of memory, the server accepts 2,048 connections.
	{name: "idle connections from two addresses, up to the limit", victims: connects, env: []string{"GOMEMLIMIT=128MiB"}, begin: func(a *assault) error {
		for i := range 2500 {
			c, err := a.connectFrom("127.0.0." + strconv.Itoa(2+i%2))
			if err != nil {
				return err
			}
			c.SetDeadline(time.Now().Add(5 * time.Second))
			ask(c, request("GET", "/v1/health", "", nil)) // the server may refuse it
		}
		return nil
	}},
}

// declared returns a publish request that declares a body of 8 MiB but contains only the given
// number of bytes.
func declared(t *target, sent int) string { return declaredBy(t.publishPath(large), attackKey, sent) }

func declaredBy(path, key string, sent int) string {
	return string(request("POST", path, key, nil, "Content-Type: application/json", "Content-Length: "+strconv.Itoa(8<<20))) +
		`{"events":["` + strings.Repeat("x", sent)
}

func subscription(t *target, stream int, cursor string) string {
	return string(request("GET", "/v1/streams/"+t.streams[stream]+"?cursor="+cursor, attackKey, nil, "Accept: text/event-stream"))
}

// pour is like openSilent, for texts that the server may not read to the end. It does not wait
// until the server has read them.
func (a *assault) pour(n int, first string) error {
	for range n {
		c, err := a.connect()
		if err != nil {
			return err
		}
		a.work.Go(func() {
			c.SetWriteDeadline(time.Now().Add(time.Second))
			io.WriteString(c, first)
		})
	}
	time.Sleep(time.Second) // until the server has received as much as it accepts
	return nil
}

// oneBatch publishes a batch of 100 KiB for the clients that read (see reads), and fills the
// attackers' stream.
func oneBatch(t *target) error {
	c, err := dial(t.addr)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	if err := c.do(request("POST", t.publishPath(peaceful), t.key, body(100<<10))); err != nil {
		return err
	}
	return t.warmUp(64 << 20)
}

// reads are clients that read a batch of 100 KiB over and over, over 16 connections.
func reads(t *target, span time.Duration) (row, error) {
	r := request("GET", "/v1/streams/"+t.streams[0]+"/batches/1", t.key, nil)
	readers := make([]func() error, 16)
	for i := range readers {
		c, err := dial(t.addr)
		if err != nil {
			return row{}, err
		}
		defer c.conn.Close()
		readers[i] = func() error { return c.do(r) }
	}
	return work(readers, 100<<10, span, t.cpu)
}

// subscribes are clients that subscribe and leave again.
func subscribes(t *target, span time.Duration) (row, error) {
	return fresh(t, span, request("GET", "/v1/streams/"+t.streams[0], t.key, nil, "Accept: text/event-stream"), "HTTP/1.1 200")
}

// connects are clients that connect, publish and disconnect.
func connects(t *target, span time.Duration) (row, error) {
	return fresh(t, span, request("POST", t.publishPath(0), t.key, body(1<<10)), "HTTP/1.1 202")
}

// fresh runs 8 clients that send the same request again and again, over a new connection each time.
// Every response must begin with the text want.
func fresh(t *target, span time.Duration, r []byte, want string) (row, error) {
	clients := make([]func() error, 8)
	for i := range clients {
		clients[i] = func() error {
			c, err := net.Dial("tcp", t.addr)
			if err != nil {
				return err
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(30 * time.Second))
			if _, err := c.Write(r); err != nil {
				return err
			}
			b := make([]byte, 4<<10)
			n, err := c.Read(b)
			if err != nil {
				return err
			}
			if !bytes.HasPrefix(b[:n], []byte(want)) {
				return fmt.Errorf("%w: %.200s", errAnswer, b[:n])
			}
			return nil
		}
	}
	return work(clients, len(r), span, t.cpu)
}
