package trials

import (
	endian "encoding/binary" // this package has a type named binary
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/contract"
)

// shiftedBinary is a build of weir whose clock a test can set wrong. The source of weir knows
// nothing of it: go build -overlay replaces the function time.Now and adds a file to cmd/weir, for
// this build only. So every clock of the process is wrong, including that of the NATS server inside
// it, as if a person had set the time of the machine. The monotonic clock stays right, as it does on
// a real machine.
var shiftedBinary binary

// clockEnv is the environment variable with the path of the file that holds the shift of a
// process's clock.
const clockEnv = "TRIALS_CLOCK"

// shiftedNow replaces the first line of time.Now, which is wallNow.
const (
	wallNow    = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	shiftedNow = wallNow + "\tif s := TrialsShift; s != nil {\n\t\tsec += *s\n\t}\n"
)

// timeSource is added to package time, and mainSource to cmd/weir. The process maps the file with
// the shift into memory, so that a test changes the clock by writing to that file.
const (
	timeSource = "package time\n\nvar TrialsShift *int64\n"
	mainSource = `package main

import (
	"os"
	"syscall"
	"time"
	"unsafe"
)

func init() {
	f, err := os.Open(os.Getenv("` + clockEnv + `"))
	if err != nil {
		panic(err)
	}
	page, err := syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	time.TrialsShift = (*int64)(unsafe.Pointer(&page[0]))
}
`
)

// shiftedProgram returns the path of the weir binary whose clock a test can set wrong.
func shiftedProgram(t testing.TB) string {
	t.Helper()
	b := &shiftedBinary
	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "weir-trials-"); b.err != nil {
			return
		}
		var overlay string
		if overlay, b.err = clockOverlay(b.dir); b.err == nil {
			b.path, b.err = contract.Build(b.dir, false, "-overlay", overlay)
		}
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.path
}

// clockOverlay writes the files that replace those of Go and of cmd/weir. It returns the path of the
// file that lists them, for go build -overlay.
func clockOverlay(dir string) (string, error) {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "time", "weir/cmd/weir").Output()
	if err != nil {
		return "", fmt.Errorf("find the sources of package time and cmd/weir: %w", err)
	}
	dirs := strings.Fields(string(out))
	source := filepath.Join(dirs[0], "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		return "", err
	}
	if strings.Count(string(text), wallNow) != 1 {
		return "", fmt.Errorf("%s does not contain %q: adapt wallNow to this version of Go", source, wallNow)
	}
	replaced := map[string]string{}
	for path, text := range map[string]string{
		source:                                 strings.Replace(string(text), wallNow, shiftedNow, 1),
		filepath.Join(dirs[0], "trials.go"):    timeSource,
		filepath.Join(dirs[1], "zz_trials.go"): mainSource,
	} {
		written := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(written, []byte(text), 0o600); err != nil {
			return "", err
		}
		replaced[path] = written
	}
	list, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}

// wrongClock is the clock of a process that runs the binary of shiftedProgram.
type wrongClock struct {
	t    testing.TB
	path string
}

// newWrongClock returns a clock that is right until the test sets it.
func newWrongClock(t testing.TB) *wrongClock {
	t.Helper()
	c := &wrongClock{t, filepath.Join(t.TempDir(), "clock")}
	c.set(0)
	return c
}

// env returns the environment variable that gives this clock to a process.
func (c *wrongClock) env() string { return clockEnv + "=" + c.path }

// set makes the clock wrong by whole seconds. A positive shift sets it forwards.
func (c *wrongClock) set(shift time.Duration) {
	c.t.Helper()
	f, err := os.OpenFile(c.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(endian.NativeEndian.AppendUint64(nil, uint64(shift/time.Second)), 0); err != nil {
		c.t.Fatal(err)
	}
}
