// Command bench measures Weir beside the limits of the machine and beside what else could be used, in one run, and
// prints ratios first: absolute figures mean little on a shared machine. It is a module of its own, so that what it
// compares with is no dependency of the product.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func main() {
	if os.Getenv("WEIR_BENCH_HELLO") != "" {
		hello()
		return
	}
	if text := os.Getenv(plainEnv); text != "" { // a child of cluster
		if err := serveNATS(text); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	dir := flag.String("dir", "", "directory on the disk to measure (default: a temporary one)")
	out := flag.String("out", "results", "directory for the JSON file")
	rounds := flag.Int("rounds", 5, "rounds of each workload; medians are shown")
	span := flag.Duration("for", time.Second, "length of a round")
	only := flag.String("only", "", "run only this part: appends, http, streaming, client, memory, start, reclaim, abuse, dashboard, cluster")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: bench [flags]\n\nMeasures the journal beside the disk's limit and beside Pebble.\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if full := os.Getenv(fillEnv); full != "" { // a child of startAfterCrash
		if err := fillUntilKilled(full); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(*dir, *out, *only, *rounds, *span); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// report is what the JSON file holds.
type report struct {
	Time    time.Time  `json:"time"`
	Appends []row      `json:"appends,omitempty"`
	HTTP    []row      `json:"http,omitempty"`
	Figures []figure   `json:"figures,omitempty"`
	Machine machine    `json:"machine"`
	Options runOptions `json:"options"`
}

type runOptions struct {
	Rounds int           `json:"rounds"`
	For    time.Duration `json:"for_ns"`
}

// figure is one number with its name.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

func run(dir, out, only string, rounds int, span time.Duration) error {
	if dir == "" {
		tmp, err := os.MkdirTemp("", "weir-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp)
		dir = tmp
	}
	rep := report{Time: time.Now().UTC(), Machine: thisMachine(dir), Options: runOptions{rounds, span}}
	fmt.Println(rep.Machine)
	parts := []struct {
		name string
		run  func() error
	}{
		{"appends", func() (err error) { rep.Appends, err = appends(dir, rounds, span); return }},
		{"http", func() (err error) { rep.HTTP, err = overHTTP(dir, rounds, span); return }},
		{"streaming", func() error { return collect(&rep, streaming, dir) }},
		{"client", func() error { return collect(&rep, publishers, dir) }},
		{"memory", func() error { return collect(&rep, memoryPerBatch, dir) }},
		{"start", func() error { return collect(&rep, startAfterCrash, dir) }},
		{"reclaim", func() error { return collect(&rep, reclaiming, dir) }},
		{"abuse", func() error { return collect(&rep, abuse, dir) }},
		{"dashboard", func() error { return collect(&rep, dashboard, dir) }},
		{"cluster", func() error { return collect(&rep, cluster, dir) }},
	}
	for _, p := range parts {
		if only != "" && only != p.name {
			continue
		}
		if err := p.run(); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	b, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	name := filepath.Join(out, "weir-"+rep.Time.Format("20060102-150405")+".json")
	fmt.Println("\nwritten to", name)
	return os.WriteFile(name, append(b, '\n'), 0o644)
}

func collect(rep *report, measure func(string) ([]figure, error), dir string) error {
	figures, err := measure(dir)
	for _, f := range figures {
		fmt.Printf("%-52s %14.2f %s\n", f.Name, f.Value, f.Unit)
	}
	rep.Figures = append(rep.Figures, figures...)
	return err
}
