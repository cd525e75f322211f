package trials

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/internal/contract"
)

// The keys of every server that the trials start.
const (
	liveKey  = "svc_live_a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0"
	otherKey = "svc_live_b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1"
	testKey  = "svc_test_c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2"
)

var race = flag.Bool("trials.race", raceEnabled, "build the server with the race detector, for the tests that use the whole interface")

// raced names the tests whose servers are built with the race detector: those that use the whole
// interface. The others kill, starve or fill up servers, and would take twice as long with it. The
// contract suite runs with it over two transports: event loops serve HTTP1, and each request over
// H2C has a goroutine. The other transports use the same code.
var raced = regexp.MustCompile(`^Test((Contract|Limits)/(HTTP1|H2C)$|Property|HangUp|Restart|Shutdown|Schedules)`)

// binary is a build of weir.
type binary struct {
	once sync.Once
	dir  string // holds the binary and nothing else; empty if no test has built it
	path string
	err  error
}

var plainBinary, racedBinary binary

// program returns the path of the weir binary for the servers of a test.
func program(t testing.TB) string {
	t.Helper()
	b := binaryOf(t)
	return b.get(t, b == &racedBinary)
}

// helperProgram returns the path of the weir binary for commands that are not tested, such as those that
// create keys.
func helperProgram(t testing.TB) string {
	t.Helper()
	return plainBinary.get(t, false)
}

// binaryOf returns the binary for the servers of a test.
func binaryOf(t testing.TB) *binary {
	if *race && raced.MatchString(t.Name()) {
		return &racedBinary
	}
	return &plainBinary
}

// get returns the path of the binary. The first call builds it, unless TEST_BUILDS is set: tools/test
// has then built it in that directory.
func (b *binary) get(t testing.TB, race bool) string {
	t.Helper()
	b.once.Do(func() {
		if built := os.Getenv("TEST_BUILDS"); built != "" {
			name := "weir"
			if race {
				name = "weir-race"
			}
			b.path = filepath.Join(built, name)
			_, b.err = os.Stat(b.path)
			return
		}
		if b.dir, b.err = os.MkdirTemp("", "weir-trials-"); b.err == nil {
			b.path, b.err = contract.Build(b.dir, race)
		}
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.path
}

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise every command that was built with the race detector waits a second before it exits
	debug.SetGCPercent(400)                  // collects garbage less often, because these tests do not measure memory
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set {
		flag.Set("test.parallel", "4") // may be more than the number of cores, because the cases mostly wait
	}
	code := m.Run()
	for _, b := range []*binary{&plainBinary, &racedBinary, &shiftedBinary} {
		if b.dir != "" {
			os.RemoveAll(b.dir)
		}
	}
	os.Exit(code)
}

// server is a process that runs weir serve.
type server struct {
	url    string // base URL in clear text
	secure string // base URL over TLS
	data   string
	cmd    *exec.Cmd
	ready  chan addresses // receives the addresses when the server is ready
	exited chan struct{}  // closed when the process has exited
	err    error          // how it exited; set before exited is closed

	mu  sync.Mutex
	log bytes.Buffer
}

// serve starts a server on a data directory and waits until it is ready. The server is stopped at
// the end of the test, unless it has exited before. A data race or a panic in its log fails the
// test.
func serve(t testing.TB, data string, flags ...string) *server {
	t.Helper()
	s, err := start(program(t), data, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.stop(t)
		if text := s.logged(); hasOwnRace(text) || strings.Contains(text, "panic") {
			t.Errorf("data race or panic in the server's log:\n%s", text)
		}
	})
	return s
}

// start starts a server and waits until it is ready.
func start(binary, data string, flags ...string) (*server, error) {
	return startWith(nil, binary, data, flags...)
}

// startWith does the same as start, with further environment variables.
func startWith(env []string, binary, data string, flags ...string) (*server, error) {
	s, err := launch(env, binary, data, flags...)
	if err != nil {
		return nil, err
	}
	if err := s.await(); err != nil {
		return nil, err
	}
	return s, nil
}

// addresses are the fields of the log entry of a server that is ready.
type addresses struct{ Msg, HTTP, HTTPS string }

// launch starts a server. The caller must call the method await before it uses the server.
func launch(env []string, binary, data string, flags ...string) (*server, error) {
	args := append([]string{"serve", "--data", data, "--http", "127.0.0.1:0", "--https", "127.0.0.1:0", "--metrics", "off", "--log-format", "json",
		"--bootstrap-keys", "a:" + liveKey + ",b:" + otherKey + ",a:" + testKey}, flags...)
	s := &server{data: data, cmd: exec.Command(binary, args...), exited: make(chan struct{}), ready: make(chan addresses, 1)}
	s.cmd.Env = append(os.Environ(), env...)
	tie(s.cmd)
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			s.mu.Lock()
			s.log.Write(append(lines.Bytes(), '\n'))
			s.mu.Unlock()
			var line addresses
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "ready" {
				s.ready <- line
			}
		}
		s.err = s.cmd.Wait()
		close(s.exited)
	}()
	return s, nil
}

// await waits until the server is ready. If that takes longer than a minute, await kills the server.
func (s *server) await() error {
	select {
	case at := <-s.ready:
		s.url, s.secure = at.HTTP, at.HTTPS
		return nil
	case <-s.exited:
		return fmt.Errorf("weir serve: %v\n%s", s.err, s.logged())
	case <-time.After(time.Minute):
		s.kill()
		return fmt.Errorf("weir serve was not ready within a minute\n%s", s.logged())
	}
}

// logged returns the log so far.
func (s *server) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// kill kills the server with SIGKILL and waits until it has exited.
func (s *server) kill() {
	s.cmd.Process.Kill()
	<-s.exited
}

// stop sends SIGTERM and waits until the server has exited. The exit code must be 0.
func (s *server) stop(t testing.TB) {
	t.Helper()
	select {
	case <-s.exited:
		return
	default:
	}
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
		if exit, ok := errors.AsType[*exec.ExitError](s.err); ok && exit.ExitCode() == raceExit && !hasOwnRace(s.logged()) {
			t.Logf("ignoring a data race inside the NATS server")
		} else if s.err != nil {
			t.Errorf("weir serve: %v\n%s", s.err, s.logged())
		}
	case <-time.After(time.Minute):
		s.kill()
		t.Errorf("weir serve did not stop within a minute of SIGTERM")
	}
}

// newKey creates a key with the operator's command.
func (s *server) newKey(t testing.TB, k contract.Key) (string, func()) {
	t.Helper()
	return contract.KeysOf(helperProgram(t), s.data)(t, k)
}

// newToken creates a management token with the operator's command.
func (s *server) newToken(t testing.TB) (string, func()) {
	t.Helper()
	return contract.TokensOf(helperProgram(t), s.data)(t)
}

// target returns the server as a target of the contract suite, over HTTP/1.1.
func (s *server) target() contract.Target {
	return contract.Target{BaseURL: s.url, Live: liveKey, OtherLive: otherKey, Test: testKey, NewKey: s.newKey, NewToken: s.newToken, Demo: true}
}

// over returns the server as a target of the contract suite, over this transport.
func (s *server) over(t testing.TB, by contract.Transport) contract.Target {
	t.Helper()
	target := s.target()
	if by.Secure {
		target.BaseURL, target.DocBase = s.secure, s.url
	}
	trust := s.trust(t)
	target.Client = func() *http.Client { return by.Client(trust) }
	return target
}

// trust returns the server's local certificate authority.
func (s *server) trust(t testing.TB) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.data, "tls", "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool
}
