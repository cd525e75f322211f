package trials

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/internal/contract"
	"weir/internal/faultnet"
)

var (
	kills  = flag.Int("trials.kills", 0, "number of nodes that TestStorm kills under load")
	cuts   = flag.Int("trials.cuts", 0, "number of times that TestStorm cuts the network")
	fulls  = flag.Int("trials.fulls", 0, "number of times that TestStorm fills the disk of one node or two")
	clocks = flag.Int("trials.clocks", 0, "number of times that TestStorm sets the clock of a node wrong")
)

// Three nodes run under load, each with a machine, a disk and a clock of its own. All settings that
// matter have their defaults, and the streams keep batches for the shortest time possible, so that
// trims and purges meet every fault. The faults come in random order, some of them inside others:
// nodes are killed, frozen and restarted, the network is cut, disks fill up, and clocks are wrong by
// hours. Clients on all sides know what they were told, and the rules of book and guard say what
// that must be: nothing is lost, repeated, evicted early or served after its revocation. A node that
// exits by itself is started again, as a supervisor would do.
func TestStorm(t *testing.T) {
	if *kills+*cuts+*fulls+*clocks == 0 {
		t.Skip("takes long; make chaos runs it")
	}
	r, _ := seeded(t)
	n := newNetwork(t, 3)
	c := newCluster(t, "--rate-live", "0", "--rate-anonymous", "0", "--demo=false")
	s := &storm{n: n, pauses: map[string]time.Duration{}, done: map[string]int{}, quit: make(chan struct{})}
	for i := range c.nodes {
		c.clocks = append(c.clocks, newWrongClock(t))
		s.disks = append(s.disks, smallNodeDisk(t, c, i, 512))
	}
	n.place(c)
	c.start(0, 1, 2)
	s.chaos = &chaos{t: t, c: c, r: r, client: n.client()}
	s.supervise()
	s.load = newLoad(s.chaos, keyed, numbered, byClient, numbered)
	s.guard = newGuard(s.chaos, s.load.flows[0].id)
	h := newWitness(s.chaos, 2)
	s.play()
	s.guard.finish()
	s.load.finish()
	h.check()
	s.report()
}

// storm is a cluster under load and under faults.
type storm struct {
	*chaos
	n     *network
	disks []*faultnet.Disk
	load  *load
	guard *guard

	quit       chan struct{} // closed at the end
	supervisor sync.WaitGroup
	mu         sync.Mutex
	down       [3]bool // nodes that the test keeps down
	exits      []string

	left   []string                 // faults to come
	done   map[string]int           // number of faults, by kind
	pauses map[string]time.Duration // longest time without an acknowledgement on any stream, by kind
}

// supervise starts nodes again when they have exited. A node that cannot start, for example because
// its disk is full, is started again after a second.
func (s *storm) supervise() {
	for i := range s.c.nodes {
		s.supervisor.Go(func() {
			for {
				p := s.c.node(i)
				select {
				case <-p.exited:
				case <-s.quit:
					return
				}
				s.noteExit(i, p)
				for !s.isDown(i) {
					err := s.c.startOne(i)
					if err == nil {
						break
					}
					s.t.Logf("node %d did not start: %v", i, lastLine(err.Error()))
					if !s.wait(time.Second) {
						return
					}
				}
				if s.isDown(i) && !s.wait(50*time.Millisecond) {
					return
				}
			}
		})
	}
	s.t.Cleanup(func() {
		close(s.quit)
		for i := range s.c.nodes {
			s.c.node(i).kill() // ends an attempt to start, too
		}
		s.supervisor.Wait()
		for i := range s.c.nodes {
			s.c.node(i).kill()
		}
	})
}

// lastLine returns the last line of a log, or the line with the reason if the process panicked.
func lastLine(text string) string {
	if _, why, ok := strings.Cut(text, "panic: "); ok {
		why, _, _ = strings.Cut(why, "\n")
		return "panic: " + why
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// noteExit checks how a node has exited.
func (s *storm) noteExit(i int, p *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := p.logged()
	if hasOwnRace(log) || strings.Contains(log, "panic:") || strings.Contains(log, "fatal error:") {
		s.t.Errorf("node %d: data race or panic:\n%s", i, log)
	}
	if p.err == nil || !strings.Contains(p.err.Error(), "signal: killed") && p.err != nil {
		note := fmt.Sprintf("node %d exited: %v: %s", i, p.err, lastLine(log))
		if !slices.Contains(s.exits, note) {
			s.exits = append(s.exits, note)
		}
	}
}

func (s *storm) isDown(i int) bool { s.mu.Lock(); defer s.mu.Unlock(); return s.down[i] }

func (s *storm) setDown(i int, down bool) { s.mu.Lock(); defer s.mu.Unlock(); s.down[i] = down }

// wait waits and reports whether the test goes on.
func (s *storm) wait(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.quit:
		return false
	case <-t.C:
		return true
	}
}

// ready waits until the readiness of a node has this status.
func (s *storm) ready(node, status int) {
	s.t.Helper()
	contract.Eventually(s.t, healWithin, fmt.Sprintf("the readiness of node %d is %d", node, status), func() bool {
		resp, err := s.client.Get("http://" + s.n.operator[node] + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == status
	})
}

// allReady waits until every node is ready.
func (s *storm) allReady() {
	s.t.Helper()
	for i := range s.c.nodes {
		s.ready(i, http.StatusOK)
	}
}

// play causes the faults.
func (s *storm) play() {
	for what, n := range map[string]int{"kill": *kills, "cut": *cuts, "full disk": *fulls, "wrong clock": *clocks} {
		s.left = append(s.left, slices.Repeat([]string{what}, n)...)
	}
	slices.Sort(s.left) // the order of a map differs from run to run
	s.r.Shuffle(len(s.left), func(i, j int) { s.left[i], s.left[j] = s.left[j], s.left[i] })
	for len(s.left) > 0 && !s.t.Failed() {
		what := s.left[0]
		s.left = s.left[1:]
		switch what {
		case "kill":
			s.kill(s.r.IntN(3))
			s.more(s.done["kill"])
		case "cut":
			s.cut(s.r.IntN(3))
		case "full disk":
			s.fill(s.r.IntN(3))
		case "wrong clock":
			s.shift(s.r.IntN(3))
		}
	}
	if s.t.Failed() {
		s.t.FailNow()
	}
}

// during causes a fault while every stream accepts batches, and waits until they do so again and
// every node is ready. It records the longest time for which a stream accepted none.
func (s *storm) during(what string, do func() string) {
	s.t.Helper()
	s.load.accept()
	for _, f := range s.load.flows {
		f.mu.Lock()
		f.worst = 0
		f.mu.Unlock()
	}
	begun := time.Now()
	detail := do()
	healed := time.Now()
	s.load.accept()
	accepted := time.Since(healed)
	s.allReady()
	worst := time.Duration(0)
	for _, f := range s.load.flows {
		f.mu.Lock()
		worst = max(worst, f.worst)
		for _, fault := range f.broken() {
			s.t.Errorf("%s stream %s: %s", f.kind, f.id, fault)
		}
		f.mu.Unlock()
	}
	s.done[what]++
	s.pauses[what] = max(s.pauses[what], worst)
	s.t.Logf("%s %s %d: %s for %v; all streams accept batches %v after its end, all nodes are ready after %v; longest time without an acknowledgement %v",
		begun.Format("15:04:05"), what, s.done[what], detail, healed.Sub(begun).Round(time.Millisecond), accepted.Round(time.Millisecond),
		time.Since(healed).Round(time.Millisecond), worst.Round(time.Millisecond))
}

// inside kills a node in the middle of another fault, if kills are left and chance says so. It
// returns a description.
func (s *storm) inside(node int) string {
	i := slices.Index(s.left, "kill")
	if i < 0 || s.r.IntN(3) > 0 {
		return ""
	}
	s.left = slices.Delete(s.left, i, i+1)
	s.c.node(node).kill()
	s.done["kill"]++
	return fmt.Sprintf(", in which node %d was killed", node)
}

func (s *storm) seconds(from, to int) time.Duration {
	return time.Duration(from+s.r.IntN(to-from)) * time.Second
}

// kill kills a node. The node is down until the others accept batches.
func (s *storm) kill(node int) {
	s.during("kill", func() string {
		s.setDown(node, true)
		s.c.node(node).kill()
		s.load.accept()
		s.setDown(node, false)
		return fmt.Sprintf("node %d was down", node)
	})
}

// more causes further faults after some kills: a frozen node, a restart of one node after the other
// as in an upgrade, and a kill of all nodes at once.
func (s *storm) more(kill int) {
	switch kill % 5 {
	case 1:
		node := s.r.IntN(3)
		s.during("freeze", func() string {
			p := s.c.node(node).cmd.Process
			p.Signal(syscall.SIGSTOP)
			s.wait(s.seconds(1, 25))
			p.Signal(syscall.SIGCONT)
			return fmt.Sprintf("node %d was frozen", node)
		})
	case 2:
		for node := range s.c.nodes {
			s.during("restart", func() string {
				s.setDown(node, true)
				s.c.node(node).stop(s.t)
				s.setDown(node, false)
				return fmt.Sprintf("node %d was stopped", node)
			})
		}
	case 4:
		s.during("kill of all", func() string {
			var all sync.WaitGroup
			for i := range s.c.nodes {
				all.Go(s.c.node(i).kill)
			}
			all.Wait()
			return "all nodes were killed"
		})
	}
}

// cut cuts a random set of links.
func (s *storm) cut(node int) {
	left, right := (node+1)%3, (node+2)%3
	kinds := []struct {
		what  string
		links []link
	}{
		{"was cut off", linksOf(node)},
		{"could not receive", []link{{left, node}, {right, node}}},
		{"could not send", []link{{node, left}, {node, right}}},
		{"was cut off from one node", linksBetween(node, left)},
		{"could not receive from one node", []link{{left, node}}},
		{"and both other nodes were alone", append(linksOf(node), linksBetween(left, right)...)},
	}
	kind := kinds[s.r.IntN(len(kinds))]
	s.during("cut", func() string {
		s.n.cut(kind.links...)
		s.wait(s.seconds(1, 25)) // in total often longer than the lease of a node (forgetWithin)
		also := s.inside(s.r.IntN(3))
		s.wait(s.seconds(1, 25))
		s.n.heal()
		return fmt.Sprintf("node %d %s%s", node, kind.what, also)
	})
}

// fill fills the disk of a node, or of two nodes. The other nodes continue while one disk is full.
func (s *storm) fill(node int) {
	nodes := []int{node}
	if s.done["full disk"]%2 == 1 {
		nodes = append(nodes, (node+1)%3)
	}
	s.during("full disk", func() string {
		for _, i := range nodes {
			if err := s.disks[i].Fill(); err != nil {
				s.t.Error(err)
			}
		}
		for _, i := range nodes {
			s.ready(i, http.StatusServiceUnavailable)
		}
		if len(nodes) == 1 {
			s.load.accept()
		}
		also := s.inside(nodes[s.r.IntN(len(nodes))])
		s.wait(s.seconds(5, 20))
		for _, i := range nodes {
			if err := s.disks[i].Free(); err != nil {
				s.t.Error(err)
			}
		}
		return fmt.Sprintf("nodes %v had full disks%s", nodes, also)
	})
}

// shift sets the clock of a node wrong by hours. The node is not ready, and the others continue.
func (s *storm) shift(node int) {
	by := time.Duration(1+s.r.IntN(5)) * time.Hour
	if s.r.IntN(2) == 0 {
		by = -by
	}
	s.during("wrong clock", func() string {
		s.c.clocks[node].set(by)
		s.ready(node, http.StatusServiceUnavailable)
		s.load.accept()
		also := s.inside(node)
		if s.r.IntN(3) == 0 {
			s.n.cut(linksOf(node)...)
			also += ", in which it was cut off"
		}
		s.wait(s.seconds(10, 30))
		s.n.heal()
		s.wait(s.seconds(1, 5))
		s.c.clocks[node].set(0)
		return fmt.Sprintf("the clock of node %d was wrong by %v%s", node, by, also)
	})
}

// report logs what happened.
func (s *storm) report() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.exits {
		s.t.Log(e)
	}
	worst := time.Duration(0)
	for _, p := range s.pauses {
		worst = max(worst, p)
	}
	s.t.Logf("faults: %v; longest times without an acknowledgement: %v", s.done, s.pauses)
	s.t.Logf("longest time without an acknowledgement: %v", worst)
}

// await waits until a group is done.
func await(t testing.TB, what string, group *sync.WaitGroup) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(healWithin):
		t.Fatalf("did not happen within %v: %s", healWithin, what)
	}
}
