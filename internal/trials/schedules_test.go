package trials

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	core "weir" // this package has a function named weir
	"weir/client"
	"weir/client/http3"
	"weir/internal/faultnet"
)

var schedules = flag.Int("trials.schedules", 1, "number of random schedules per protocol that TestSchedules plays")

// TestSchedules publishes and subscribes through a fault proxy that plays random schedules. Now and
// then the server is killed, its disk fills up or its rate limit falls. Apart from that the server
// has its default settings. Every event is stored once and in order, every acknowledgement is true,
// and the subscriber gets everything once and in order. Publisher and subscriber do not give up
// before their time limit. A failing schedule prints its seed; with -trials.seed set to this number,
// it is the first schedule of the run.
func TestSchedules(t *testing.T) {
	if testing.Short() {
		t.Skip("this test builds and runs the server")
	}
	first := *seed
	if first == 0 {
		first = rand.Uint64N(1e9)
	}
	for _, protocol := range []string{"h1", "h2c", "h2", "h3"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			s := newScheduled(t, protocol)
			for n := range *schedules {
				s.play(t, first+uint64(n))
				if t.Failed() {
					t.Fatalf("failed with -trials.seed=%d\n%s", first+uint64(n), s.logged())
				}
			}
			t.Logf("%d schedules from -trials.seed=%d: the server was killed in %d, its disk was full in %d, its rate limit fell in %d",
				*schedules, first, s.killed, s.filled, s.limited)
		})
	}
}

// scheduled is the server of one subtest, and the protocol over which the clients use it.
type scheduled struct {
	protocol string
	data     string
	disk     *faultnet.Disk // the small disk with the data directory; nil if this process may not mount
	config   string         // the configuration file
	mu       sync.Mutex
	*server

	killed, filled, limited int // number of schedules with each fault
}

func newScheduled(t *testing.T, protocol string) *scheduled {
	t.Helper()
	s := &scheduled{protocol: protocol, data: t.TempDir(), config: filepath.Join(t.TempDir(), "weir.toml")}
	if d, data := smallDisk(t); d != nil {
		s.disk, s.data = d, data
	}
	if err := os.WriteFile(s.config, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.server, err = start(program(t), s.data, "--config", s.config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.server.stop(t) })
	return s
}

func host(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// restart kills the server and starts it again at the same addresses.
func (s *scheduled) restart(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
	again, err := start(program(t), s.data, "--config", s.config, "--http", host(t, s.url), "--https", host(t, s.secure))
	if err != nil {
		t.Error(err)
		return
	}
	s.server = again
}

// startProxy starts a proxy, and returns it with the options of a client that connects through it.
func (s *scheduled) startProxy(t *testing.T, seed uint64) (*faultnet.Proxy, client.Options) {
	t.Helper()
	o := faultnet.Options{Backend: host(t, s.url), HTTP: seed%4 > 0, Seed: seed}
	c := client.Options{Key: liveKey, HTTP1: s.protocol == "h1", Retry: time.Minute}
	scheme := "http://"
	switch s.protocol {
	case "h2":
		scheme = "https://"
		config, trust, err := faultnet.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		o.HTTP, o.TLS, c.TLS = true, config, &tls.Config{RootCAs: trust}
	case "h3":
		scheme = "https://"
		o.HTTP, o.UDP, o.Backend = false, true, host(t, s.secure)
		transport := http3.New(&tls.Config{RootCAs: s.trust(t)})
		t.Cleanup(func() { transport.Close() })
		c.Transport = transport
	}
	p, err := faultnet.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	c.URL = scheme + p.Address()
	return p, c
}

const scheduledEvents = 300

// play publishes under one schedule and checks the result.
func (s *scheduled) play(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	p, o := s.startProxy(t, seed)
	c, direct := newGoClient(t, o), newGoClient(t, client.Options{URL: s.url, Key: liveKey, HTTP1: true, Retry: time.Minute})
	stream, err := direct.CreateStream(t.Context(), client.NewStream{Name: fmt.Sprintf("schedule %d", seed)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var work sync.WaitGroup
	steps := faultnet.Schedule(seed, 4, s.protocol == "h2" || s.protocol != "h3" && seed%4 > 0, s.protocol == "h3")
	work.Go(func() { p.Play(ctx, steps) })
	// After a kill, the server begins a new window of the rate limit. For some ranges of seeds there
	// are no kills, so that windows also last until their end.
	if r.IntN(3) > 0 && seed/16%2 == 0 {
		s.killed++
		work.Go(func() { s.restart(t) })
	}
	hold := time.Duration(r.IntN(2000)) * time.Millisecond
	if s.disk != nil && r.IntN(4) == 0 {
		work.Go(func() {
			if s.fill(ctx, t, hold) {
				s.filled++
			}
		})
	}
	choices := rand.New(rand.NewPCG(seed, 2))
	if r.IntN(2) == 0 {
		work.Go(func() {
			if s.limit(ctx, t, choices, hold) {
				s.limited++
			}
		})
	}
	work.Go(func() {
		var got []string
		for b, err := range c.Subscriber(stream.ID, client.SubscriberOptions{From: client.Oldest, GiveUp: 2 * time.Minute}).Batches(ctx) {
			if err != nil || b.Gap != nil || b.Reset != nil {
				t.Errorf("the subscriber got %+v, %v", b, err)
				return
			}
			for _, e := range b.Events {
				got = append(got, string(e))
			}
			if len(got) >= scheduledEvents {
				break
			}
		}
		inOrder(t, "received", got)
	})
	acks := s.publish(ctx, t, c, stream.ID, r)
	work.Wait()
	if t.Failed() {
		t.Logf("the schedule was %v", steps)
		return
	}
	check(t, direct, stream.ID, acks)
	if err := direct.DeleteStream(t.Context(), stream.ID); err != nil { // frees the space, because the disk is small
		t.Error(err)
	}
}

// publish adds the events to a publisher and returns the acknowledgements.
func (s *scheduled) publish(ctx context.Context, t *testing.T, c *client.Client, id core.StreamID, r *rand.Rand) (acks []core.Ack) {
	pub, err := c.Publisher(ctx, id, client.PublisherOptions{
		BatchEvents: 1 + r.IntN(8), GiveUp: 3 * time.Minute, OnAck: func(a core.Ack) { acks = append(acks, a) },
	})
	if err != nil {
		t.Error(err)
		return nil
	}
	for n := range scheduledEvents {
		if err := pub.Add(ctx, fmt.Sprintf("%d %s", n+1, strings.Repeat("x", r.IntN(600)))); err != nil {
			t.Errorf("add %d: %v", n+1, err)
			break
		}
	}
	if err := pub.Close(ctx); err != nil {
		t.Errorf("close the publisher: %v", err)
	}
	return acks
}

// check compares the stored batches with the published events and the acknowledgements.
func check(t *testing.T, c *client.Client, id core.StreamID, acks []core.Ack) {
	t.Helper()
	at, err := c.Cursor(t.Context(), id)
	if err != nil {
		t.Error(err)
		return
	}
	var events []string
	stored := map[core.Seq]int{}
	for b, err := range c.Subscriber(id, client.SubscriberOptions{From: client.Oldest, Until: &at.Cursor}).Batches(t.Context()) {
		if err != nil || b.Gap != nil {
			t.Errorf("read back %+v, %v", b, err)
			return
		}
		stored[b.Seq] = len(b.Events)
		for _, e := range b.Events {
			events = append(events, string(e))
		}
	}
	inOrder(t, "stored", events)
	for _, a := range acks {
		if n, ok := stored[a.Seq]; !ok || n != int(a.Accepted) {
			t.Errorf("acknowledged %+v, but %d events are stored under this sequence", a, n)
		}
	}
	if len(acks) != len(stored) {
		t.Errorf("%d acknowledgements for %d batches", len(acks), len(stored))
	}
}

// inOrder checks that the list contains all events that were added, each once and in order.
func inOrder(t *testing.T, what string, events []string) {
	t.Helper()
	for i, e := range events {
		if number, _, _ := strings.Cut(strings.Trim(e, `"`), " "); number != fmt.Sprint(i+1) {
			t.Errorf("%s event %d is %.20s", what, i+1, e)
			return
		}
	}
	if len(events) != scheduledEvents {
		t.Errorf("%s %d events, want %d", what, len(events), scheduledEvents)
	}
}

func newGoClient(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
