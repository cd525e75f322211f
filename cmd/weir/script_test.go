package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/pflag"

	"weir/internal/settings"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"weir": main})
}

// The transcripts in testdata show what an operator types and sees. Besides the commands of
// testscript, they use these commands. NAME is the name that a script gives to a server:
//
//	exits CODE PROGRAM ARGS...       run a program and expect an exit code
//	serve NAME ARGS...               run `weir serve ARGS` on free ports of 127.0.0.1 and wait until it is ready. $URL
//	                                 and $ADDR are its address, $METRICS that of its metrics, NAME.out and NAME.err its output
//	signal NAME [SIGNAL [SIGNAL]]    send TERM (or INT, KILL) and wait until the server exits. The exit code must be 0,
//	                                 except after KILL. A second signal is sent while the server is stopping; then the
//	                                 exit code must be 1
//	http METHOD PATH [KEY] [BODY]    send a request to $URL; stdout is a line with the status, then the body
//	subscribe PATH KEY               open a subscription
//	received TEXT                    wait until the subscription has received a text; stdout is everything it received
//	ended                            wait until all subscriptions have ended cleanly; stdout is everything they received
//	metrics PATH                     like http, but to $METRICS
//	logged NAME PATTERN              wait until the server has logged a line that matches
//	hangup NAME                      send HUP to the server and wait until it has re-read or refused its configuration
//	stall PATH KEY                   begin a request whose body never arrives
//	capture VARIABLE FILE PATTERN    set $VARIABLE to the only match in a file, or in stdout
//	mode MODE FILE                   expect a file to have these permissions
//	fill FILE BYTES                  create a file of that many dots
//	damage [-bit|-cut] FILE TEXT     damage the place in a file that holds a text
//	https TRUST URL PATH             send a request over HTTP/2 with TLS; stdout is protocol and status, then the header fields
//	keypair CERT KEY                 create a certificate for 127.0.0.1 and its key
//
// Under the race detector only the transcripts in racedTranscripts run.
func TestTranscripts(t *testing.T) {
	dir, files := "testdata", []string(nil)
	if raced {
		dir, files = "", racedTranscripts
	}
	testscript.Run(t, testscript.Params{
		Dir: dir, Files: files,
		Setup: func(e *testscript.Env) error {
			e.Values[servers{}] = map[string]*running{}
			e.Values[opened{}] = new([]io.Reader)
			e.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise every command that was built with the race detector waits a second before it exits
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits, "serve": serveInBackground, "signal": sendSignal, "http": request, "capture": capture, "mode": mode,
			"subscribe": subscribe, "ended": ended, "stall": stall, "hangup": hangup, "logged": logged, "metrics": askMetrics,
			"damage": damage, "received": received, "https": secureRequest, "keypair": makePair, "fill": fill,
		},
	})
}

// racedTranscripts are about the commands that start goroutines of their own: bench, publish, tail
// and serve with its signals. The other transcripts start hundreds of processes that each do one
// thing, and each costs three times as much under the race detector. The goroutines inside a server
// are in other rooms, whose tests run under the race detector.
var racedTranscripts = []string{
	"testdata/bench.txtar", "testdata/publish.txtar", "testdata/reload.txtar", "testdata/stop.txtar", "testdata/tail.txtar",
}

// slowRaced skips a test under the race detector, because the test uses no goroutine of this room.
func slowRaced(t *testing.T) {
	t.Helper()
	if raced {
		t.Skip("uses no goroutine of this room; make test runs it without the race detector")
	}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// servers is the key under which testscript stores the servers of a script.
type servers struct{}

var (
	readyLine    = regexp.MustCompile(`(?m)^.*"msg":"ready",("http":"http://([^"]+)")?.*"metrics":"([^"]*)".*\n`)
	stoppingLine = regexp.MustCompile(`(?m)^.*"msg":"stopping".*\n`)
)

type running struct {
	cmd    *exec.Cmd
	log    *log
	read   int           // number of times that the server has re-read its configuration
	exited chan struct{} // closed when the server has exited; err is then the exit error
	err    error
}

// log is a file that a goroutine can watch for new content.
type log struct {
	file *os.File

	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{} // closed at the next write
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	close(l.grown)
	l.grown = make(chan struct{})
	return l.file.Write(p)
}

// await returns the first match in the log of the server. It fails if the server exits, or after a
// minute.
func (r *running) await(ts *testscript.TestScript, pattern *regexp.Regexp) []string {
	late := time.After(time.Minute)
	for {
		r.log.mu.Lock()
		m := pattern.FindStringSubmatch(r.log.text.String())
		grown := r.log.grown
		r.log.mu.Unlock()
		if m != nil {
			return m
		}
		select {
		case <-grown:
		case <-r.exited:
			ts.Fatalf("serve: %v\n%s", r.err, r.log)
		case <-late:
			ts.Fatalf("serve: the log has no match of %s after a minute\n%s", pattern, r.log)
		}
	}
}

// logged waits until the log contains a line. The log reaches its file through a pipe, so a grep
// directly after a request may run before the line is in the file.
func logged(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: logged NAME PATTERN")
	}
	r := ts.Value(servers{}).(map[string]*running)[args[0]]
	if r == nil {
		ts.Fatalf("there is no server %s", args[0])
	}
	r.await(ts, regexp.MustCompile(args[1]))
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func serveInBackground(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: serve NAME ARGS...")
	}
	name := args[0]
	program, err := exec.LookPath("weir")
	ts.Check(err)
	out, err := os.Create(ts.MkAbs(name + ".out"))
	ts.Check(err)
	errs, err := os.Create(ts.MkAbs(name + ".err"))
	ts.Check(err)
	r := &running{
		cmd: exec.Command(program, append([]string{"serve", "--http", "127.0.0.1:0", "--https", "127.0.0.1:0", "--metrics", "127.0.0.1:0"}, args[1:]...)...),
		log: &log{file: errs, grown: make(chan struct{})}, exited: make(chan struct{}),
	}
	r.cmd.Dir, r.cmd.Stdout, r.cmd.Stderr, r.cmd.Env = ts.MkAbs("."), out, r.log, environ(ts)
	ts.Check(r.cmd.Start())
	ts.Value(servers{}).(map[string]*running)[name] = r
	go func() {
		r.err = r.cmd.Wait()
		out.Close()
		errs.Close()
		close(r.exited)
	}()
	ts.Defer(func() {
		r.cmd.Process.Kill()
		<-r.exited
	})
	m := r.await(ts, readyLine)
	addr := m[2]
	ts.Setenv("METRICS", m[3])
	ts.Setenv("ADDR", addr)
	ts.Setenv("URL", "http://"+addr)
}

// environ returns the environment for `weir serve`: the variables that the script has set and that
// the command reads.
func environ(ts *testscript.TestScript) []string {
	env := []string{"HOME=" + ts.Getenv("HOME"), "TMPDIR=" + ts.Getenv("TMPDIR"), "GORACE=" + ts.Getenv("GORACE")}
	serveCommand().Flags().VisitAll(func(f *pflag.Flag) {
		if v := ts.Getenv(settings.Variable(f.Name)); v != "" {
			env = append(env, settings.Variable(f.Name)+"="+v)
		}
	})
	return env
}

func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL}
	if len(args) == 1 {
		args = append(args, "TERM")
	}
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: signal NAME [SIGNAL [SIGNAL]]")
	}
	r := ts.Value(servers{}).(map[string]*running)[args[0]]
	if r == nil {
		ts.Fatalf("there is no server %s", args[0])
	}
	want := map[string]int{"TERM": exitDone, "INT": exitDone, "KILL": -1}[args[1]]
	ts.Check(r.cmd.Process.Signal(signals[args[1]]))
	if len(args) == 3 {
		r.await(ts, stoppingLine)
		ts.Check(r.cmd.Process.Signal(signals[args[2]]))
		want = exitFailed
	}
	select {
	case <-r.exited:
	case <-time.After(time.Minute):
		ts.Fatalf("%s still runs a minute after the signal\n%s", args[0], r.log)
	}
	if got := r.cmd.ProcessState.ExitCode(); got != want {
		ts.Fatalf("%s: exit code %d, want %d\n%s", args[0], got, want, r.log)
	}
}

func request(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 4 {
		ts.Fatalf("usage: http METHOD PATH [KEY] [BODY]")
	}
	args = append(args, "", "")
	r, err := http.NewRequest(args[0], ts.Getenv("URL")+args[1], strings.NewReader(args[3]))
	ts.Check(err)
	if args[2] != "" {
		r.Header.Set("Authorization", "Bearer "+args[2])
	}
	if args[3] != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	ts.Check(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%d\n%s", resp.StatusCode, body)
}

func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: capture VARIABLE FILE PATTERN")
	}
	pattern, err := regexp.Compile("(?m)" + args[2])
	ts.Check(err)
	found := map[string]bool{}
	last := ""
	for _, m := range pattern.FindAllStringSubmatch(ts.ReadFile(args[1]), -1) {
		last = m[len(m)-1]
		found[last] = true
	}
	if len(found) != 1 {
		ts.Fatalf("%d matches of %s in %s, not one:\n%s", len(found), args[2], args[1], ts.ReadFile(args[1]))
	}
	ts.Setenv(args[0], last)
}

func mode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mode MODE FILE")
	}
	st, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := fmt.Sprintf("%04o", st.Mode().Perm()); got != args[0] {
		ts.Fatalf("the mode of %s is %s, not %s", args[1], got, args[0])
	}
}

func fill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fill FILE BYTES")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), bytes.Repeat([]byte{'.'}, n), 0o644))
}

// opened is the key under which testscript stores the open responses of a script.
type opened struct{}

func subscribe(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: subscribe PATH KEY")
	}
	r, err := http.NewRequest("GET", ts.Getenv("URL")+args[0], nil)
	ts.Check(err)
	r.Header.Set("Authorization", "Bearer "+args[1])
	r.Header.Set("Accept", "text/event-stream")
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(r)
	ts.Check(err)
	ts.Defer(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		ts.Fatalf("the subscription got status %s", resp.Status)
	}
	*ts.Value(opened{}).(*[]io.Reader) = append(*ts.Value(opened{}).(*[]io.Reader), resp.Body)
}

func ended(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: ended")
	}
	for _, body := range *ts.Value(opened{}).(*[]io.Reader) {
		text, err := io.ReadAll(body)
		ts.Check(err)
		ts.Stdout().Write(text)
	}
}

func stall(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: stall PATH KEY")
	}
	c, err := net.Dial("tcp", ts.Getenv("ADDR"))
	ts.Check(err)
	ts.Defer(func() { c.Close() })
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n", args[0], args[1])
	line, err := bufio.NewReader(c).ReadString('\n') // the response 100 Continue arrives when the handler begins to read the body
	ts.Check(err)
	if !strings.Contains(line, " 100 ") {
		ts.Fatalf("got %s, want 100 Continue", line)
	}
}
