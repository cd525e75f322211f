package main

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"time"
)

// workload is a number of writers, each of which appends a payload, waits until it is durable, and
// repeats.
type workload struct {
	Writers int `json:"writers"`
	Size    int `json:"size"`
	Streams int `json:"streams"`
}

var workloads = []workload{
	{1, 1 << 10, 1}, {64, 1 << 10, 1}, {512, 1 << 10, 1}, {64, 64 << 10, 1}, {16, 1 << 20, 1},
	{1, 1 << 10, 10_000}, {64, 1 << 10, 10_000}, {512, 1 << 10, 10_000}, {64, 64 << 10, 10_000}, {16, 1 << 20, 10_000},
}

func (w workload) String() string {
	size := fmt.Sprintf("%d KiB", w.Size>>10)
	if w.Size >= 1<<20 {
		size = fmt.Sprintf("%d MiB", w.Size>>20)
	}
	return fmt.Sprintf("%d x %s, %d streams", w.Writers, size, w.Streams)
}

// contender is a way to store payloads durably.
type contender interface {
	name() string
	// prepare is called before each round, outside the measured time.
	prepare(w workload) error
	// append stores a payload in a stream of the workload. When append returns, the payload is
	// durable.
	append(stream int, payload []byte) error
	close() error
}

// row is the result of one contender for one workload: medians over the rounds.
type row struct {
	Workload  workload `json:"workload"`
	Contender string   `json:"contender"`
	Means     string   `json:"acknowledgement,omitempty"` // set for peers: what their acknowledgement promises
	Apart     bool     `json:"a_core_each,omitempty"`     // see apart
	Ratio     float64  `json:"ratio_to_limit"`
	Rate      float64  `json:"ops_per_second"`
	MBps      float64  `json:"mb_per_second"`
	P50       float64  `json:"p50_ms"`
	P99       float64  `json:"p99_ms"`
	CPU       float64  `json:"cpu_us_per_op"`
}

// maxBytes is the maximum number of bytes that a round writes. Without the limit, a round on a fast
// disk could fill the disk.
const maxBytes = 640 << 20

// appends measures all contenders for all workloads.
func appends(dir string, rounds int, span time.Duration) ([]row, error) {
	var rows []row
	fmt.Printf("\n%-28s %-22s %7s %10s %8s %8s %8s %8s\n", "workload", "", "ratio", "ops/s", "MB/s", "p50 ms", "p99 ms", "CPU us")
	for i, w := range workloads {
		got, err := contest(filepath.Join(dir, fmt.Sprint(i)), w, rounds, span)
		if err != nil {
			return rows, fmt.Errorf("%v: %w", w, err)
		}
		for _, r := range got {
			fmt.Printf("%-28s %-22s %7.2f %10.0f %8.1f %8.3f %8.3f %8.2f\n", r.Workload, r.Contender, r.Ratio, r.Rate, r.MBps, r.P50, r.P99, r.CPU)
		}
		rows = append(rows, got...)
	}
	return rows, nil
}

// contest runs all contenders one after the other in every round, so that other load on the machine
// affects them alike. The ratio of a contender is its rate divided by the rate of the first contender
// in the same round. The result is the median over the rounds.
func contest(dir string, w workload, rounds int, span time.Duration) ([]row, error) {
	all, err := contenders(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, c := range all {
			c.close()
		}
	}()
	results := make([][]row, len(all))
	for range rounds {
		for i, c := range all {
			r, err := round(c, w, span)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name(), err)
			}
			r.Ratio = r.Rate
			if i > 0 {
				r.Ratio /= results[0][len(results[0])-1].Rate
			} else {
				r.Ratio = 1
			}
			results[i] = append(results[i], r)
		}
	}
	rows := make([]row, len(all))
	for i, c := range all {
		rows[i] = median(results[i])
		rows[i].Workload, rows[i].Contender = w, c.name()
	}
	return rows, nil
}

// round measures one contender for the given time.
func round(c contender, w workload, span time.Duration) (row, error) {
	if err := c.prepare(w); err != nil {
		return row{}, err
	}
	var left atomic.Int64
	left.Store(maxBytes / int64(w.Size))
	writers := make([]func() error, w.Writers)
	for i := range writers {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		payload := make([]byte, w.Size)
		for k := range payload {
			payload[k] = byte(rng.Uint32())
		}
		writers[i] = func() error {
			if left.Add(-1) < 0 {
				return errEnough
			}
			return c.append(rng.IntN(w.Streams), payload)
		}
	}
	return work(writers, w.Size, span, cpu)
}
