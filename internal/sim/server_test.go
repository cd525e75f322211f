package sim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/api"
	"weir/internal/budget"
	"weir/internal/disk/faulty"
	"weir/internal/durable"
	"weir/internal/engine/jetstream"
	peers "weir/internal/engine/jetstream/nodes"
	"weir/internal/engine/journal"
	"weir/internal/hub"
)

// server is one process of the service.
type server struct {
	mu       sync.Mutex
	open     []*exchange // requests that the server works on
	dead     atomic.Bool // the process has crashed: its disk calls fail, and its responses do not count
	hurt     atomic.Bool // a disk call of the process failed
	limited  atomic.Bool // the disk was full, or could become full
	stopping atomic.Bool
	deleting atomic.Int64 // deletions in progress; meanwhile the simulation fails more disk calls
	bodies   *budget.Budget
	journal  *journal.Journal
	engine   *jetstream.Engine // the engine of a node; nil if the process has a journal
	members  *peers.Nodes
	met      bool // the process has heard all other nodes; for the scheduler
	link     *link
	away     atomic.Int64 // since when the node is cut off, as a duration since the start of the history; 0: it is not
	hub      *hub.Hub
	access   *access.Access
	handler  *api.Handler
	durable  *durable.Handler
	loop     *loop         // nil if the process has no event loop
	quit     chan struct{} // closed when the process ends
}

// start starts a process on the disk, in a goroutine of its own, because its disk calls wait until
// the scheduler lets them go on.
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
		<-time.After(time.Second)
		if !g.dead.Load() {
			w.start()
		}
	})
}

func (w *world) assemble(fs *faulty.FS, g *server) (err error) {
	if g.journal, err = journal.Open(fs, journal.Options{SegmentSize: segmentSize, Compress: true, QuickDisk: quickDisk(w.seed)}); err != nil {
		return fmt.Errorf("open the journal: %w", err)
	}
	if g.hub, err = hub.Open(context.Background(), g.journal, hub.Options{Now: w.tick, Frame: api.Frame, TrimAfter: trimAfter(w.seed)}); err != nil {
		return fmt.Errorf("open the hub: %w", err)
	}
	if g.access, err = access.Open(context.Background(), g.journal, access.Options{Now: w.tick}); err != nil {
		return fmt.Errorf("open access: %w", err)
	}
	g.handler = api.New(api.Options{Hub: g.hub, Access: g.access, Bodies: g.bodies, Logger: w.logger()})
	g.serveDurable()
	startLoop(w, g, "loop "+strconv.Itoa(len(w.servers)))
	w.graves.Go(g.expireKeys)
	return w.bootstrap(context.Background(), g)
}

// quickDisk returns the option of the journal with that name. With the default, a simulated disk is
// never quick.
func quickDisk(seed uint64) time.Duration {
	if seed/3%2 == 0 {
		return time.Hour
	}
	return 0
}

// trimAfter returns the option of the hub with that name. With the default, a minute, evicted batches
// would seldom be removed from a log before the history ends.
func trimAfter(seed uint64) time.Duration {
	if seed/8%2 == 0 {
		return time.Second
	}
	return 0
}

// expireKeys looks twice per second for keys that must revoke themselves now. It begins after a
// fraction of a millisecond, so that its timer never fires at the same time as another one.
func (g *server) expireKeys() {
	<-time.After(137 * time.Microsecond)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for g.awaits(tick) {
		g.access.Expire()
	}
}

// awaits waits for a tick. It returns false when the process ends, even if there is a tick too.
func (g *server) awaits(tick *time.Ticker) bool {
	select {
	case <-tick.C:
	case <-g.quit:
	}
	select {
	case <-g.quit:
		return false
	default:
		return true
	}
}

// bootstrap creates the project, the key and the streams that all clients use.
func (w *world) bootstrap(ctx context.Context, g *server) error {
	p, err := g.access.EnsureProject(ctx, "sim")
	if err == nil {
		_, err = g.access.ImportKey(ctx, access.KeySpec{Project: p.ID, Name: "sim"}, secret)
	}
	if err == nil {
		err = w.makeToken(ctx, g, p.ID)
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
	if err == nil {
		err = w.prepare(ctx, g)
	}
	return err
}

// makeToken creates the management token, unless an earlier process did.
func (w *world) makeToken(ctx context.Context, g *server, project weir.ProjectID) error {
	if _, err := g.access.AuthenticateToken([]string{"Bearer " + w.token}); err == nil {
		return nil
	}
	if w.token != "" {
		w.violation("the management token is lost")
	}
	_, secret, err := g.access.CreateToken(ctx, "sim")
	if err == nil && !g.dead.Load() {
		w.token, w.project = secret.Reveal(), project
	}
	return err
}

// attach makes each disk call of a server wait until the scheduler lets it go on.
func (w *world) attach(fs *faulty.FS, g *server) {
	type call struct {
		kind faulty.Kind
		name string
		off  int64
		len  int
	}
	calls := map[call]int{}
	var mu sync.Mutex
	fs.OnCall(func(c faulty.Call) error {
		if g.dead.Load() {
			return errCrashed
		}
		if c.Kind == faulty.Read && w.quiet.Load() {
			return nil
		}
		key := call{c.Kind, c.Name, c.Off, c.Len}
		mu.Lock()
		calls[key]++
		n := calls[key]
		mu.Unlock()
		err := w.gate("disk "+c.Kind.String()+" "+c.Name+" "+strconv.FormatInt(c.Off, 10)+"+"+strconv.Itoa(c.Len)+" #"+strconv.Itoa(n), nil)
		if g.dead.Load() {
			return errCrashed
		}
		if err != nil {
			g.hurt.Store(true)
		}
		return err
	})
}

// end ends the goroutines of a process, in the order in which a real service stops its parts.
func (g *server) end() {
	close(g.quit)
	if g.link != nil {
		g.endNode()
		return
	}
	if g.hub != nil {
		g.hub.StopSubscriptions()
		g.hub.Close()
	}
	if g.journal != nil {
		g.journal.Close()
	}
	if g.loop != nil {
		g.loop.stop()
	}
}

// cut closes the connections of a process one after another. If several requests ended at the same
// time, their clients would continue in a random order.
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

// requests returns the open requests, sorted by the number of their client.
func (g *server) requests() []*exchange {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := slices.Clone(g.open)
	slices.SortFunc(list, func(a, b *exchange) int { return a.client.n - b.client.n })
	return list
}

// opened adds a request. Its context ends when the client hangs up.
func (g *server) opened(c *client) (context.Context, *exchange) {
	ctx, cancel := context.WithCancel(context.Background())
	x := &exchange{client: c, server: g, ctx: ctx, cancel: cancel, header: http.Header{}}
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

// restart begins to stop the process in an orderly way. The method drained completes this.
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

// drained cuts off the requests that are still open, ends the process that is being stopped, and
// starts the next process.
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
