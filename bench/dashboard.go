package main

import (
	"context"
	"encoding/json"
	"errors"
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
	dashboardStreams     = 10_000
	dashboardRate        = 5000 // publishes per second; each is sent at a fixed time, even if earlier publishes are late
	dashboardSpan        = 5 * time.Second
	dashboardRounds      = 7
	dashboardEvery       = 200 * time.Millisecond // time between page loads
	dashboardConnections = 64
)

// dashboard measures how long pages of the dashboard take while clients publish to 10,000 streams,
// and how much an open dashboard slows those publishes down. The open dashboard is a simulated user
// who follows a stream and loads five pages per second. Rounds with and without this user
// alternate. The output includes the spread of each figure over the rounds, because a difference
// smaller than the spread means nothing.
func dashboard(dir string) ([]figure, error) {
	dir, err := emptyDir(dir, "dashboard")
	if err != nil {
		return nil, err
	}
	const password = "benchmark password"
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
	user := &http.Client{Jar: jar}
	defer user.CloseIdleConnections()
	resp, err := user.PostForm("http://"+t.addr+"/dashboard/sign-in", url.Values{"name": {"admin"}, "password": {password}})
	if err != nil {
		return nil, err
	}
	resp.Body.Close()
	if !strings.HasSuffix(resp.Request.URL.Path, "/dashboard") {
		return nil, fmt.Errorf("sign in to the dashboard: %s", resp.Status)
	}
	var without, with []paced
	var pages []time.Duration
	for range dashboardRounds {
		p, err := publishPaced(t)
		if err != nil {
			return nil, err
		}
		without = append(without, p)
		ctx, cancel := context.WithCancel(context.Background())
		var looking sync.WaitGroup
		looking.Go(func() { pages = append(pages, look(ctx, user, t)...) })
		looking.Go(func() { follow(ctx, user, t) })
		p, err = publishPaced(t)
		cancel()
		looking.Wait()
		if err != nil {
			return nil, err
		}
		with = append(with, p)
	}
	if len(pages) == 0 {
		return nil, errors.New("no page was loaded")
	}
	slices.Sort(pages)
	figures := []figure{
		{"dashboard: pages loaded", float64(len(pages)) / (dashboardRounds * dashboardSpan.Seconds()), "1/s"},
		{"dashboard: page, p50", ms(pages[len(pages)/2]), "ms"},
		{"dashboard: page, p99", ms(pages[len(pages)*99/100]), "ms"},
	}
	for _, of := range []struct {
		name, unit string
		value      func(paced) float64
	}{
		{"publish rate", "1/s", func(p paced) float64 { return p.rate }},
		{"publish, p50", "ms", func(p paced) float64 { return p.p50 }},
		{"publish, p99", "ms", func(p paced) float64 { return p.p99 }},
		{"server CPU per publish", "us", func(p paced) float64 { return p.cpu }},
		{"server CPU", "% of a core", func(p paced) float64 { return p.cpu * p.rate / 1e4 }},
	} {
		off, on := spread(without, of.value), spread(with, of.value)
		figures = append(figures,
			figure{of.name + ", without dashboard", off[1], fmt.Sprintf("%s (%.4g to %.4g)", of.unit, off[0], off[2])},
			figure{of.name + ", with dashboard", on[1], fmt.Sprintf("%s (%.4g to %.4g)", of.unit, on[0], on[2])},
			figure{of.name + ", with / without", medianRatio(without, with, of.value), "median of the rounds"},
			figure{of.name + ", minimum with / minimum without", on[0] / off[0], "ratio"})
	}
	return figures, nil
}

// spread returns the minimum, median and maximum of a value over the rounds.
func spread(rounds []paced, value func(paced) float64) [3]float64 {
	var all []float64
	for _, p := range rounds {
		all = append(all, value(p))
	}
	slices.Sort(all)
	return [3]float64{all[0], all[len(all)/2], all[len(all)-1]}
}

// medianRatio divides the value of each round with the dashboard by the value of the preceding
// round, which had no dashboard, and returns the median of these ratios.
func medianRatio(without, with []paced, value func(paced) float64) float64 {
	var all []float64
	for i := range with {
		all = append(all, value(with[i])/value(without[i]))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// follow asks for the new events of a stream once per second until the context ends, as the
// stream's page in the dashboard does.
func follow(ctx context.Context, user *http.Client, t *target) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last struct{ Cursor int64 }
	for ctx.Err() == nil {
		path := fmt.Sprintf("http://%s/dashboard/streams/%s/events?floor=%d", t.addr, t.streams[1], last.Cursor+1)
		if resp, err := user.Get(path); err == nil {
			_ = json.NewDecoder(resp.Body).Decode(&last) // a failed request is repeated a second later
			resp.Body.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// look loads one page after another until the context ends, and returns how long each page took.
func look(ctx context.Context, user *http.Client, t *target) []time.Duration {
	var taken []time.Duration
	tick := time.NewTicker(dashboardEvery)
	defer tick.Stop()
	one := "/dashboard/streams/" + t.streams[1]
	for i := 0; ; i++ {
		for _, path := range []string{"/dashboard", "/dashboard/figures", "/dashboard/streams", "/dashboard/streams?sort=bytes", "/dashboard/streams?q=ben&sort=name&page=50",
			one, one + "/figures", one + "/events", "/dashboard/keys", "/dashboard/keys/new", "/dashboard/projects", "/dashboard/requests", "/dashboard/audit"} {
			start := time.Now()
			resp, err := user.Get("http://" + t.addr + path)
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

// paced is the result of publishing at a steady rate: publishes per second, latencies in ms, and
// server CPU per publish in us.
type paced struct{ rate, p50, p99, cpu float64 }

// publishPaced publishes to all streams in turn, at times that are fixed in advance. Latency counts
// from the scheduled time, so it includes the wait for a free connection.
func publishPaced(t *target) (paced, error) {
	const total = int(dashboardRate * dashboardSpan / time.Second)
	var wg sync.WaitGroup
	var failure atomic.Pointer[error]
	var next atomic.Int64
	taken := make([][]time.Duration, dashboardConnections)
	payload := body(1 << 10)
	before, start := t.cpu(), time.Now()
	for i := range dashboardConnections {
		c, err := dial(t.addr)
		if err != nil {
			return paced{}, err
		}
		defer c.conn.Close()
		wg.Go(func() {
			for n := int(next.Add(1)) - 1; n < total; n = int(next.Add(1)) - 1 {
				due := start.Add(time.Duration(n) * time.Second / dashboardRate)
				time.Sleep(time.Until(due))
				if err := c.do(request("POST", t.publishPath(n%dashboardStreams), t.key, payload)); err != nil {
					failure.Store(&err)
					return
				}
				taken[i] = append(taken[i], time.Since(due))
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
	return paced{n / time.Since(start).Seconds(), ms(all[len(all)/2]), ms(all[len(all)*99/100]), float64((t.cpu() - before).Microseconds()) / n}, nil
}
