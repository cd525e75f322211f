package http3_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"weir/client"
)

const key = "svc_live_a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0"

// weirProcess is a Weir server, built from this source tree and run in its own process.
type weirProcess struct {
	t      *testing.T
	data   string
	binary string
	cmd    *exec.Cmd
	url    string // https address of the server

	ended    chan struct{}  // closed when the process has ended
	versions map[string]int // number of requests per HTTP version; may be read when the process has ended
}

func startProcess(t *testing.T) *weirProcess {
	t.Helper()
	s := &weirProcess{t: t, data: t.TempDir(), binary: filepath.Join(t.TempDir(), "weir"), versions: map[string]int{}}
	if built := os.Getenv("TEST_BUILDS"); built != "" { // tools/test sets it
		s.binary = filepath.Join(built, "weir")
	} else if out, err := exec.Command("go", "build", "-o", s.binary, "weir/cmd/weir").CombinedOutput(); err != nil {
		t.Fatalf("build weir: %v\n%s", err, out)
	}
	s.start("127.0.0.1:0")
	return s
}

// start runs the server at an address. At log level debug it logs every request.
func (s *weirProcess) start(address string) {
	s.t.Helper()
	cmd := exec.Command(s.binary, "serve", "--data", s.data, "--http", "127.0.0.1:0", "--https", address, "--metrics", "off", "--demo=false",
		"--bootstrap-keys", "a:"+key, "--log-level", "debug", "--log-format", "json")
	lines, err := cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ready, ended := make(chan string, 1), make(chan struct{})
	s.cmd, s.ended = cmd, ended
	go func() {
		defer close(ended)
		for scan := bufio.NewScanner(lines); scan.Scan(); {
			var l struct{ Msg, HTTPS, Protocol string }
			if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
				continue
			}
			switch l.Msg {
			case "ready":
				ready <- l.HTTPS
			case "request":
				s.versions[l.Protocol]++
			}
		}
	}()
	s.t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		cmd.Wait()
	})
	select {
	case s.url = <-ready:
	case <-ended:
		s.t.Fatal("weir serve did not start")
	}
}

// end sends a signal to the server and waits until the process has ended.
func (s *weirProcess) end(how os.Signal) {
	s.cmd.Process.Signal(how)
	<-s.ended
	s.cmd.Wait()
}

// A publisher over HTTP/3 neither loses nor repeats events when the server is killed and restarted.
// The server's log proves that all requests used HTTP/3.
func TestServer(t *testing.T) {
	if testing.Short() {
		t.Skip("this test builds and runs the server")
	}
	s := startProcess(t)
	c, err := client.New(client.Options{URL: s.url, Key: key, Transport: newTransport(t, s.data)})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := c.CreateStream(t.Context(), client.NewStream{Name: "over HTTP/3"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Publisher(t.Context(), stream.ID, client.PublisherOptions{BatchEvents: 1, InFlight: 16})
	if err != nil {
		t.Fatal(err)
	}
	const n = 300
	for i := range n {
		if err := p.Add(t.Context(), i+1); err != nil {
			t.Fatal(err)
		}
		if i == n/2 {
			s.end(syscall.SIGKILL)
			s.start(strings.TrimPrefix(s.url, "https://"))
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkNumbers(t, c.Subscriber(stream.ID, client.SubscriberOptions{From: client.Oldest}), n)
	s.end(syscall.SIGTERM)
	if len(s.versions) != 1 || s.versions["HTTP/3.0"] < n {
		t.Errorf("requests by HTTP version: %v, want at least %d over HTTP/3.0 only", s.versions, n)
	}
}
