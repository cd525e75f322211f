//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package disk

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// lockDir is an environment variable. If it is set to a directory, the test binary takes the lock
// in that directory, prints "locked" and waits until its input is closed.
const lockDir = "WEIR_TEST_LOCK_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(lockDir); dir != "" {
		if _, err := OS(dir).Lock("lock"); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("locked")
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestFileLifecycle(t *testing.T) {
	dir := t.TempDir()
	d := OS(dir)
	f := must(d.Create("a"))(t)
	if _, err := d.Create("a"); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("create twice: %v", err)
	}
	if _, err := d.Open("b"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("open a missing file: %v", err)
	}
	check(t, f.WriteAt(3, []byte("lo"), nil, []byte(" wor"), []byte("ld")))
	check(t, f.WriteAt(0, []byte("hel")))
	check(t, f.WriteAt(100)) // without buffers, the file does not grow
	check(t, f.SyncData())
	content(t, f, "hello world")
	check(t, f.Truncate(5))
	content(t, f, "hello")
	check(t, f.Truncate(7))
	content(t, f, "hello\x00\x00")
	check(t, f.SyncData())
	check(t, d.SyncDir())

	g := must(d.Open("a"))(t)
	check(t, f.WriteAt(5, []byte("!!")))
	content(t, g, "hello!!")
	check(t, g.Close())
	check(t, f.Close())
	for what, err := range map[string]error{
		"write": f.WriteAt(0, []byte("x")), "sync": f.SyncData(), "truncate": f.Truncate(0), "close": f.Close(),
	} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s after close: %v", what, err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, "a"))
	check(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("mode of a file: %v", info.Mode())
	}
}

func TestReadAtEnd(t *testing.T) {
	f := must(OS(t.TempDir()).Create("a"))(t)
	defer f.Close()
	check(t, f.WriteAt(0, []byte("abc")))
	buf := make([]byte, 4)
	if n, err := f.ReadAt(buf, 1); n != 2 || err != io.EOF {
		t.Errorf("read across the end: %d, %v", n, err)
	}
	if n, err := f.ReadAt(buf, 9); n != 0 || err != io.EOF {
		t.Errorf("read after the end: %d, %v", n, err)
	}
}

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	d := OS(dir)
	check(t, os.Mkdir(filepath.Join(dir, "lost+found"), 0o700))
	for _, name := range []string{"c", "a", "b"} {
		f := must(d.Create(name))(t)
		check(t, f.WriteAt(0, []byte(name)))
		check(t, f.Close())
	}
	listed(t, d, "a", "b", "c")
	check(t, d.Rename("c", "a"))
	listed(t, d, "a", "b")
	f := must(d.Open("a"))(t)
	content(t, f, "c")
	check(t, d.Remove("a"))
	content(t, f, "c") // an open file stays readable
	check(t, f.Close())
	listed(t, d, "b")
	check(t, d.SyncDir())
	if err := d.Remove("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("remove a missing file: %v", err)
	}
	if err := d.Rename("a", "z"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("rename a missing file: %v", err)
	}
	if err := OS(filepath.Join(dir, "none")).SyncDir(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("sync a missing directory: %v", err)
	}
}

// MakeDir creates the missing directories and returns them. A directory that exists is no error.
func TestMakeDir(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "a", "b")
	made, err := MakeDir(dir + "/")
	if err != nil || !slices.Equal(made, []string{filepath.Join(top, "a"), dir}) {
		t.Fatalf("made %q, %v", made, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the new directory: %v, %v", info, err)
	}
	if made, err := MakeDir(dir); err != nil || len(made) > 0 {
		t.Errorf("for an existing directory, made %q, %v", made, err)
	}
	if err := os.WriteFile(filepath.Join(top, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := MakeDir(filepath.Join(top, "file", "c")); err == nil {
		t.Error("made a directory below a file")
	}
}

func TestNamesWithSeparatorsAreRefused(t *testing.T) {
	d := OS(t.TempDir())
	f := must(d.Create("ok"))(t)
	defer f.Close()
	for _, name := range []string{"", ".", "..", "a/b", "/a", "../a", `a\b`, "a\x00b"} {
		_, create := d.Create(name)
		_, open := d.Open(name)
		_, lock := d.Lock(name)
		for what, err := range map[string]error{
			"create": create, "open": open, "lock": lock, "remove": d.Remove(name),
			"rename from": d.Rename(name, "x"), "rename to": d.Rename("ok", name),
		} {
			if !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
	}
	listed(t, d, "ok")
}

func TestWriteManyBuffers(t *testing.T) {
	f := must(OS(t.TempDir()).Create("a"))(t)
	defer f.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, count := range []int{1, 1023, 1024, 1025, 5000} {
		bufs := make([][]byte, count)
		var want []byte
		for i := range bufs {
			bufs[i] = bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(40))
			want = append(want, bufs[i]...)
		}
		before := slices.Clone(bufs)
		check(t, f.Truncate(0))
		check(t, f.WriteAt(7, bufs...))
		content(t, f, string(make([]byte, 7))+string(want))
		for i := range bufs {
			if len(bufs[i]) != len(before[i]) {
				t.Fatalf("the caller's buffer %d of %d was changed", i, count)
			}
		}
	}
}

func TestConcurrentReadsAndWrites(t *testing.T) {
	f := must(OS(t.TempDir()).Create("a"))(t)
	defer f.Close()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 50 {
				off := int64(i*50+j) * 16
				mine := fmt.Appendf(nil, "%8d%8d", i, j)
				got := make([]byte, 16)
				err := errors.Join(f.WriteAt(off, mine[:5], mine[5:]), f.SyncData())
				if _, e := f.ReadAt(got, off); err != nil || e != nil || !bytes.Equal(got, mine) {
					t.Errorf("at %d: %q, %v, %v", off, got, err, e)
				}
			}
		})
	}
	all.Wait()
}

func TestLockInOneProcess(t *testing.T) {
	dir := t.TempDir()
	d := OS(dir)
	l := must(d.Lock("lock"))(t)
	if _, err := d.Lock("lock"); !errors.Is(err, ErrLocked) {
		t.Fatalf("locked twice: %v", err)
	}
	other := must(d.Lock("other"))(t)
	check(t, other.Close())
	check(t, l.Close())
	check(t, must(d.Lock("lock"))(t).Close())
	info, err := os.Stat(filepath.Join(dir, "lock"))
	check(t, err)
	if info.Mode() != 0o600 {
		t.Errorf("mode of the lock file: %v", info.Mode())
	}
}

func TestLockHeldByAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	kill := func(child *exec.Cmd, _ io.Closer) error { return child.Process.Kill() }
	end := func(_ *exec.Cmd, stdin io.Closer) error { return stdin.Close() }
	for _, stop := range []func(*exec.Cmd, io.Closer) error{end, kill} {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), lockDir+"="+dir)
		stdin := must(child.StdinPipe())(t)
		out := must(child.StdoutPipe())(t)
		check(t, child.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		if line != "locked\n" {
			t.Fatalf("child: %q, %v", line, err)
		}
		if _, err := OS(dir).Lock("lock"); !errors.Is(err, ErrLocked) {
			t.Errorf("lock held by a child: %v", err)
		}
		check(t, stop(child, stdin))
		child.Wait() // returns an error for a killed child
		check(t, must(OS(dir).Lock("lock"))(t).Close())
	}
}

// must returns the value of a call that has to succeed.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, f File, want string) {
	t.Helper()
	size, err := f.Size()
	check(t, err)
	got := make([]byte, size)
	if _, err := f.ReadAt(got, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Fatalf("content: %q (%d bytes), want %q", got, size, want)
	}
}

func listed(t *testing.T, d FS, want ...string) {
	t.Helper()
	got, err := d.List()
	check(t, err)
	if !slices.Equal(got, want) {
		t.Fatalf("list: %q, want %q", got, want)
	}
}
