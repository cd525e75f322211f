package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// versions compares another version of Weir with this one: publishing, in turns, and then catch-up
// and fan-out, twice each. The parameter other is the program of the other version.
func versions(dir, other string, rounds int, span time.Duration) (rows []row, figures []figure, err error) {
	if other == "" {
		fmt.Println("\nversions: skipped, because -against names no program")
		return nil, nil, nil
	}
	if other, err = filepath.Abs(other); err != nil {
		return nil, nil, err
	}
	own, err := buildWeir(dir)
	if err != nil {
		return nil, nil, err
	}
	programs := []struct{ name, path string }{{"other version", other}, {"this version", own}}
	start := func(i, streams int, part string) (*target, error) {
		at := filepath.Join(dir, part, programs[i].name)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return nil, err
		}
		t, err := serveWeir(programs[i].path, at, nil)
		if err != nil {
			return nil, err
		}
		t.name = programs[i].name
		if err := t.createStreams(streams); err != nil {
			t.stop()
			return nil, err
		}
		return t, nil
	}
	fmt.Printf("\n%-28s %-22s %7s %10s %8s %8s %8s %8s\n", "publish over HTTP/1.1", "", "ratio", "req/s", "MB/s", "p50 ms", "p99 ms", "CPU us")
	for _, l := range publishLoads {
		two, err := func() ([]row, error) {
			var servers [2]*target
			for i := range servers {
				t, err := start(i, l.Streams, l.String())
				if err != nil {
					return nil, err
				}
				defer t.stop()
				if err := t.warmUp(512 << 20); err != nil {
					return nil, err
				}
				servers[i] = t
			}
			return duel(l, rounds, func(i int) (row, error) { return publishing(servers[i], l, span) })
		}()
		if rows = append(rows, two...); err != nil {
			return rows, nil, err
		}
	}
	for _, part := range []struct {
		name    string
		measure func(*target) ([]figure, error)
	}{{"catch-up", catchUp}, {"fan-out", fanOut}} {
		for n := range 2 * len(programs) {
			i := n % len(programs)
			t, err := start(i, 4, fmt.Sprint(part.name, n))
			if err != nil {
				return rows, figures, err
			}
			some, err := part.measure(t)
			t.stop()
			if err != nil {
				return rows, figures, err
			}
			for _, f := range some {
				f.Name = programs[i].name + ": " + f.Name
				figures = append(figures, f)
				fmt.Printf("%-62s %12.2f %s\n", f.Name, f.Value, f.Unit)
			}
		}
	}
	return rows, figures, nil
}
