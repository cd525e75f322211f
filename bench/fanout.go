package main

import (
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// subscriber counts the batches that come over one subscription.
type subscriber struct {
	conn  net.Conn
	count atomic.Int64
	delay []time.Duration // of each batch, where publishing times are known
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

// read counts until the connection ends, or n batches have come.
func (s *subscriber) read(n int64, seen func(batch []byte)) {
	buf := make([]byte, 0, 64<<10)
	for {
		m, err := s.conn.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+m]
		for {
			i := bytes.Index(buf, marker)
			if i < 0 {
				break
			}
			if seen != nil {
				seen(buf[:i])
			}
			s.count.Add(1)
			buf = buf[i+len(marker):]
		}
		// What is left may hold the beginning of a marker, and the id line before it.
		keep := buf[max(0, len(buf)-64):]
		buf = append(buf[:0:0], make([]byte, 0, 64<<10)...)
		buf = append(buf, keep...)
		if err != nil || (n > 0 && s.count.Load() >= n) {
			return
		}
	}
}

// streaming measures fan-out, catch-up and idle subscribers.
func streaming(dir string) ([]figure, error) {
	t, err := startWeir(filepath.Join(dir, "streaming"))
	if err != nil {
		return nil, err
	}
	defer t.stop()
	if err := t.createStreams(4); err != nil {
		return nil, err
	}
	var figures []figure
	for _, part := range []func(*target) ([]figure, error){idleSubscribers, catchUp, fanOut} {
		f, err := part(t)
		if err != nil {
			return figures, err
		}
		figures = append(figures, f...)
	}
	return figures, nil
}

func idleSubscribers(t *target) ([]figure, error) {
	const n = 5000
	before := t.memory()
	var all []*subscriber
	for range n {
		s, err := subscribe(t, 1, "head")
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	answer := make([]byte, 4096)
	for _, s := range all {
		if _, err := s.conn.Read(answer); err != nil {
			return nil, err
		}
	}
	time.Sleep(2 * time.Second)
	each := float64(t.memory()-before) / n / 1024
	for _, s := range all {
		s.conn.Close()
	}
	return []figure{{"memory of an idle subscriber (5,000)", each, "KiB"}}, nil
}

func catchUp(t *target) ([]figure, error) {
	const n = 100_000 // 98 MiB, which stream 0 keeps
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
		before, start := t.cpu(), time.Now()
		for range readers {
			s, err := subscribe(t, 0, "0")
			if err != nil {
				return nil, err
			}
			wg.Go(func() { s.read(n, nil); s.conn.Close() })
		}
		wg.Wait()
		total := float64(n * readers)
		wall := time.Since(start).Seconds()
		figures = append(figures,
			figure{fmt.Sprintf("catch-up of 100,000 batches of 1 KiB, %d readers", readers), total / wall, "batches/s"},
			figure{"  server CPU for 100,000", (t.cpu() - before).Seconds() * 100_000 / total, "s"},
			figure{"  memory of the server", float64(t.memory()) / (1 << 20), "MiB"})
	}
	return figures, nil
}

// fanOut publishes at a rate to a stream with 1,000 subscribers, then at higher ones while all keep up.
func fanOut(t *target) ([]figure, error) {
	const n = 1000
	var all []*subscriber
	var published sync.Map // sequence to time
	var wg sync.WaitGroup
	for range n {
		s, err := subscribe(t, 2, "head")
		if err != nil {
			return nil, err
		}
		all = append(all, s)
		wg.Go(func() {
			s.read(0, func(b []byte) {
				i := bytes.LastIndex(b, []byte("id: "))
				if i < 0 {
					return
				}
				seq, _ := strconv.Atoi(string(b[i+4:]))
				if at, ok := published.Load(seq); ok {
					s.delay = append(s.delay, time.Since(at.(time.Time)))
				}
			})
		})
	}
	time.Sleep(time.Second)
	c, err := dial(t.addr)
	if err != nil {
		return nil, err
	}
	seq := 0
	var figures []figure
	for _, rate := range []int{200, 300, 400} {
		const span = 5 * time.Second
		delivered := func() (sum int64) {
			for _, s := range all {
				sum += s.count.Load()
			}
			return sum
		}
		want := delivered() + int64(rate)*int64(span/time.Second)*n
		before, start := t.cpu(), time.Now()
		base := delivered()
		payload := body(1 << 10)
		for i := range rate * int(span/time.Second) {
			time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
			seq++
			published.Store(seq, time.Now())
			if err := c.do(request("POST", "/v1/streams/"+t.streams[2]+"/"+strconv.Itoa(seq), t.key, payload)); err != nil {
				return figures, err
			}
		}
		for deadline := time.Now().Add(10 * time.Second); delivered() < want && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		wall, got := time.Since(start), delivered()-base
		figures = append(figures,
			figure{fmt.Sprintf("fan-out to 1,000, %d batches/s of 1 KiB: delivered", rate), float64(got) / wall.Seconds(), "1/s"},
			figure{"  of what was due", float64(got) / float64(want-base), ""},
			figure{"  server CPU for 100,000 deliveries", (t.cpu() - before).Seconds() * 100_000 / float64(got), "s"})
	}
	for _, s := range all {
		s.conn.Close()
	}
	wg.Wait()
	var delays []time.Duration
	for _, s := range all {
		delays = append(delays, s.delay...)
	}
	if len(delays) > 0 {
		slices.Sort(delays)
		figures = append(figures, figure{"  delay p50", ms(delays[len(delays)/2]), "ms"}, figure{"  delay p99", ms(delays[len(delays)*99/100]), "ms"})
	}
	return figures, nil
}
