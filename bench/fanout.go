package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// subscriber counts the batches of one subscription.
type subscriber struct {
	conn  net.Conn
	count atomic.Int64
}

func subscribe(t *target, stream int, cursor string) (*subscriber, error) {
	c, err := net.Dial("tcp", t.addr)
	if err != nil {
		return nil, err
	}
	path := "/v1/streams/" + t.streams[stream] + "?cursor=" + cursor
	_, err = c.Write(request("GET", path, t.key, nil, "Accept: text/event-stream"))
	return &subscriber{conn: c}, err
}

var marker = []byte("\nevent: batch\n")

// read counts batches until there are n, or until the connection ends.
func (s *subscriber) read(n int64) {
	room := make([]byte, 64<<10)
	left := 0 // number of bytes kept from the last read, because they may hold the start of a marker
	for {
		m, err := s.conn.Read(room[left:])
		buf := room[:left+m]
		for {
			i := bytes.Index(buf, marker)
			if i < 0 {
				break
			}
			s.count.Add(1)
			buf = buf[i+len(marker):]
		}
		left = copy(room, buf[max(0, len(buf)-64):])
		if err != nil || s.count.Load() >= n {
			return
		}
	}
}

// streaming measures stalled subscribers, catch-up, fan-out and compression.
func streaming(dir string) ([]figure, error) {
	var figures []figure
	for i, part := range []func(*target) ([]figure, error){stalledSubscribers, catchUp, fanOut, compressed} {
		f, err := onFreshServer(filepath.Join(dir, "streaming"+strconv.Itoa(i)), part)
		if err != nil {
			return figures, err
		}
		figures = append(figures, f...)
	}
	return figures, nil
}

// onFreshServer runs a measurement on a new server, so that earlier measurements do not affect the
// server's memory.
func onFreshServer(dir string, part func(*target) ([]figure, error)) ([]figure, error) {
	t, err := startWeir(dir)
	if err != nil {
		return nil, err
	}
	defer t.stop()
	if err := t.createStreams(4); err != nil {
		return nil, err
	}
	return part(t)
}

// idle measures the resident memory of idle subscribers, with and without event loops. A server at
// rest returns memory that it does not need. So idle measures twice: just after the subscribers have
// connected, and when the server is at rest. Both servers run at the same time, because coming to
// rest takes a minute.
func idle(dir string) ([]figure, error) {
	cases := []*crowdOfIdle{
		{name: "memory of an idle subscriber (15,000)", flag: "--event-loop=true", n: 15000},
		{name: "memory of an idle subscriber, no event loops (4,000)", flag: "--event-loop=false", n: 4000},
	}
	defer func() {
		for _, c := range cases {
			c.close()
		}
	}()
	for _, c := range cases {
		if err := c.start(dir); err != nil {
			return nil, err
		}
	}
	time.Sleep(restTime)
	var figures []figure
	for _, c := range cases {
		c.before = c.t.memory()
		if err := c.connect(); err != nil {
			return nil, err
		}
		time.Sleep(2 * time.Second)
		figures = append(figures, figure{c.name, c.each(), "KiB"})
	}
	time.Sleep(restTime)
	for _, c := range cases {
		figures = append(figures, figure{"  at rest (" + c.flag + ")", c.each(), "KiB"})
	}
	return figures, nil
}

// restTime is the time after which a server that has nothing to do has returned its unused memory.
const restTime = 65 * time.Second

// crowdOfIdle is a server with many idle subscribers.
type crowdOfIdle struct {
	name, flag string
	n          int
	t          *target
	before     int64 // memory before the subscribers connected
	all        []*subscriber
}

func (c *crowdOfIdle) start(dir string) (err error) {
	// All subscribers come from one address. Only the address of a trusted proxy may use all
	// connections.
	if c.t, err = startWeir(filepath.Join(dir, "idle"+c.flag), c.flag, "--max-subscribers", "100000", "--trusted-proxies", "127.0.0.1/32"); err != nil {
		return err
	}
	return c.t.createStreams(4)
}

func (c *crowdOfIdle) connect() error {
	for range c.n {
		s, err := subscribe(c.t, 1, "head")
		if err != nil {
			return err
		}
		c.all = append(c.all, s)
	}
	answer := make([]byte, 4096)
	for _, s := range c.all {
		if m, err := s.conn.Read(answer); err != nil || !bytes.HasPrefix(answer[:m], []byte("HTTP/1.1 200 ")) {
			return fmt.Errorf("subscribe: %v: %.200q", err, answer[:m])
		}
	}
	return nil
}

// each returns how much memory a subscriber takes, in KiB.
func (c *crowdOfIdle) each() float64 {
	return float64(c.t.memory()-c.before) / float64(c.n) / 1024
}

func (c *crowdOfIdle) close() {
	for _, s := range c.all {
		s.conn.Close()
	}
	if c.t != nil {
		c.t.stop()
	}
}

func catchUp(t *target) ([]figure, error) {
	const n = 100_000 // 98 MiB, which fit into stream 0
	payload := body(1 << 10)
	var wg sync.WaitGroup
	var failure atomic.Pointer[error]
	var left atomic.Int64
	left.Store(n)
	for range 64 {
		wg.Go(func() {
			c, err := dial(t.addr)
			for r := request("POST", t.publishPath(0), t.key, payload); err == nil && left.Add(-1) >= 0; {
				err = c.do(r)
			}
			if err != nil {
				failure.Store(&err)
			}
		})
	}
	wg.Wait()
	if p := failure.Load(); p != nil {
		return nil, *p
	}
	var figures []figure
	for _, readers := range []int{1, 8} {
		const rounds = 9 // a round takes only a tenth of a second, so a single round tells little
		var rates, cpus []float64
		for range rounds {
			before, start := t.cpu(), time.Now()
			for range readers {
				s, err := subscribe(t, 0, "0")
				if err != nil {
					return nil, err
				}
				wg.Go(func() { s.read(n); s.conn.Close() })
			}
			wg.Wait()
			total := float64(n * readers)
			rates = append(rates, total/time.Since(start).Seconds())
			cpus = append(cpus, (t.cpu()-before).Seconds()*100_000/total)
		}
		slices.Sort(rates)
		slices.Sort(cpus)
		figures = append(figures,
			figure{fmt.Sprintf("catch-up of 100,000 batches of 1 KiB, %d readers, median of %d", readers, rounds), rates[rounds/2], "batches/s"},
			figure{"  server CPU for 100,000", cpus[rounds/2], "s"},
			figure{"  memory of the server", float64(t.memory()) / (1 << 20), "MiB"})
	}
	return figures, nil
}

// audience reads many subscriptions with one goroutine that polls them every few milliseconds. A
// thousand goroutines woken for each batch would take CPU time from the server under test; real
// subscribers run on other machines.
type audience struct {
	files []*os.File
	tails [][]byte // for each subscription the last bytes read, because they may hold the start of a marker
	count atomic.Int64
	seen  func(seq int)
	stop  chan struct{}
	done  chan struct{}
}

const pollEvery = 5 * time.Millisecond

func newAudience(t *target, stream, n int, seen func(seq int)) (*audience, error) {
	a := &audience{seen: seen, stop: make(chan struct{}), done: make(chan struct{})}
	for range n {
		s, err := subscribe(t, stream, "head")
		if err != nil {
			return nil, err
		}
		f, err := s.conn.(*net.TCPConn).File()
		s.conn.Close()
		if err == nil {
			err = unix.SetNonblock(int(f.Fd()), true)
		}
		if err != nil {
			return nil, err
		}
		a.files, a.tails = append(a.files, f), append(a.tails, nil)
	}
	go a.listen()
	return a, nil
}

func (a *audience) listen() {
	defer close(a.done)
	buf := make([]byte, 256<<10)
	fds := make([]int, len(a.files))
	for i, f := range a.files {
		fds[i] = int(f.Fd())
		unix.SetNonblock(fds[i], true) // needed because Fd has switched the file to blocking mode
	}
	for {
		for i, fd := range fds {
			left := copy(buf, a.tails[i])
			n, _ := unix.Read(fd, buf[left:])
			if n <= 0 {
				continue
			}
			b := buf[:left+n]
			if got := bytes.Count(b, marker); got > 0 {
				a.count.Add(int64(got))
				last := bytes.LastIndex(b, marker)
				if at := bytes.LastIndex(b[:last], []byte("id: ")); at >= 0 && a.seen != nil {
					seq, _ := strconv.Atoi(string(b[at+4 : last]))
					a.seen(seq)
				}
				b = b[last+len(marker):]
			}
			a.tails[i] = append(a.tails[i][:0], b[max(0, len(b)-64):]...)
		}
		select {
		case <-a.stop:
			return
		case <-time.After(pollEvery):
		}
	}
}

func (a *audience) close() {
	close(a.stop)
	<-a.done
	for _, f := range a.files {
		f.Close()
	}
}

// fanOut publishes to a stream with 1,000 subscribers. It increases the rate until the subscribers
// cannot keep up.
func fanOut(t *target) ([]figure, error) {
	const n = 1000
	var published sync.Map // the time of each publish, by sequence
	var delays []time.Duration
	a, err := newAudience(t, 2, n, func(seq int) {
		if at, ok := published.Load(seq); ok {
			delays = append(delays, time.Since(at.(time.Time)))
		}
	})
	if err != nil {
		return nil, err
	}
	defer a.close()
	// With a single publisher, its latency would limit the rate.
	const publishers = 16
	work := make(chan int)
	var publishing sync.WaitGroup
	var failure atomic.Pointer[error]
	payload := body(1 << 10)
	for range publishers {
		c, err := dial(t.addr)
		if err != nil {
			return nil, err
		}
		defer c.conn.Close()
		publishing.Go(func() {
			for seq := range work {
				published.Store(seq, time.Now())
				if err := c.do(request("POST", "/v1/streams/"+t.streams[2]+"/"+strconv.Itoa(seq), t.key, payload)); err != nil {
					failure.Store(&err)
				}
			}
		})
	}
	defer publishing.Wait()
	defer close(work)
	time.Sleep(time.Second)
	seq := 0
	var figures []figure
	most := 0.0
	for _, rate := range []int{200, 300, 400, 600, 800, 1000, 1300} {
		const span = 5 * time.Second
		base := a.count.Load()
		due := int64(rate) * int64(span/time.Second) * n
		before, start := t.cpu(), time.Now()
		for i := range rate * int(span/time.Second) {
			time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
			seq++
			work <- seq
			if p := failure.Load(); p != nil {
				return figures, *p
			}
		}
		for deadline := time.Now().Add(10 * time.Second); a.count.Load()-base < due && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		wall, got := time.Since(start), a.count.Load()-base
		figures = append(figures,
			figure{fmt.Sprintf("fan-out to 1,000, %d batches/s of 1 KiB: delivered", rate), float64(got) / wall.Seconds(), "1/s"},
			figure{"  share of expected deliveries", float64(got) / float64(due), ""},
			figure{"  server CPU for 100,000 deliveries", (t.cpu() - before).Seconds() * 100_000 / float64(got), "s"})
		if slices.Sort(delays); len(delays) > 0 {
			figures = append(figures, figure{"  delay p50 (polled every 5 ms)", ms(delays[len(delays)/2]), "ms"},
				figure{"  delay p99", ms(delays[len(delays)*99/100]), "ms"})
		}
		delays = delays[:0]
		if float64(got) < 0.99*float64(due) || wall > span+span/20 {
			break // subscribers no longer keep up
		}
		most = float64(got) / wall.Seconds()
	}
	return append(figures, figure{"fan-out to 1,000: highest sustained rate", most, "1/s"}), nil
}
