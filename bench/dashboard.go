package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	dashboardStreams = 10_000
	dashboardRate    = 5000 // publishes a second
	dashboardSpan    = 10 * time.Second
	dashboardRounds  = 3
	dashboardEvery   = time.Second // somebody opens a page
)

// dashboard measures how long pages of the dashboard take while ten thousand streams are published to, and what it costs
// the publishes that somebody opens one every second.
func dashboard(dir string) ([]figure, error) {
	dir, err := emptyDir(dir, "dashboard")
	if err != nil {
		return nil, err
	}
	const password = "of the benchmark"
	file := filepath.Join(dir, "password")
	if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
		return nil, err
	}
	t, err := startWeir(dir, "--admin-password-file", file)
	if err != nil {
		return nil, err
	}
	defer t.stop()
	if err := t.createStreams(dashboardStreams); err != nil {
		return nil, err
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	person := &http.Client{Jar: jar}
	defer person.CloseIdleConnections()
	resp, err := person.PostForm("http://"+t.addr+"/dashboard/sign-in", url.Values{"name": {"admin"}, "password": {password}})
	if err != nil {
		return nil, err
	}
	resp.Body.Close()
	if !strings.HasSuffix(resp.Request.URL.Path, "/dashboard") {
		return nil, fmt.Errorf("sign in: %s", resp.Status)
	}
	var alone, beside []paced
	var pages []time.Duration
	for range dashboardRounds {
		p, err := publishPaced(t)
		if err != nil {
			return nil, err
		}
		alone = append(alone, p)
		ctx, cancel := context.WithCancel(context.Background())
		var looking sync.WaitGroup
		looking.Go(func() { pages = append(pages, look(ctx, person, t)...) })
		p, err = publishPaced(t)
		cancel()
		looking.Wait()
		if err != nil {
			return nil, err
		}
		beside = append(beside, p)
	}
	if len(pages) == 0 {
		return nil, fmt.Errorf("no page was answered")
	}
	slices.Sort(pages)
	a, b := middle(alone), middle(beside)
	return []figure{
		{"dashboard: a page, median of all pages", ms(pages[len(pages)/2]), "ms"},
		{"dashboard: a page, slowest", ms(pages[len(pages)-1]), "ms"},
		{"publishes without it, a second", a.rate, "1/s"},
		{"publishes with it, a second", b.rate, "1/s"},
		{"publish without it, median", a.p50, "ms"},
		{"publish with it, median", b.p50, "ms"},
		{"server's CPU a publish without it", a.cpu, "us"},
		{"server's CPU a publish with it", b.cpu, "us"},
	}, nil
}

// look opens one page after another until the context ends, and returns how long each took.
func look(ctx context.Context, person *http.Client, t *target) []time.Duration {
	var taken []time.Duration
	tick := time.NewTicker(dashboardEvery)
	defer tick.Stop()
	one := "/dashboard/streams/" + t.streams[1]
	for i := 0; ; i++ {
		for _, path := range []string{"/dashboard", "/dashboard/figures", "/dashboard/streams", "/dashboard/streams?sort=bytes", "/dashboard/streams?q=ben&sort=name&page=50",
			one, one + "/figures", "/dashboard/keys", "/dashboard/keys/new", "/dashboard/projects", "/dashboard/requests", "/dashboard/audit"} {
			start := time.Now()
			resp, err := person.Get("http://" + t.addr + path)
			if err != nil {
				return taken
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				taken = append(taken, time.Since(start))
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return taken
			}
		}
	}
}

// paced is how publishes at a steady rate went.
type paced struct{ rate, p50, cpu float64 }

func middle(list []paced) paced {
	slices.SortFunc(list, func(a, b paced) int { return int(1000 * (a.cpu - b.cpu)) })
	return list[len(list)/2]
}

// publishPaced publishes at a steady rate, to all streams in turn.
func publishPaced(t *target) (paced, error) {
	const connections = 50
	var wg sync.WaitGroup
	var failure atomic.Pointer[error]
	taken := make([][]time.Duration, connections)
	payload := body(1 << 10)
	before, start := t.cpu(), time.Now()
	for i := range connections {
		c, err := dial(t.addr)
		if err != nil {
			return paced{}, err
		}
		defer c.conn.Close()
		wg.Go(func() {
			tick := time.NewTicker(time.Second * connections / dashboardRate)
			defer tick.Stop()
			for n := i; time.Since(start) < dashboardSpan; n += connections {
				<-tick.C
				now := time.Now()
				if err := c.do(request("POST", t.publishPath(n%dashboardStreams), t.key, payload)); err != nil {
					failure.Store(&err)
					return
				}
				taken[i] = append(taken[i], time.Since(now))
			}
		})
	}
	wg.Wait()
	if p := failure.Load(); p != nil {
		return paced{}, *p
	}
	all := slices.Concat(taken...)
	slices.Sort(all)
	n := float64(len(all))
	return paced{n / time.Since(start).Seconds(), ms(all[len(all)/2]), float64((t.cpu() - before).Microseconds()) / n}, nil
}
