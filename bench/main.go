// Command bench compares Weir with the limits of the machine and with alternatives, in one run. It
// prints ratios first, because absolute figures mean little on a shared machine. It is a module of
// its own, so that the alternatives are not dependencies of Weir.
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
	if text := os.Getenv(crowdEnv); text != "" {
		if err := joinCrowd(text); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if text := os.Getenv(plainEnv); text != "" { // a child process of startPlain
		if err := serveNATS(text); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	dir := flag.String("dir", "", "`directory` on the disk to measure (default: a temporary one)")
	out := flag.String("out", "results", "`directory` for the JSON file with the results")
	rounds := flag.Int("rounds", 5, "number of rounds per workload; the output shows medians")
	span := flag.Duration("for", time.Second, "duration of a round")
	only := flag.String("only", "", "run a single `part`: appends, http, loops, protocols, idle, streaming, client, memory, start, stalls, reclaim, abuse, dashboard, waking, opening, cold, cluster, peers, versions, durable")
	against := flag.String("against", "", "`program` of another version of Weir, for the part versions, which runs only if this is set")
	npm := flag.String("durable-streams", "", "`directory` in which \"npm install @durable-streams/server\" ran, for the parts peers and durable")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: bench [flags]\n\nCompares Weir with the limits of this machine and with alternatives.\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if full := os.Getenv(fillEnv); full != "" { // a child process of startAfterCrash
		if err := fillUntilKilled(full); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(*dir, *out, *only, *npm, *against, *rounds, *span); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// report is the content of the JSON file.
type report struct {
	Time    time.Time  `json:"time"`
	Appends []row      `json:"appends,omitempty"`
	HTTP    []row      `json:"http,omitempty"`
	Loops   []row      `json:"loops,omitempty"`
	Others  []row      `json:"protocols,omitempty"`
	Peers   []row      `json:"peers,omitempty"`
	Rivals  []row      `json:"versions,omitempty"`
	Figures []figure   `json:"figures,omitempty"`
	Machine machine    `json:"machine"`
	Options runOptions `json:"options"`
}

type runOptions struct {
	Rounds int           `json:"rounds"`
	For    time.Duration `json:"for_ns"`
}

// figure is a measured value with its name and unit.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

func run(dir, out, only, npm, against string, rounds int, span time.Duration) error {
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
		{"loops", func() (err error) { rep.Loops, err = loops(dir, rounds, span); return }},
		{"protocols", func() (err error) { rep.Others, err = protocols(dir, rounds, span); return }},
		{"idle", func() error { return collect(&rep, dir, idle) }},
		{"streaming", func() error { return collect(&rep, dir, streaming) }},
		{"client", func() error { return collect(&rep, dir, publishers) }},
		{"memory", func() error { return collect(&rep, dir, memoryPerBatch, millionStreams) }},
		{"start", func() error { return collect(&rep, dir, starts...) }},
		{"stalls", func() error { return collect(&rep, dir, stalls) }},
		{"reclaim", func() error { return collect(&rep, dir, reclaiming, compressing, archived) }},
		{"abuse", func() error { return collect(&rep, dir, abuse) }},
		{"dashboard", func() error { return collect(&rep, dir, dashboard) }},
		{"waking", func() error { return collect(&rep, dir, waking) }},
		{"opening", func() error { return collect(&rep, dir, opening) }},
		{"cold", func() error { return collect(&rep, dir, cold) }},
		{"cluster", func() error { return collect(&rep, dir, cluster) }},
		{"peers", func() (err error) { rep.Peers, err = peers(dir, npm, rounds, span); return }},
		{"versions", func() error {
			rows, figures, err := versions(dir, against, rounds, span)
			rep.Rivals, rep.Figures = rows, append(rep.Figures, figures...)
			return err
		}},
		{"durable", func() error {
			figures, err := durable(dir, npm, rounds, span)
			rep.Figures = append(rep.Figures, figures...)
			return err
		}},
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
	fmt.Println("\nresults written to", name)
	return os.WriteFile(name, append(b, '\n'), 0o644)
}

// collect runs measurements, prints their figures and adds them to the report.
func collect(rep *report, dir string, measurements ...func(string) ([]figure, error)) error {
	for _, measure := range measurements {
		figures, err := measure(dir)
		for _, f := range figures {
			fmt.Printf("%-52s %14.2f %s\n", f.Name, f.Value, f.Unit)
		}
		if rep.Figures = append(rep.Figures, figures...); err != nil {
			return err
		}
	}
	return nil
}
