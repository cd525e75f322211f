package trials

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// TestPowerCut is TestCrash with a power cut instead of kill -9. The data is on a separate file
// system. The test shuts this file system down, and the kernel then discards all data that was not
// synced. The test therefore finds acknowledgements that the server sent before it synced the
// batch. TestCrash cannot find them, because after a kill -9 the kernel still writes the data.
func TestPowerCut(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short")
	}
	t.Parallel()
	r, _ := seeded(t)
	d := newBlockDevice(t)
	c := &crash{t: t, r: r, ledger: newLedger()}
	for cycle := range *cycles {
		d.mount()
		c.start(d.dir())
		c.verify()
		stopped := r.IntN(2) == 0
		c.load(time.Duration(20+r.IntN(400))*time.Millisecond, func() { c.cut(d, stopped) })
		c.ledger.cut = false
		if t.Failed() {
			t.Fatalf("failed in cycle %d; the disk image is %s\n%s", cycle, d.keep(), c.server.logged())
		}
		d.unmount()
	}
	d.mount()
	c.start(d.dir())
	c.verify()
	c.verify()
	c.server.stop(t)
	d.unmount()
	t.Log(c.summary())
}

// TestProducersPowerCut is TestProducers with a power cut instead of kill -9.
func TestProducersPowerCut(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short")
	}
	t.Parallel()
	r, _ := seeded(t)
	d := newBlockDevice(t)
	p := newProducing(t, r)
	for cycle := range *producerCuts {
		d.mount()
		p.start(d.dir())
		p.verify()
		stopped := r.IntN(2) == 0
		p.load(time.Duration(20+r.IntN(300))*time.Millisecond, func() { p.cut(d, stopped) })
		if t.Failed() {
			t.Fatalf("failed in cycle %d; the disk image is %s\n%s", cycle, d.keep(), p.server.logged())
		}
		d.unmount()
	}
	d.mount()
	p.start(d.dir())
	p.finish()
	d.unmount()
}

// cut cuts the power. If the parameter stopped is true, it first suspends all threads of the
// server. Otherwise the server runs at full speed until the cut.
func (c *crash) cut(d *blockDevice, stopped bool) {
	if stopped {
		c.server.cmd.Process.Signal(syscall.SIGSTOP)
		c.waitStopped()
	}
	c.ledger.mu.Lock()
	c.ledger.cut = true
	c.ledger.mu.Unlock()
	d.shutdown()
	c.server.kill()
}

// waitStopped waits until no thread of the server runs.
func (c *crash) waitStopped() {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", c.server.cmd.Process.Pid))
		running := len(threads) == 0
		for _, path := range threads {
			b, _ := os.ReadFile(path)
			_, state, _ := strings.Cut(string(b), ") ")
			running = running || !strings.HasPrefix(state, "T")
		}
		if !running {
			return
		}
		<-tick.C
	}
	c.t.Errorf("SIGSTOP did not suspend the server")
}

// blockDevice is a file that holds an ext4 file system.
type blockDevice struct {
	t       testing.TB
	image   string
	at      string
	mounted bool
}

// newBlockDevice creates a file system in a file. It skips the test if that is not possible.
func newBlockDevice(t *testing.T) *blockDevice {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("shutting down a file system needs root")
	}
	dir := t.TempDir()
	d := &blockDevice{t: t, image: filepath.Join(dir, "disk.img"), at: filepath.Join(dir, "mnt")}
	if err := os.Mkdir(d.at, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"truncate", "-s", "2G", d.image}, {"mkfs.ext4", "-q", "-F", d.image}, {"mount", "-o", "loop", d.image, d.at}, {"umount", d.at}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("cannot create a file system in a file: %v: %v %s", command, err, out)
		}
	}
	t.Cleanup(func() {
		if d.mounted {
			d.unmount()
		}
	})
	return d
}

func (d *blockDevice) dir() string { return filepath.Join(d.at, "data") }

func (d *blockDevice) mount() {
	d.t.Helper()
	if out, err := exec.Command("mount", "-o", "loop", d.image, d.at).CombinedOutput(); err != nil {
		d.t.Fatalf("mount: %v %s", err, out)
	}
	d.mounted = true
}

func (d *blockDevice) unmount() {
	d.t.Helper()
	if out, err := exec.Command("umount", d.at).CombinedOutput(); err != nil {
		d.t.Fatalf("umount: %v %s", err, out)
	}
	d.mounted = false
}

// shutdown stops the file system as a power cut does: from here on it writes nothing, not even its
// own journal.
func (d *blockDevice) shutdown() {
	const (
		extShutdown   = 0x8004587d // EXT4_IOC_SHUTDOWN
		withoutFlush  = 2          // EXT4_GOING_FLAGS_NOLOGFLUSH
		wholeArgument = 4
	)
	f, err := os.Open(d.at)
	if err != nil {
		d.t.Errorf("open the mount point: %v", err)
		return
	}
	defer f.Close()
	var flags [wholeArgument]byte
	flags[0] = withoutFlush
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), extShutdown, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		d.t.Errorf("shut the file system down: %v", errno)
	}
}

// keep copies the image to a file that outlives the test and returns its path.
func (d *blockDevice) keep() string {
	kept := filepath.Join(os.TempDir(), fmt.Sprintf("weir-power-%d.img", os.Getpid()))
	if out, err := exec.Command("cp", "--sparse=always", d.image, kept).CombinedOutput(); err != nil {
		return fmt.Sprintf("lost, because it could not be copied: %v %s", err, out)
	}
	return kept
}
