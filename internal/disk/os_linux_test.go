package disk

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel writes fewer bytes than requested only at a limit or after a signal, and a test can
// hardly cause that. So this test calls the code for a short write directly.
func TestSkipAfterShortWrite(t *testing.T) {
	for n := range len("abcdefghi") + 1 {
		bufs := [][]byte{[]byte("abc"), nil, []byte("d"), []byte("efgh"), nil, []byte("i")}
		rest := skip(slices.Clone(bufs), n)
		if got := string(bytes.Join(rest, nil)); got != "abcdefghi"[n:] {
			t.Errorf("after %d bytes: %q left", n, got)
		}
		if left := skipEmpty(rest); len(left) > 0 && len(left[0]) == 0 {
			t.Errorf("after %d bytes: the first buffer is empty", n)
		}
	}
}

// A file that is created on btrfs has the attribute that makes btrfs overwrite it in place. On any
// other file system, such as that of the temporary directory, Create succeeds without the
// attribute.
func TestOverwriteInPlace(t *testing.T) {
	check(t, must(OS(t.TempDir()).Create("a"))(t).Close())
	format, err := exec.LookPath("mkfs.btrfs")
	if err != nil || os.Getuid() != 0 {
		t.Skip("needs root and mkfs.btrfs")
	}
	dir := t.TempDir()
	image, on := filepath.Join(dir, "image"), filepath.Join(dir, "on")
	check(t, os.WriteFile(image, nil, 0o600))
	check(t, os.Truncate(image, 128<<20))
	check(t, os.Mkdir(on, 0o700))
	if out, err := exec.Command(format, "-q", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.btrfs: %v\n%s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, on).CombinedOutput(); err != nil {
		t.Skipf("cannot mount a loop device: %v\n%s", err, out)
	}
	defer exec.Command("umount", on).Run()
	check(t, must(OS(on).Create("a"))(t).Close())
	f, err := os.Open(filepath.Join(on, "a"))
	check(t, err)
	defer f.Close()
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil || flags&noCOW == 0 {
		t.Errorf("attributes %#x lack %#x: %v", flags, noCOW, err)
	}
}
