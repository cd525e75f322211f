package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"syscall"
	"time"
)

const (
	// manyStreams is the number of streams that durableMany creates.
	manyStreams = 100_000
	// manySample is the number of streams that durableMany reads.
	manySample = 1000
)

// durableMany creates many streams, appends once to each, and reads a sample of them. It returns the
// rate of each step, and the resident memory that the streams take. It measures only Weir: with 64
// connections, the Node.js server answers 404 to appends to some of the streams that it has created.
func durableMany(s *durableServer) (figures []figure, err error) {
	path := func(i int) string { return s.prefix + "many/" + strconv.Itoa(i) }
	content := func(i int) []byte { return fmt.Appendf(nil, "the only append to stream %d", i) }
	add := func(name string, value float64, unit string) {
		figures = append(figures, figure{name, value, unit})
	}
	syscall.Sync()
	memory, before := s.memory(), s.cpu()
	rate, err := s.each(manyStreams, func(i int) []byte { return s.request("PUT", path(i), bytesType, nil) })
	if err != nil {
		return figures, fmt.Errorf("create: %w", err)
	}
	add("ds: create 100,000 streams", rate, "streams/s")
	add("  server CPU", float64(s.cpu()-before)/1e3/float64(manyStreams), "us")
	syscall.Sync()
	before = s.cpu()
	rate, err = s.each(manyStreams, func(i int) []byte { return s.request("POST", path(i), bytesType, content(i)) })
	if err != nil {
		return figures, fmt.Errorf("append: %w", err)
	}
	add("ds: one append to each of 100,000 streams", rate, "appends/s")
	add("  server CPU", float64(s.cpu()-before)/1e3/float64(manyStreams), "us")
	add("  resident memory for each stream", float64(s.memory()-memory)/float64(manyStreams), "B")

	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	defer transport.CloseIdleConnections()
	start := time.Now()
	err = inTurn(64, manySample, func(n int) error {
		i := n * (manyStreams / manySample)
		resp, err := s.get(context.Background(), transport, path(i)+"?offset=-1")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		if err == nil && string(got) != string(content(i)) {
			err = fmt.Errorf("%w: stream %d has %q", errAnswer, i, got)
		}
		return err
	})
	if err != nil {
		return figures, fmt.Errorf("read: %w", err)
	}
	add("ds: read 1,000 of 100,000 streams", manySample/time.Since(start).Seconds(), "reads/s")
	return figures, nil
}
