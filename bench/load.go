package main

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// errEnough is returned by a worker that has nothing left to do.
var errEnough = errors.New("enough")

// work calls each worker in a loop until the time is up. It measures the latency of each call and
// the total CPU time, which it reads with the function cpu. The parameter size is the number of
// bytes per call. A worker stops when it returns an error, and work returns this error unless it is
// errEnough.
func work(workers []func() error, size int, span time.Duration, cpu func() time.Duration) (row, error) {
	var wg sync.WaitGroup
	var failure atomic.Pointer[error]
	taken := make([][]time.Duration, len(workers))
	before, start := cpu(), time.Now()
	deadline := start.Add(span)
	for i, do := range workers {
		wg.Go(func() {
			for now := time.Now(); now.Before(deadline); {
				if err := do(); err != nil {
					if err != errEnough {
						failure.Store(&err)
					}
					return
				}
				done := time.Now()
				taken[i] = append(taken[i], done.Sub(now))
				now = done
			}
		})
	}
	wg.Wait()
	wall, computed := time.Since(start), cpu()-before
	if err := failure.Load(); err != nil {
		return row{}, *err
	}
	return measured(slices.Concat(taken...), size, wall, computed), nil
}

// measured returns the figures of requests that took the given times.
func measured(taken []time.Duration, size int, wall, cpu time.Duration) row {
	slices.Sort(taken)
	n := float64(len(taken))
	return row{
		Rate: n / wall.Seconds(), MBps: n * float64(size) / 1e6 / wall.Seconds(),
		P50: ms(taken[len(taken)/2]), P99: ms(taken[len(taken)*99/100]), CPU: float64(cpu.Microseconds()) / n,
	}
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
