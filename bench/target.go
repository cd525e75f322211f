package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// target is a server in a separate process, so that its CPU and memory can be measured separately
// from those of the load generator.
type target struct {
	name    string
	addr    string
	secure  string // address for TLS; empty if there is none
	second  string // address for cleartext HTTP/2; empty if it is addr
	metrics string // base URL of the metrics endpoint
	key     string
	data    string // the server's data directory
	process *exec.Cmd
	streams []string
	ready   time.Duration // time from the start of the process until it served requests
}

// The two keys of the project: one for the measured clients, one for attackers. See also
// strangerKeys.
const (
	benchKey  = "svc_live_00000000000000000000000000000000"
	attackKey = "svc_test_11111111111111111111111111111111"
)

// startHello runs this program in a child process as a minimal server, which reads the body of a
// request and responds with 202. Under /v1, its responses are as large as those of Weir.
func startHello() (*target, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "WEIR_BENCH_HELLO=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := begin(cmd); err != nil {
		return nil, err
	}
	t := &target{name: "do nothing", process: cmd}
	_, err = fmt.Fscanln(out, &t.addr, &t.secure, &t.second)
	return t, err
}

// hello runs the server of startHello and prints the server's addresses.
func hello() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			answer(w)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
	secure, second, err := secureHello(h)
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr(), secure, second)
	http.Serve(l, h)
}

// answer sends a response with as many header fields as the response to a publish, and with a body of
// the same size. As in Weir, two of the fields have another value each time.
func answer(w http.ResponseWriter) {
	h, n := w.Header(), answers.Add(1)
	h["X-Request-Id"] = []string{fmt.Sprintf("req_%016d", n)}
	h["X-Svc-Cursor"] = []string{strconv.FormatInt(n, 10)}
	for _, name := range []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"} {
		h[name] = []string{"0"}
	}
	for _, name := range []string{"Cache-Control", "Content-Type", "Server", "X-Content-Type-Options", "X-Svc-Stream-Created"} {
		h[name] = []string{"application/json"}
	}
	w.WriteHeader(http.StatusAccepted)
	w.Write(make([]byte, 94))
}

var answers atomic.Int64

// startTwo starts a server that does nothing, and Weir with n streams. The caller must call the
// function stop, even after an error.
func startTwo(dir string, n int, flags ...string) (two []*target, stop func(), err error) {
	stop = func() {
		for _, t := range two {
			t.stop()
		}
	}
	hello, err := startHello()
	if err != nil {
		return nil, stop, err
	}
	two = append(two, hello)
	weir, err := startWeir(dir, flags...)
	if err != nil {
		return two, stop, err
	}
	two = append(two, weir)
	if err = weir.createStreams(n); err == nil {
		err = weir.warmUp(512 << 20)
	}
	return two, stop, err
}

// startWeir builds Weir from this source tree and runs it on an empty directory. It adds the given
// flags to the flags that all measurements use.
func startWeir(dir string, flags ...string) (*target, error) { return startWeirIn(dir, nil, flags...) }

// startWeirIn is like startWeir, but adds variables to the environment of the server.
func startWeirIn(dir string, env []string, flags ...string) (*target, error) {
	bin, err := buildWeir(dir)
	if err != nil {
		return nil, err
	}
	return serveWeir(bin, dir, env, append([]string{"--pprof"}, flags...)...)
}

// buildWeir builds Weir from this source tree and returns the path of the program.
func buildWeir(dir string) (string, error) {
	bin := filepath.Join(dir, "weir")
	build := exec.Command("go", "build", "-o", bin, "./cmd/weir")
	build.Dir = ".." // Weir's own module, without the dependencies of the benchmark
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build weir: %w\n%s", err, out)
	}
	return bin, nil
}

// serveWeir runs a program of Weir on an empty directory.
func serveWeir(bin, dir string, env []string, flags ...string) (*target, error) {
	args := append([]string{"serve", "--data", filepath.Join(dir, "data"), "--http", "127.0.0.1:0", "--https", "off", "--metrics", "127.0.0.1:0", "--demo=false",
		"--bootstrap-keys", "bench:" + benchKey + ",bench:" + attackKey + ",one:" + strangerKeys[0] + ",two:" + strangerKeys[1], "--rate-live", "0", "--rate-test", "0", "--rate-anonymous", "0", "--streams-per-project", "20000", "--log-format", "json"}, flags...)
	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), env...)
	log, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := begin(cmd); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var l struct{ Msg, HTTP, HTTPS, Metrics string }
		if json.Unmarshal(lines.Bytes(), &l) == nil && l.Msg == "ready" {
			go io.Copy(os.Stderr, log)
			return &target{name: "weir", addr: strings.TrimPrefix(l.HTTP, "http://"), secure: strings.TrimPrefix(l.HTTPS, "https://"), metrics: l.Metrics, key: benchKey, data: filepath.Join(dir, "data"), process: cmd, ready: time.Since(begun)}, nil
		}
		fmt.Fprintln(os.Stderr, lines.Text())
	}
	return nil, fmt.Errorf("weir did not become ready: %w", cmd.Wait())
}

func (t *target) stop() {
	t.process.Process.Signal(syscall.SIGTERM)
	t.process.Wait()
}

func (t *target) publishPath(stream int) string {
	if t.streams == nil {
		return "/publish"
	}
	return "/v1/streams/" + t.streams[stream] + "/publish"
}

// createStreams creates n streams of 1 MiB. A few streams fill up quickly, and then evict a batch for
// every new one, as streams in production do most of the time. Thousands do not fill up during a run.
func (t *target) createStreams(n int) error { return t.createStreamsOf(n, 1<<20) }

// createStreamsOf creates n streams with the given size limit. The very first stream of the server
// gets at least 128 MiB, because loads on a single stream use this one and would fill 1 MiB in 25 ms.
func (t *target) createStreamsOf(n, maxBytes int) error {
	c, err := dial(t.addr)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	for range n {
		id, most := fmt.Sprintf("bench%017d", len(t.streams)), maxBytes
		if len(t.streams) == 0 {
			most = max(most, 128<<20)
		}
		b := fmt.Appendf(nil, `{"name":"bench","id":%q,"max_bytes":%d}`, id, most)
		if err := c.do(request("POST", "/v1/streams", t.key, b)); err != nil {
			return err
		}
		t.streams = append(t.streams, id)
	}
	return nil
}

// cpu returns the CPU time, user and system, of the process and its descendants. Some servers, such
// as nginx, leave the work to a child process.
func (t *target) cpu() time.Duration { return cpuOfTree(t.process.Process.Pid) }

func cpuOfTree(pid int) (sum time.Duration) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	for _, field := range fields[11:15] { // user and system time of the process, then of its children that have ended
		ticks, _ := strconv.ParseInt(field, 10, 64)
		sum += time.Duration(ticks) * 10 * time.Millisecond
	}
	// Any thread of the process may have started a child process, and the file of a thread lists
	// only the children of that thread.
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(child); err == nil {
				sum += cpuOfTree(pid)
			}
		}
	}
	return sum
}

// memory returns the resident set of the process in bytes.
func (t *target) memory() int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", t.process.Process.Pid))
	if err != nil {
		return 0
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// threads returns the number of threads of the process.
func (t *target) threads() int {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", t.process.Process.Pid))
	if err != nil {
		return 0
	}
	return len(all)
}

// live makes the server collect garbage, and returns the size of its heap and stacks in bytes.
func (t *target) live() (int64, error) {
	var total float64
	for _, path := range []string{"/debug/pprof/heap?gc=1", "/metrics"} {
		resp, err := http.Get(t.metrics + path)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(b)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			if name == "go_memstats_heap_alloc_bytes" || name == "go_memstats_stack_inuse_bytes" {
				n, err := strconv.ParseFloat(value, 64)
				if err != nil {
					return 0, err
				}
				total += n
			}
		}
	}
	return int64(total), nil
}

// warmUp publishes the given number of bytes, so that the first stream is full and the journal
// reuses its files.
func (t *target) warmUp(bytes int) error {
	c, err := dial(t.addr)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	payload := body(1 << 20)
	for r := request("POST", t.publishPath(0), t.key, payload); bytes > 0; bytes -= len(payload) {
		if err := c.do(r); err != nil {
			return err
		}
	}
	return nil
}
