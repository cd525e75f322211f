package sim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// campaign runs consecutive seeds in worker processes, one per core. A worker gets some seeds at a
// time, so at any moment all seeds up to one of them have run, and another campaign can go on there.
type campaign struct {
	t       *testing.T
	program string
	begun   time.Time
	from    uint64

	mu    sync.Mutex
	parts []*part // consecutive
	count int     // number of simulations
	cpu   time.Duration
	shown time.Time
	found []finding
}

// part is what a worker runs at a time.
type part struct {
	from  uint64
	count int
	ran   int
}

type finding struct {
	config  config
	message string
}

const (
	// mostFindings is the number of violations after which a campaign ends.
	mostFindings = 5
	// partSize is the number of seeds in a part, unless few are left. It takes some seconds.
	partSize = 500
)

// drive runs a campaign as the flags say, and reports the violations.
func drive(t *testing.T) {
	c := &campaign{t: t, program: program(t), begun: time.Now(), from: *first}
	if c.from == 0 {
		c.from = uint64(time.Now().UnixNano()) % 1_000_000_000
	}
	fmt.Printf("simulations from seed %d in %d processes\n", c.from, *procs)
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
	defer stop()
	var all sync.WaitGroup
	for range *procs {
		all.Go(func() {
			for p := c.next(ctx); p != nil; p = c.next(ctx) {
				c.run(ctx, p)
			}
		})
	}
	all.Wait()
	c.report()
	for _, f := range c.found {
		smaller, message := f.config, f.message
		if !*keep && !strings.HasPrefix(message, hangs) && ctx.Err() == nil {
			smaller, message = shrink(t, c.program, smaller, message)
		}
		t.Errorf("seed %d: %s\n  smaller: %s\n  repeat it with: make sim ARGS=%q", f.config.seed, f.message, message, strings.Join(smaller.args(), " "))
	}
}

// next returns the next part, or nil if the campaign ends.
func (c *campaign) next(ctx context.Context) *part {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &part{from: c.from, count: partSize}
	if n := len(c.parts); n > 0 {
		p.from = c.parts[n-1].from + uint64(c.parts[n-1].count)
	}
	switch left := *seeds - int(p.from-c.from); {
	case ctx.Err() != nil || len(c.found) >= mostFindings:
		return nil
	case *seeds > 0:
		p.count = min(p.count, left, max(1, *seeds / *procs))
	case *duration > 0:
		if time.Since(c.begun) >= *duration {
			return nil
		}
	default:
		p.count = 50 // so that the campaign ends not long after the processor time is used up
		if c.cpu+time.Duration(len(c.parts)-c.ended())*c.cost(p.count) >= *compute {
			return nil
		}
	}
	if p.count <= 0 {
		return nil
	}
	c.parts = append(c.parts, p)
	return p
}

// ended returns the number of parts whose processor time is known.
func (c *campaign) ended() (n int) {
	for _, p := range c.parts {
		if p.ran == p.count {
			n++
		}
	}
	return n
}

// cost returns how much processor time so many simulations take.
func (c *campaign) cost(count int) time.Duration {
	return time.Duration(count) * max(c.cpu/time.Duration(max(1, c.count)), 10*time.Millisecond)
}

// run runs a part. If a simulation makes the worker panic, another worker goes on with the next seed.
func (c *campaign) run(ctx context.Context, p *part) {
	for p.ran < p.count && ctx.Err() == nil && !c.full() {
		left := time.Duration(0)
		if *seeds == 0 && *duration > 0 {
			if left = *duration - time.Since(c.begun); left <= 0 {
				return
			}
		}
		begun := p.ran
		err := c.follow(ctx, p, "-first", fmt.Sprint(p.from+uint64(p.ran)), "-seeds", fmt.Sprint(p.count-p.ran), "-time", left.String(),
			"-steps", fmt.Sprint(*steps), "-clients", fmt.Sprint(*clients), "-nodes", fmt.Sprint(*nodes), "-without", *without)
		switch {
		case err == nil:
			return
		case ctx.Err() != nil:
			c.mu.Lock()
			p.ran = max(begun, p.ran-1) // the last simulation was cut off
			c.mu.Unlock()
			return
		case p.ran == begun:
			c.t.Errorf("worker: %v", err)
			return
		}
		c.add(p.from+uint64(p.ran-1), err.Error())
	}
}

// follow runs a worker and reads its output. It returns an error if a simulation made the worker
// panic.
func (c *campaign) follow(ctx context.Context, p *part, args ...string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stuck := time.AfterFunc(longest, cancel)
	defer stuck.Stop()
	cmd := child(ctx, c.program, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var rest strings.Builder
	cmd.Stderr = &rest
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Text()
		kind, value, _ := strings.Cut(line, " ")
		switch number, message, _ := strings.Cut(value, " "); kind {
		case "run":
			stuck.Reset(longest)
			c.begins(p)
		case "bad":
			seed, _ := strconv.ParseUint(number, 10, 64)
			c.add(seed, message)
			if c.full() {
				cancel()
			}
		default:
			rest.WriteString(line + "\n")
		}
	}
	err = cmd.Wait()
	c.used(cmd)
	if c.full() || err == nil {
		return nil
	}
	return errors.New(verdict(rest.String(), err))
}

func (c *campaign) add(seed uint64, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bad := flagged()
	bad.seed = seed
	c.found = append(c.found, finding{bad.complete(), message})
	fmt.Printf("seed %d: %s\n", seed, message)
}

func (c *campaign) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.found) >= mostFindings
}

// used adds the processor time of a worker that has ended.
func (c *campaign) used(cmd *exec.Cmd) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// begins counts a simulation, and prints a line every few seconds.
func (c *campaign) begins(p *part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	p.ran++
	if time.Since(c.shown) < 10*time.Second {
		return
	}
	c.shown = time.Now()
	took := time.Since(c.begun)
	line := fmt.Sprintf("%d simulations in %s, %d violations", c.count, took.Round(time.Second), len(c.found))
	if *seeds > 0 {
		left := time.Duration(float64(took) / float64(c.count) * float64(*seeds-c.count))
		line += fmt.Sprintf(", %d seeds left, about %s", *seeds-c.count, left.Round(time.Second))
	}
	fmt.Println(line)
}

// report prints which seeds have run, how long they took, and how to go on if the campaign was
// interrupted.
func (c *campaign) report() {
	next := c.from
	for _, p := range c.parts {
		next = p.from + uint64(p.ran)
		if p.ran < p.count {
			break
		}
	}
	fmt.Printf("%d simulations in %s with %s of processor time, %d violations\n", c.count, time.Since(c.begun).Round(time.Second), c.cpu.Round(time.Second), len(c.found))
	fmt.Printf("all seeds from %d to %d have run\n", c.from, next-1)
	if left := *seeds - int(next-c.from); left > 0 && *seeds > 0 {
		fmt.Printf("go on with: make sim ARGS=\"-first %d -seeds %d\"\n", next, left)
	}
}
