package sim

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"weir/internal/engine"
)

var (
	seed     = flag.Uint64("seed", 0, "run this seed only, and print its trace")
	first    = flag.Uint64("first", 0, "first seed; 0 means a random one")
	seeds    = flag.Int("seeds", 0, "number of seeds, which are consecutive; 0 means as many as -time or -processor allows")
	duration = flag.Duration("time", 0, "how long to run, unless -seeds is given; 0 means as long as -processor allows")
	compute  = flag.Duration("processor", 60*time.Second, "processor time to use, unless -seeds or -time is given")
	procs    = flag.Int("procs", runtime.NumCPU(), "number of processes")
	steps    = flag.Int("steps", 0, "number of steps of a simulation; 0 means that the seed decides")
	clients  = flag.Int("clients", 0, "number of clients of a simulation; 0 means that the seed decides")
	nodes    = flag.Int("nodes", 0, "number of nodes that share a store; 1 means a single server with a journal; 0 means that the seed decides")
	without  = flag.String("without", "", "what a simulation leaves out, separated by commas: "+strings.Join(features, ", "))
	keep     = flag.Bool("keep", false, "do not make a failing simulation smaller")

	// The parent passes these flags to the processes that it starts.
	worker = flag.Bool("worker", false, "run simulations in this process")
	traced = flag.Bool("traced", false, "print the traces")
	once   = flag.Bool("once", false, "stop at the first violation")
	sums   = flag.Bool("sums", false, "print a checksum of each history")
)

// features can be left out of a simulation. The function shrink tries to leave out each of them.
var features = []string{"crashes", "restarts", "faults", "clock", "hangups", "loops", "publishAt", "publishKeyed", "produce", "library", "read", "pages", "close", "change", "ttl", "gzip", "keys", "subscribe", "manage", "backup"}

// simulate runs one simulation. It returns the violation and a checksum of the history.
func simulate(t *testing.T, c config) (violation string, sum uint64) {
	collect()
	synctest.Test(t, func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, c.seed)
		w := newWorld(t, c.complete())
		violation = w.run()
		sum = w.sum
	})
	return violation, sum
}

// heapLimit is a size of the heap. If the heap is larger, garbage is collected before the next
// simulation.
const heapLimit = 16 << 20

// collect collects garbage if there is much of it.
func collect() {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	if metrics.Read(sample); sample[0].Value.Uint64() > reserved+heapLimit {
		runtime.GC()
	}
}

func flagged() config {
	c := config{seed: *seed, steps: *steps, clients: *clients, nodes: *nodes}
	for name := range strings.SplitSeq(*without, ",") {
		if slices.Contains(features, name) {
			c.without = append(c.without, name)
		} else if name != "" {
			panic("unknown feature " + name)
		}
	}
	return c
}

// args returns the flags that select this simulation. It leaves out what the seed decides.
func (c config) args() []string {
	args := []string{"-seed", strconv.FormatUint(c.seed, 10)}
	c, decided := c.complete(), config{seed: c.seed}.complete()
	if c.steps != decided.steps {
		args = append(args, "-steps", strconv.Itoa(c.steps))
	}
	if c.clients != decided.clients {
		args = append(args, "-clients", strconv.Itoa(c.clients))
	}
	if c.nodes != decided.nodes {
		args = append(args, "-nodes", strconv.Itoa(c.nodes))
	}
	if len(c.without) > 0 {
		args = append(args, "-without", strings.Join(c.without, ","))
	}
	return args
}

// TestSim runs simulations with new seeds in processes of their own, one per core. It makes a
// failing simulation smaller and prints the command that repeats it.
func TestSim(t *testing.T) {
	switch {
	case *worker:
		work(t)
	case *seed != 0:
		c := flagged()
		if bad := launch(t, program(t), c, true); bad != "" {
			t.Errorf("seed %d: %s", c.seed, bad)
		}
	default:
		drive(t)
	}
}

// reserved is the size of memory that is never touched.
const reserved = 1 << 30

// work runs the simulations of a worker process. It prints a line at the start of each simulation,
// so that the parent knows which one made the process panic, and a line for each violation.
func work(t *testing.T) {
	c := flagged()
	if *seed != 0 {
		if violation, _ := simulate(t, c); violation != "" {
			fmt.Printf("bad %d %s\n", c.seed, violation)
		}
		return
	}
	// The runtime gives memory back to the operating system if the heap is far larger than what it
	// held at the last garbage collection, and the next simulation would fetch it again. Memory that
	// is never touched costs nothing, and makes the difference small.
	reserve := make([]byte, reserved)
	defer runtime.KeepAlive(reserve)
	defer deepen()()
	begun := time.Now()
	for i := 0; i < *seeds && (i == 0 || *duration == 0 || time.Since(begun) < *duration); i++ {
		c.seed = *first + uint64(i)
		fmt.Printf("run %d\n", c.seed)
		violation, sum := simulate(t, c)
		if *sums {
			fmt.Printf("sum %d %x\n", c.seed, sum)
		}
		if violation != "" {
			fmt.Printf("bad %d %s\n", c.seed, violation)
			if *once {
				return
			}
		}
	}
}

// deepen makes new goroutines start with stacks of 8 KiB, so that they seldom grow. With the setting
// adaptivestackstart, a stack has at first the size that the stacks had on average at the last garbage
// collection. Between two simulations only the stacks of these goroutines count.
func deepen() (end func()) {
	quit := make(chan struct{})
	for i := range 32 {
		go func() {
			var frame [5 << 10]byte
			frame[i] = 1
			<-quit
			if frame[i] != 1 {
				panic("the stack was not kept")
			}
		}()
	}
	return func() { close(quit) }
}

// program returns the path of a test binary without the race detector. The race detector makes pools
// forget things at random, so the same seed would give different histories.
func program(t *testing.T) string {
	if !raced {
		path, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	unraced.Do(func() {
		dir, err := os.MkdirTemp("", "sim")
		if err != nil {
			t.Fatal(err)
		}
		unracedDir = dir
		build(t, filepath.Join(dir, "sim.test"))
	})
	return filepath.Join(unracedDir, "sim.test")
}

var (
	unraced    sync.Once
	unracedDir string
)

func TestMain(m *testing.M) {
	if flag.Parse(); *worker {
		steady()
	}
	engine.Yield = func() {}
	runtime.MemProfileRate = 0 // sampling takes time even if no flag asks for a profile; -memprofile needs -memprofilerate too
	code := m.Run()
	if unracedDir != "" {
		os.RemoveAll(unracedDir)
	}
	os.Exit(code)
}

// TestRaces runs a few simulations under the race detector. Their histories cannot be repeated, but
// the model holds for them too.
func TestRaces(t *testing.T) {
	if !raced {
		t.Skip("needs the race detector")
	}
	for i := range uint64(5) {
		c := flagged()
		c.seed = uint64(time.Now().UnixNano())%1_000_000_000 + i
		if violation, _ := simulate(t, c); violation != "" {
			t.Errorf("seed %d under the race detector: %s", c.seed, violation)
		}
	}
}

func build(t *testing.T, path string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", slices.Concat([]string{"test", "-c", "-o", path}, args, []string{"."})...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the simulation: %v\n%s", err, out)
	}
	return path
}

// longest is how long one simulation may take. On an idle machine, a simulation takes less than a
// second.
const longest = 2 * time.Minute

// child prepares a process in which simulations are deterministic: one thread, no preemption, and no
// garbage collection while a simulation runs, unless the simulation takes far more memory than usual.
func child(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, append([]string{"-test.run=^TestSim$", "-test.timeout=0", "-worker"}, args...)...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=5GiB", "GODEBUG=asyncpreemptoff=1,adaptivestackstart=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // prints what each goroutine waits for
	cmd.WaitDelay = time.Minute
	return cmd
}

// launch runs one simulation and returns its violation. It prints the trace if show is true.
func launch(t *testing.T, program string, c config, show bool) string {
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	args := c.args()
	if show {
		args = append(args, "-traced")
	}
	cmd := child(ctx, program, args...)
	out, err := cmd.CombinedOutput()
	if show {
		os.Stdout.Write(out)
	}
	return verdict(string(out), err)
}

var (
	badLine   = regexp.MustCompile(`(?m)^bad \d+ (.*)$`)
	panicLine = regexp.MustCompile(`(?m)^(panic|fatal error): .*$`)
	lockLine  = regexp.MustCompile(`(?m)^goroutine .*\[sync\..*(?:\n.+)*?\n(weir/.*)\(`)
)

// hangs begins the message for a simulation that does not end.
const hangs = "does not end"

func verdict(out string, err error) string {
	if m := badLine.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	if err == nil {
		return ""
	}
	if m := panicLine.FindString(out); m != "" {
		return m
	}
	if !strings.Contains(out, "SIGQUIT: quit") {
		return err.Error()
	}
	if m := lockLine.FindStringSubmatch(out); m != nil {
		return hangs + ": waits for a lock in " + m[1]
	}
	return hangs
}
