package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir"
	"weir/internal/disk/faulty"
)

// config is the size of a simulation. Shrinking makes it smaller. In the fields steps, clients and
// nodes, 0 means that the seed decides.
type config struct {
	seed    uint64
	steps   int // number of scheduling steps before the final check
	clients int
	nodes   int      // number of processes that share a store; 1: one process with a journal
	without []string // features that are left out
}

// complete returns the configuration with what the seed decides. Most histories are short, because
// short histories find most bugs in the least time. But a few bugs need a long one. One simulation in
// four has two or three nodes.
func (c config) complete() config {
	rng := rand.New(rand.NewPCG(c.seed, 0))
	length := rng.Float64()
	c.steps = cmp.Or(c.steps, int(150*math.Pow(20, length*length*length)))
	c.clients = cmp.Or(c.clients, 4+rng.IntN(17))
	if c.nodes == 0 {
		c.nodes = 1
		if c.seed%4 == 0 {
			c.nodes = 2 + int(c.seed/4%2)
		}
	}
	return c
}

// has reports whether a feature is part of the simulation.
func (c config) has(feature string) bool { return !slices.Contains(c.without, feature) }

// world is one simulation.
type world struct {
	config
	*scheduler
	t        *testing.T
	model    *model
	turn     int           // role of the first client
	pace     int           // in how many of 1,000 steps time passes
	violence int           // number of crashes in 1,000 steps; other faults are more frequent if it is higher
	shift    atomic.Int64  // how far the server's clock is ahead of the simulated time
	stepped  time.Time     // when the field shift last changed
	ticks    atomic.Int64  // number of calls of the method tick
	moved    time.Duration // sum of all changes of the clock, forwards and backwards
	shifts   []shift       // all values of shift so far
	back     bool          // the clock was set back
	limited  bool          // the disk was full, or could become full
	again    atomic.Bool   // the final check wants a restart
	prepared bool          // the first streams and keys of clients were made, or have failed
	quiet    atomic.Bool   // the clients have ended, so nothing can happen between two reads of the disk
	turns    int           // number of calls of the method overdue
	checked  time.Time     // when overdue last looked at the requests
	written  time.Time     // when overdue last saw that a disk call waits

	mu       sync.Mutex
	fs       *faulty.FS
	owner    *server // the process that uses the disk; it may still be starting, or already stopping
	up       bool    // owner accepts requests
	draining *server // process that waits for its requests to end before it stops; used by the scheduler only
	servers  []*server
	ending   bool   // clients stop, and nothing fails any more
	token    string // management token
	project  weir.ProjectID
	faulty   string // first violation of the contract

	cluster *cluster // nil unless several nodes share a store
	skewed  bool     // the clocks of the nodes differ

	clients sync.WaitGroup
	graves  sync.WaitGroup // processes that are being ended
}

// segmentSize is the size of the journal's files. It is small, so that a simulation fills files and
// frees them.
const segmentSize = 256 << 10

var errCrashed = errors.New("the process has crashed")

func newWorld(t *testing.T, c config) *world {
	w := &world{config: c, t: t, fs: faulty.New()}
	w.scheduler = &scheduler{rng: rand.New(rand.NewPCG(c.seed, 1)), start: time.Now()}
	w.shifts = []shift{{from: w.scheduler.start}}
	w.violence = []int{0, 1, 2, 4, 8}[w.rng.IntN(5)]
	w.pace = []int{30, 60, 120, 240}[w.rng.IntN(4)]
	w.turn = w.rng.IntN(roleCount)
	w.model = newModel(w)
	if c.nodes > 1 {
		w.cluster = &cluster{world: w}
	}
	return w
}

// clock returns the time on the server.
func (w *world) clock() time.Time { return time.Now().Add(time.Duration(w.shift.Load())) }

// tick returns the time on the server, plus a fraction of a millisecond that differs from call to
// call. So timers that the server computes from this time end at different times. Otherwise they
// would fire in random order.
func (w *world) tick() time.Time {
	return w.clock().Add(time.Duration(w.ticks.Add(1)%1000) * time.Microsecond)
}

// shift is how far the server's clock was ahead of the simulated time, from a certain time on.
type shift struct {
	from  time.Time
	ahead int64
}

// swing returns how wrong the server can be at most when it computes the time that has passed since
// a given time. The reason is that its clock may have been changed meanwhile.
func (w *world) swing(since time.Time) time.Duration {
	if w.skewed {
		return 12 * time.Second // two nodes may each be five seconds wrong, and learn of it a second late
	}
	least := w.shift.Load()
	greatest := least
	for i, s := range w.shifts {
		if i+1 == len(w.shifts) || w.shifts[i+1].from.After(since) {
			least, greatest = min(least, s.ahead), max(greatest, s.ahead)
		}
	}
	return time.Duration(greatest - least)
}

// violation reports that the service broke its contract.
func (w *world) violation(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.faulty == "" {
		w.faulty = fmt.Sprintf(format, args...)
		w.note("VIOLATION: %s", w.faulty)
	}
}

// current returns the server if it accepts requests.
func (w *world) current() *server {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCluster() {
		if n := w.cluster.nodes[w.cluster.looked]; n.up {
			return n.g
		}
		return nil
	}
	if !w.up {
		return nil
	}
	return w.owner
}

// processes returns the processes that the clients may use.
func (w *world) processes() (all []*server) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isCluster() {
		return []*server{w.owner}
	}
	for _, n := range w.cluster.nodes {
		all = append(all, n.g)
	}
	return all
}

// run runs the simulation and returns the first violation, or an empty string.
func (w *world) run() string {
	step := w.oneStep
	if w.isCluster() {
		step = w.cluster.clusterStep
		w.cluster.makeNodes()
	} else {
		w.start()
	}
	for i := range w.config.clients {
		w.newClient(i)
	}
	for i := 0; i < w.steps && w.faulty == ""; i++ {
		step()
	}
	w.calm()
	var clients, final atomic.Bool
	go func() { w.clients.Wait(); clients.Store(true) }()
	w.until("the clients end", clients.Load)
	w.quiet.Store(true)
	if w.isCluster() {
		w.cluster.finishNodes(&final)
	} else {
		w.finish(&final)
	}
	w.until("the final check ends", final.Load)
	var ended atomic.Bool
	go func() {
		for _, g := range w.processes() {
			g.end()
		}
		w.graves.Wait()
		if w.isCluster() {
			w.cluster.net.work.Wait()
		}
		ended.Store(true)
	}()
	w.until("the server ends", ended.Load)
	for _, g := range w.servers {
		if held := g.bodies.Stats().Held; held != 0 || g.handler != nil && g.handler.Subscribers() != 0 {
			w.violation("a server has ended, but still holds %d bytes of bodies, or subscriptions", held)
		}
	}
	return w.faulty
}

// calm ends all faults.
func (w *world) calm() {
	w.note("calm")
	if w.draining != nil {
		w.drained()
	}
	w.mu.Lock()
	w.ending = true
	w.fs.Capacity(-1)
	w.limited = false
	if w.isCluster() {
		w.mu.Unlock()
		w.cluster.calmNodes()
		return
	}
	hurt := (w.owner.hurt.Load() || w.owner.limited.Load()) && w.up
	w.mu.Unlock()
	if hurt {
		w.restart()
	}
}

// until lets everything go on until the function done returns true. A history that does not end is
// a violation.
func (w *world) until(what string, done func() bool) {
	for range 200_000 {
		list := w.settled()
		if done() {
			return
		}
		if w.again.Load() && w.current() != nil {
			if w.isCluster() {
				for _, n := range w.cluster.nodes {
					n.restart()
				}
			} else {
				w.restart()
			}
			w.again.Store(false)
			continue
		}
		if w.draining != nil && w.draining.request() == nil {
			w.drained()
			continue
		}
		if len(list) == 0 || w.rng.IntN(20) == 0 {
			w.pass(100 * time.Millisecond)
			continue
		}
		w.advance(list[w.rng.IntN(len(list))], nil)
	}
	w.violation("it takes too long until %s", what)
	panic(w.faulty)
}

func (w *world) advance(o *waiter, err error) {
	if err != nil {
		w.note("%s: %v", o.name, err)
	} else {
		w.line(o.name)
	}
	w.release(o, err)
}

// step sets the server's clock forwards or backwards.
func (w *world) step(d time.Duration) {
	ahead := w.shift.Add(int64(d))
	w.moved += d.Abs()
	w.stepped, w.back = time.Now(), w.back || d < 0
	w.shifts = append(w.shifts, shift{time.Now(), ahead})
}

// oneStep lets one client or disk call go on, lets time pass, or causes a crash, a restart, a fault
// or a change of the clock.
func (w *world) oneStep() {
	list := w.settled()
	w.overdue(list)
	up := w.current() != nil
	if w.cutsOff(list) {
		return
	}
	if !up {
		list = slices.DeleteFunc(list, func(o *waiter) bool { return o.idle })
	}
	if w.draining != nil && (w.draining.request() == nil || w.rng.IntN(30) == 0) {
		w.drained()
		return
	}
	if len(list) == 0 {
		w.pass(time.Duration(w.rng.IntN(3000)+1) * time.Millisecond)
		return
	}
	switch r := w.rng.IntN(1000); {
	case w.has("crashes") && r < w.violence:
		w.crash()
		return
	case w.has("restarts") && up && (r < 2*w.violence || w.owner.hurt.Load() && r < 30):
		w.restart()
		return
	case r < 20+w.pace:
		w.pass(time.Duration(w.rng.IntN(1<<w.rng.IntN(12))+1) * time.Millisecond)
		return
	case w.mayRest(r):
		w.rest()
		return
	case r < 22+w.pace && w.has("clock"):
		w.step(time.Duration(w.rng.IntN(20_000)-10_000) * time.Millisecond)
		w.note("the clock is %v ahead", time.Duration(w.shift.Load()))
		return
	case w.has("faults") && 22+w.pace <= r && r < 22+w.pace+w.violence:
		room := int64(-1)
		w.limited = true
		w.owner.limited.Store(true)
		if w.rng.IntN(2) == 0 {
			room = w.fs.Size() + int64(w.rng.IntN(64<<10))
		}
		w.fs.Capacity(room)
		w.note("capacity %d", room)
		return
	}
	o := list[w.rng.IntN(len(list))]
	var err error
	switch {
	case o.disk && w.has("faults") && w.rng.IntN(1500) < w.violence,
		o.disk && w.has("faults") && w.violence > 0 && w.owner.deleting.Load() > 0 && w.rng.IntN(40) == 0:
		err = syscall.EIO
	case !o.disk && w.has("hangups") && w.rng.IntN(60) == 0:
		err = errVanished
	}
	w.advance(o, err)
}
