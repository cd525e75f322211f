package manual

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is the longest time that a test waits for something. On an idle machine, nothing takes
// more than a few moments.
const patience = 2 * time.Minute

var binaries struct {
	once sync.Once
	dir  string
	err  error
}

// binary returns a directory that holds the weir program and nothing else. The program is the one
// that tools/test has built, or is built once for all tests.
func binary(t *testing.T) string {
	t.Helper()
	binaries.once.Do(func() {
		if binaries.dir, binaries.err = os.MkdirTemp("", "weir-manual-"); binaries.err != nil {
			return
		}
		path := filepath.Join(binaries.dir, "weir")
		if built := os.Getenv("TEST_BUILDS"); built != "" { // tools/test sets it
			binaries.err = os.Symlink(filepath.Join(built, "weir"), path)
		} else if out, err := exec.Command("go", "build", "-o", path, "weir/cmd/weir").CombinedOutput(); err != nil {
			binaries.err = fmt.Errorf("build weir: %w\n%s", err, out)
		}
	})
	if binaries.err != nil {
		t.Fatal(binaries.err)
	}
	return binaries.dir
}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if binaries.dir != "" {
		os.RemoveAll(binaries.dir)
	}
	os.Exit(code)
}

// reader follows a page of the manual as a person would: in one directory, with one shell, and with
// the server that the page starts.
type reader struct {
	t      *testing.T
	dir    string
	server *running
	others []*running // programs that the page has started in the background
	url    string
	key    string   // the last key that a command printed
	places []string // pairs: text of the manual, and its replacement
}

// printed is the address in the manual. The server of a reader listens on another port.
const printed = "http://127.0.0.1:8080"

func newReader(t *testing.T) *reader {
	r := &reader{t: t, dir: t.TempDir()}
	if err := os.Symlink(binary(t), filepath.Join(r.dir, "bin")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range r.others {
			p.end(syscall.SIGTERM)
		}
		if r.server != nil {
			r.server.end(syscall.SIGTERM)
		}
	})
	return r
}

// localise replaces the addresses, keys and paths in a text of the manual by those of this reader.
func (r *reader) localise(s string) string {
	s = strings.ReplaceAll(s, printed, r.url)
	s = strings.ReplaceAll(s, "svc_live_…", r.key)
	return strings.NewReplacer(r.places...).Replace(s)
}

// asPrinted replaces the address of the reader's server by the address in the manual.
func (r *reader) asPrinted(s string) string { return strings.ReplaceAll(s, r.url, printed) }

// running is a command that was started. It collects the output.
type running struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the command has ended
	err    error         // how it ended; read it after exited is closed

	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{} // closed and replaced when there is more output
}

func (p *running) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text.Write(b)
	close(p.grown)
	p.grown = make(chan struct{})
	return len(b), nil
}

func (p *running) output() (string, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String(), p.grown
}

// start starts a command in its own process group, so that end also reaches its children.
func start(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	p := &running{cmd: cmd, exited: make(chan struct{}), grown: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p, p
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.err = cmd.Wait(); close(p.exited) }()
	return p
}

// end sends a signal to the process group, waits up to 30 s for the command, and kills the
// processes that are left.
func (p *running) end(sig syscall.Signal) {
	syscall.Kill(-p.cmd.Process.Pid, sig)
	select {
	case <-p.exited:
	case <-time.After(30 * time.Second):
	}
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.exited
}

// await waits until fits(output) is true for the output so far, and returns that output.
func (p *running) await(fits func(output string) bool) (string, error) {
	late := time.After(patience)
	for {
		text, grown := p.output()
		if fits(text) {
			return text, nil
		}
		select {
		case <-grown:
		case <-p.exited:
			if text, _ = p.output(); fits(text) {
				return text, nil
			}
			return text, fmt.Errorf("the command ended: %v", p.err)
		case <-late:
			return text, fmt.Errorf("the command did not print the expected output within %v", patience)
		}
	}
}

// shell returns a command that runs a block in the directory of the reader. It starts with the
// variables of the earlier blocks, because each block saves its variables when it ends.
func (r *reader) shell(b block, prelude string) *exec.Cmd {
	script := "set -ea\n[ -f .state ] && . ./.state\n" + prelude + "trap 'export -p > " + filepath.Join(r.dir, ".state") + "' EXIT\n" + r.localise(b.text)
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = r.dir
	root, _ := filepath.Abs("../..")
	cmd.Env = append(os.Environ(), "PATH="+binary(r.t)+":"+os.Getenv("PATH"), "SOURCES="+root, "HOME="+r.dir,
		"GOPATH="+env("GOPATH"), "GOCACHE="+env("GOCACHE"), "GOMODCACHE="+env("GOMODCACHE"), "GOFLAGS=-mod=mod", "GOWORK=off")
	return cmd
}

// env returns a setting of the go command. The reader's shell gets these settings, because it has
// its own HOME: without them, its go command would download and build everything again.
func env(name string) string {
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

var (
	address = regexp.MustCompile(`Weir is running at (http://\S+)`)
	aKey    = regexp.MustCompile(`svc_live_[0-9a-f]{32}`)
)

// serve starts the server of a block on a free port, waits until it is ready, and returns its
// output.
func (r *reader) serve(b block) string {
	r.t.Helper()
	cmd := r.shell(b, "WEIR_HTTP=127.0.0.1:0 WEIR_HTTPS=off WEIR_METRICS=off WEIR_LOG_FORMAT=json\n")
	r.server = start(r.t, cmd)
	text, err := r.server.await(func(s string) bool { return strings.Contains(s, `"ready"`) })
	if err != nil {
		r.t.Fatalf("weir serve: %v\n%s", err, text)
	}
	// On a terminal, the first start prints this text. Without a terminal, it writes the text to a
	// file.
	if shown, err := os.ReadFile(filepath.Join(r.dir, "weir-data", "first-start.txt")); err == nil {
		text = string(shown) + text
	}
	if m := address.FindStringSubmatch(text); m != nil {
		r.url, r.key = m[1], aKey.FindString(text)
	}
	return r.asPrinted(text)
}
