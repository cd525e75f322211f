package main

import (
	"fmt"
	"os"
	"time"
)

// millionStreams creates a million streams over HTTP, publishes one batch to each, and restarts the
// server. It measures the resident memory at rest after each step, and the time until the server is
// ready again. It also compares the rate of one publish to each of a million streams with the rate
// of publishes to 1,000 of these streams.
func millionStreams(dir string) (figures []figure, err error) {
	const streams, few = 1_000_000, 1000
	dir, err = emptyDir(dir, "million")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	flags := []string{"--streams-per-project", "2000000"}
	t, err := startWeir(dir, flags...)
	if err != nil {
		return nil, err
	}
	defer func() { t.stop() }()
	add := func(name string, value float64, unit string) { figures = append(figures, figure{name, value, unit}) }
	id := func(i int) string { return fmt.Sprintf("bench%017d", i) }
	rate, err := t.each(streams, func(i int) []byte {
		return request("POST", "/v1/streams", t.key, fmt.Appendf(nil, `{"name":"bench %d","id":%q,"max_bytes":1048576}`, i, id(i)))
	})
	if err != nil {
		return figures, err
	}
	add("creating a million streams", rate, "streams/s")
	add("  memory at rest", t.atRest()/1e6, "MB")
	publish := func(i int) []byte { return request("POST", "/v1/streams/"+id(i)+"/publish", t.key, body(100)) }
	before, err := t.each(100*few, func(i int) []byte { return publish(i % few) })
	if err != nil {
		return figures, err
	}
	rate, err = t.each(streams, publish)
	if err != nil {
		return figures, err
	}
	after, err := t.each(100*few, func(i int) []byte { return publish(i % few) })
	if err != nil {
		return figures, err
	}
	add("one publish to each of a million streams", rate, "publishes/s")
	add("  ratio to the rate with 1,000 of them", 2*rate/(before+after), "")
	add("  memory at rest", t.atRest()/1e6, "MB")
	t.stop()
	if t, err = startWeir(dir, flags...); err != nil {
		return figures, err
	}
	add("start with a million streams of one batch or more", t.ready.Seconds(), "s")
	add("  memory at rest", t.atRest()/1e6, "MB")
	return figures, nil
}

// each sends n requests over 64 connections and returns their rate.
func (t *target) each(n int, request func(i int) []byte) (float64, error) {
	clients := make(chan *client, 64)
	for range cap(clients) {
		c, err := dial(t.addr)
		if err != nil {
			return 0, err
		}
		defer c.conn.Close()
		clients <- c
	}
	begin := time.Now()
	err := inTurn(cap(clients), n, func(i int) error {
		c := <-clients
		defer func() { clients <- c }()
		return c.do(request(i))
	})
	return float64(n) / time.Since(begin).Seconds(), err
}

// atRest waits until the server has returned the memory that it does not need, and returns its
// resident memory in bytes. The server checks every 30 seconds whether it is at rest.
func (t *target) atRest() float64 {
	least := t.memory()
	for calm := time.Now(); time.Since(calm) < 100*time.Second; time.Sleep(time.Second) {
		if now := t.memory(); now < least-least/50 || now > least+least/50 {
			least, calm = now, time.Now()
		}
	}
	return float64(least)
}
