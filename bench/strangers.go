package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"
)

// strangerKeys are the keys of two projects. The measured clients belong to neither of them.
var strangerKeys = []string{"svc_test_22222222222222222222222222222222", "svc_test_33333333333333333333333333333333"}

// strangers are attacks by clients of other projects, by clients without a key, over HTTP/2, and on
// the dashboard.
var strangers = []attack{
	{name: "32 stalled bodies of 8 MiB from each of two other projects", victims: publishes(64 << 10), begin: func(a *assault) error {
		return a.strangers(func(key, path string) error { return a.pour(32, declaredBy(path+"/publish", key, 7<<20)) })
	}},
	{name: "2,000 subscriptions from two other projects, the limit", victims: subscribes, flags: []string{"--max-subscribers", "2000"}, begin: func(a *assault) error {
		return a.strangers(func(key, path string) error {
			return a.openSilent(1000, string(request("GET", path, key, nil, "Accept: text/event-stream")))
		})
	}},
	{name: "2,000 subscriptions without a key, which is the limit", victims: subscribes, flags: []string{"--demo", "--rate-demo", "0", "--max-subscribers", "2000"}, begin: func(a *assault) error {
		return a.openSilent(2000, "GET /v1/streams/demo000000000000000000 HTTP/1.1\r\nHost: bench\r\nAccept: text/event-stream\r\n\r\n")
	}},
	{name: "empty raw batches with keys, up to --max-index-memory", flags: []string{"--max-index-memory", "67108864"}, begin: emptyBatches},
	{name: "5,000 HTTP/2 subscriptions over five connections", victims: subscribes, begin: func(a *assault) error {
		c, err := newCrowd(&target{addr: a.t.addr, key: attackKey, streams: a.t.streams}, large, 5000)
		a.conns = append(a.conns, c.conns...)
		return err
	}},
	{name: "600 HTTP/2 bodies of 8 MiB that stall after 1 MiB", victims: publishes(64 << 10), begin: func(a *assault) error { return a.upload(600, 1<<20) }},
	{name: "wrong passwords, 40/s, from the address of the admin", victims: signIns(), begin: func(a *assault) error {
		form := []byte("name=admin&password=wrong")
		r := request("POST", "/dashboard/sign-in", "", form, "Content-Type: application/x-www-form-urlencoded")
		r = bytes.Replace(r, []byte("Content-Type: application/json\r\n"), nil, 1)
		return a.loops(8, time.Second/5, func(c net.Conn) error { return ask(c, r) })
	}},
}

// strangers calls the function begin for each of strangerKeys, with a new stream of the project to
// which the key belongs.
func (a *assault) strangers(begin func(key, path string) error) error {
	for _, key := range strangerKeys {
		path, err := streamOf(a.t, key, "json")
		if err != nil {
			return err
		}
		if err := begin(key, path); err != nil {
			return err
		}
	}
	return nil
}

// streamOf creates a stream with a key, and returns its path.
func streamOf(t *target, key, mode string) (string, error) {
	c, err := dial(t.addr)
	if err != nil {
		return "", err
	}
	defer c.conn.Close()
	id := "stranger" + key[len(key)-14:]
	return "/v1/streams/" + id, c.do(request("POST", "/v1/streams", key, fmt.Appendf(nil, `{"name":"strange","id":%q,"mode":%q}`, id, mode)))
}

// emptyBatches publishes empty batches, each with an idempotency key, until the server refuses them,
// and continues with 800 per second.
func emptyBatches(a *assault) error {
	path, err := streamOf(a.t, strangerKeys[0], "raw")
	if err != nil {
		return err
	}
	var n atomic.Int64
	next := func() []byte {
		return request("POST", path+"/publish", strangerKeys[0], nil, "Content-Type: application/octet-stream", "Content-Length: 0", fmt.Sprintf("Idempotency-Key: key-%d", n.Add(1)))
	}
	fill := make([]func() error, 32)
	for i := range fill {
		c, err := dial(a.t.addr)
		if err != nil {
			return err
		}
		defer c.conn.Close()
		fill[i] = func() error { return c.do(next()) }
	}
	if _, err = work(fill, 0, time.Minute, a.t.cpu); err == nil || !strings.Contains(err.Error(), "storage_unavailable") {
		return fmt.Errorf("after %d empty batches: %w", n.Load(), cmp.Or(err, errors.New("none was refused")))
	}
	return a.loops(8, 10*time.Millisecond, func(c net.Conn) error { return ask(c, next()) })
}

// upload sends a request with a body of 8 MiB over each of n HTTP/2 connections. The body stalls
// after the given number of bytes, or earlier if the server's windows are smaller.
func (a *assault) upload(n, sent int) error {
	text := `{"events":["` + strings.Repeat("x", sent)
	for range n {
		c, err := a.connect()
		if err != nil {
			return err
		}
		h, err := new(http2.Transport).NewClientConn(c)
		if err != nil {
			return err
		}
		r, err := http.NewRequest("POST", "http://"+a.t.addr+a.t.publishPath(large), io.MultiReader(strings.NewReader(text), until{a.over}))
		if err != nil {
			return err
		}
		r.ContentLength = 8 << 20
		r.Header = http.Header{"Authorization": {"Bearer " + attackKey}, "Content-Type": {"application/json"}}
		a.work.Go(func() {
			if resp, err := h.RoundTrip(r); err == nil {
				resp.Body.Close()
			}
		})
	}
	time.Sleep(2 * time.Second) // until the server has received as much as it accepts
	return nil
}

// until is a reader that returns nothing until its channel is closed.
type until struct{ over chan struct{} }

func (u until) Read([]byte) (int, error) {
	<-u.over
	return 0, io.ErrUnexpectedEOF
}

// adminPassword is the password of the dashboard's admin in all measurements of attacks.
const adminPassword = "benchmark password"

// signIns returns an admin who signs in to the dashboard again and again, with one browser.
func signIns() func(*target, time.Duration) (row, error) {
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	browser.Jar, _ = cookiejar.New(nil) // without options, New returns no error
	return func(t *target, span time.Duration) (row, error) {
		defer browser.CloseIdleConnections()
		return work([]func() error{func() error {
			resp, err := browser.PostForm("http://"+t.addr+"/dashboard/sign-in", url.Values{"name": {"admin"}, "password": {adminPassword}})
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusSeeOther {
				return fmt.Errorf("%w: %s", errAnswer, resp.Status)
			}
			return nil
		}}, 0, span, t.cpu)
	}
}

// cool writes the files of the server to disk and drops them from the page cache, so that the
// server must read them from the disk.
func (t *target) cool() error {
	return filepath.WalkDir(t.data, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := f.Sync(); err != nil {
			return err
		}
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}
