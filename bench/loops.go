package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// loops compares publishing to Weir with and without event loops: many connections with batches of
// 1 KiB on one stream, batches of 16 KiB, which need memory from the budget, and one publisher alone.
func loops(dir string, rounds int, span time.Duration) ([]row, error) {
	var servers []*target
	for _, c := range []struct{ name, flag string }{{"no event loops", "--event-loop=false"}, {"event loops", "--event-loop=true"}} {
		at := filepath.Join(dir, c.name)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return nil, err
		}
		s, err := startWeir(at, c.flag)
		if err != nil {
			return nil, err
		}
		defer s.stop()
		s.name = c.name
		if err := s.createStreams(1); err != nil {
			return nil, err
		}
		if err := s.warmUp(512 << 20); err != nil {
			return nil, err
		}
		servers = append(servers, s)
	}
	fmt.Printf("\n%-28s %-22s %7s %10s %8s %8s %8s %8s\n", "publish over HTTP/1.1", "", "ratio", "req/s", "MB/s", "p50 ms", "p99 ms", "CPU us")
	var rows []row
	for _, l := range []publishLoad{{64, 1 << 10, 1}, {64, 16 << 10, 1}, {1, 1 << 10, 1}} {
		two, err := duel(l, rounds, func(i int) (row, error) { return publishing(servers[i], l, span) })
		if err != nil {
			return rows, err
		}
		rows = append(rows, two...)
	}
	return rows, nil
}
