package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/api"
	"weir/internal/budget"
	"weir/internal/disk/faulty"
	"weir/internal/engine/journal"
	"weir/internal/hub"
)

// config is the size of a simulation. Shrinking makes it smaller.
type config struct {
	seed    uint64
	steps   int // number of scheduling steps before the final check
	clients int
	without []string // features that are left out
}

// has reports whether a feature is part of the simulation.
func (c config) has(feature string) bool { return !slices.Contains(c.without, feature) }

// world is one simulation.
type world struct {
	config
	*scheduler
	t        *testing.T
	model    *model
	violence int          // number of crashes in 1,000 steps; other faults are more frequent if it is higher
	shift    atomic.Int64 // how far the server's clock is ahead of the simulated time
	stepped  time.Time    // when shift last changed
	shifts   []shift      // all values of shift so far
	back     bool         // the clock was set back
	limited  bool         // the disk was full, or could become full
	again    atomic.Bool  // the final check wants a restart

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

	clients sync.WaitGroup
	graves  sync.WaitGroup // processes that are being ended
}

// server is one process of the service.
type server struct {
	mu       sync.Mutex
	open     []*exchange // requests that the server works on
	dead     atomic.Bool // the process has crashed: its disk calls fail, and its responses do not count
	hurt     atomic.Bool // a disk call of the process failed
	limited  atomic.Bool // the disk was full, or could become full
	stopping atomic.Bool
	deleting atomic.Int64 // number of deletions in progress; their writes fail more often
	bodies   *budget.Budget
	journal  *journal.Journal
	hub      *hub.Hub
	access   *access.Access
	handler  *api.Handler
	quit     chan struct{} // closed when the process ends
}

// segmentSize is small, so that segments are sealed and freed.
const segmentSize = 256 << 10

var errCrashed = errors.New("the process has crashed")

func newWorld(t *testing.T, c config) *world {
	w := &world{config: c, t: t, fs: faulty.New()}
	w.scheduler = &scheduler{rng: rand.New(rand.NewPCG(c.seed, 1)), start: time.Now()}
	w.shifts = []shift{{from: w.scheduler.start}}
	w.violence = []int{0, 1, 1, 2, 5}[w.rng.IntN(5)]
	w.model = newModel(w)
	return w
}

// clock returns the time on the server.
func (w *world) clock() time.Time { return time.Now().Add(time.Duration(w.shift.Load())) }

// shift is by how much the server's clock was ahead from a time on.
type shift struct {
	from  time.Time
	ahead int64
}

// swing returns by how much the server may overestimate, or underestimate, how long ago a time was.
func (w *world) swing(since time.Time) time.Duration {
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
	if !w.up {
		return nil
	}
	return w.owner
}

// start starts a process on the disk, in a goroutine of its own, because its disk calls wait at
// gates.
func (w *world) start() {
	g := &server{bodies: budget.New(300<<10, 100<<10), quit: make(chan struct{})}
	w.mu.Lock()
	w.servers = append(w.servers, g)
	g.limited.Store(w.limited)
	w.owner, w.up = g, false
	fs := w.fs
	w.mu.Unlock()
	w.attach(fs, g)
	w.graves.Go(func() {
		err := w.assemble(fs, g)
		if g.dead.Load() {
			g.end()
			return
		}
		if err == nil {
			w.mu.Lock()
			w.up = true
			w.mu.Unlock()
			return
		}
		if !g.hurt.Load() && !errors.Is(err, syscall.ENOSPC) {
			w.violation("the server does not start: %v", err)
		}
		g.end()
		time.Sleep(time.Second)
		if !g.dead.Load() {
			w.start()
		}
	})
}

func (w *world) assemble(fs *faulty.FS, g *server) (err error) {
	if g.journal, err = journal.Open(fs, journal.Options{SegmentSize: segmentSize}); err != nil {
		return fmt.Errorf("open the journal: %w", err)
	}
	if g.hub, err = hub.Open(context.Background(), g.journal, hub.Options{Now: w.clock, Frame: api.Frame}); err != nil {
		return fmt.Errorf("open the hub: %w", err)
	}
	if g.access, err = access.Open(context.Background(), g.journal, access.Options{Now: w.clock}); err != nil {
		return fmt.Errorf("open access: %w", err)
	}
	g.handler = api.New(api.Options{Hub: g.hub, Access: g.access, Bodies: g.bodies, Logger: slog.New(slog.DiscardHandler)})
	w.graves.Go(g.expireKeys)
	return w.bootstrap(g)
}

// expireKeys ends the keys that revoke themselves, twice per second. It begins at an odd time, so
// that it never competes with another timer.
func (g *server) expireKeys() {
	time.Sleep(137 * time.Microsecond)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			g.access.Expire()
		case <-g.quit:
			return
		}
	}
}

// bootstrap creates the project, the key and the streams that all clients use.
func (w *world) bootstrap(g *server) error {
	ctx := context.Background()
	p, err := g.access.EnsureProject(ctx, "sim")
	if err == nil {
		_, err = g.access.ImportKey(ctx, access.KeySpec{Project: p.ID, Name: "sim"}, secret)
	}
	if err == nil {
		err = w.makeToken(g, p.ID)
	}
	for _, s := range w.model.streams {
		if err == nil {
			_, err = g.hub.Create(ctx, hub.Spec{
				ID: s.id, Project: p.ID, Name: "s", RetentionSeconds: int64(s.limits[0].retention / time.Second), MaxBytes: s.limits[0].maxBytes, Mode: s.mode,
			})
			if refused, ok := err.(*weir.Error); ok && refused.Code == weir.StreamNameTaken {
				err = nil
			}
		}
	}
	return err
}

// makeToken creates the management token, unless an earlier process did.
func (w *world) makeToken(g *server, project weir.ProjectID) error {
	if _, err := g.access.AuthenticateToken([]string{"Bearer " + w.token}); err == nil {
		return nil
	}
	if w.token != "" {
		w.violation("the management token is lost")
	}
	_, secret, err := g.access.CreateToken(context.Background(), "sim")
	if err == nil && !g.dead.Load() {
		w.token, w.project = secret.Reveal(), project
	}
	return err
}

// attach makes the disk calls of a server wait at gates.
func (w *world) attach(fs *faulty.FS, g *server) {
	calls := map[string]int{}
	var mu sync.Mutex
	fs.OnCall(func(c faulty.Call) error {
		if g.dead.Load() {
			return errCrashed
		}
		name := fmt.Sprintf("disk %v %s %d+%d", c.Kind, c.Name, c.Off, c.Len)
		mu.Lock()
		calls[name]++
		name = fmt.Sprintf("%s #%d", name, calls[name])
		mu.Unlock()
		err := w.gate(name, nil)
		if g.dead.Load() {
			return errCrashed
		}
		if err != nil {
			g.hurt.Store(true)
		}
		return err
	})
}

// end ends the goroutines of a process, in the order in which a service stops.
func (g *server) end() {
	close(g.quit)
	if g.hub != nil {
		g.hub.StopSubscriptions()
		g.hub.Close()
	}
	if g.journal != nil {
		g.journal.Close()
	}
}

// cut closes the connections of a process, one after another: requests that end at the same time
// would continue in a random order.
func (w *world) cut(g *server) {
	for {
		w.settled()
		x := g.request()
		if x == nil {
			return
		}
		w.note("client %d is cut off", x.client.n)
		x.leave()
		g.closed(x)
		for _, o := range w.settled() {
			if o.client == x.client {
				w.release(o, errVanished)
			}
		}
	}
}

// request returns the open request of the client with the lowest number.
func (g *server) request() *exchange {
	if list := g.requests(); len(list) > 0 {
		return list[0]
	}
	return nil
}

// requests returns the open requests, by the number of their client.
func (g *server) requests() []*exchange {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(slices.Values(g.open), func(a, b *exchange) int { return a.client.n - b.client.n })
}

// opened adds a request. Its context ends when the client hangs up.
func (g *server) opened(c *client) (context.Context, *exchange) {
	ctx, cancel := context.WithCancel(context.Background())
	x := &exchange{client: c, server: g, cancel: cancel, header: http.Header{}}
	g.enter(x)
	return ctx, x
}

func (g *server) enter(x *exchange) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = append(g.open, x)
}

func (g *server) closed(x *exchange) {
	x.cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = slices.DeleteFunc(g.open, func(o *exchange) bool { return o == x })
}

// crash cuts the power, or kills the process, and starts the next process.
func (w *world) crash() {
	w.mu.Lock()
	g := w.owner
	up := w.up || w.draining != nil
	w.draining = nil
	g.dead.Store(true)
	how := w.rng.IntN(len(faulty.Losses) + 1)
	if how < len(faulty.Losses) {
		w.fs = w.fs.Crash(faulty.Losses[how], w.rng)
	} else {
		w.fs = w.fs.Kill()
	}
	w.up = false
	w.mu.Unlock()
	w.note("crash %d", how)
	for {
		list := slices.DeleteFunc(w.settled(), func(o *waiter) bool { return !o.disk })
		if len(list) == 0 {
			break
		}
		w.release(list[0], errCrashed)
	}
	w.cut(g)
	if up {
		w.graves.Go(g.end)
	}
	w.start()
}

// restart stops the process in an orderly way and starts the next one.
func (w *world) restart() {
	w.mu.Lock()
	g := w.owner
	w.up = false
	w.mu.Unlock()
	w.note("restart")
	g.stopping.Store(true)
	g.hub.StopSubscriptions()
	w.draining = g
}

// drained ends a process whose requests have ended.
func (w *world) drained() {
	g := w.draining
	w.draining = nil
	w.cut(g)
	w.note("drained")
	w.graves.Go(func() {
		g.end()
		if !g.dead.Load() {
			w.start()
		}
	})
}

// run runs the simulation and returns the first violation, or an empty string.
func (w *world) run() string {
	w.start()
	for i := range w.config.clients {
		w.newClient(i)
	}
	for i := 0; i < w.steps && w.faulty == ""; i++ {
		w.oneStep()
	}
	w.calm()
	var clients, final atomic.Bool
	go func() { w.clients.Wait(); clients.Store(true) }()
	w.until("the clients end", clients.Load)
	w.finish(&final)
	w.until("the final check ends", final.Load)
	var ended atomic.Bool
	go func() { w.owner.end(); w.graves.Wait(); ended.Store(true) }()
	w.until("the server ends", ended.Load)
	for _, g := range w.servers {
		if held := g.bodies.Stats().Held; held != 0 || g.handler != nil && g.handler.Subscribers() != 0 {
			w.violation("a server kept %d bytes of bodies, or subscriptions", held)
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
			w.restart()
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
		w.note("%s", o.name)
	}
	w.release(o, err)
}

// step sets the server's clock forwards or backwards.
func (w *world) step(d time.Duration) {
	ahead := w.shift.Add(int64(d))
	w.stepped, w.back = time.Now(), w.back || d < 0
	w.shifts = append(w.shifts, shift{time.Now(), ahead})
}

// oneStep lets one waiter go on, or lets something else happen.
func (w *world) oneStep() {
	list := w.settled()
	w.overdue(list)
	up := w.current() != nil
	for _, o := range list {
		if o.client != nil && o.client.x != nil && !o.idle && o.client.x.expired() {
			w.advance(o, os.ErrDeadlineExceeded)
			return
		}
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
	case r < 60:
		w.pass(time.Duration(w.rng.IntN(1<<w.rng.IntN(12))+1) * time.Millisecond)
		return
	case r < 62 && w.has("clock"):
		w.step(time.Duration(w.rng.IntN(20_000)-10_000) * time.Millisecond)
		w.note("the clock is %v ahead", time.Duration(w.shift.Load()))
		return
	case w.has("faults") && 62 <= r && r < 62+w.violence:
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
