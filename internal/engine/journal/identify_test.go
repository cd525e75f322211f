package journal

import (
	"errors"
	"syscall"
	"testing"

	"weir/internal/disk/faulty"
	"weir/internal/engine/journal/directory"
)

// asVersion1 rewrites the format file to say version 1.
func asVersion1(t *testing.T, j *Journal) {
	t.Helper()
	j.dir.Version = 1
	if err := j.dir.Replace(directory.FormatFile, []byte(j.dir.FormatText())); err != nil {
		t.Fatal(err)
	}
}

// A journal of an older version opens with all its content and gets the current version, so that an
// older program refuses it from then on. Changing the version needs space for two small files. On a
// full disk, opening fails and leaves the version as it is.
func TestOlderVersion(t *testing.T) {
	fs, h := faulty.New(), newHistory()
	w := newWorld(t, fs, h)
	if err := script(w); err != nil {
		t.Fatal(err)
	}
	if err := w.j.Close(); err != nil {
		t.Fatal(err)
	}
	asVersion1(t, w.j)
	version := func(full bool) string {
		t.Helper()
		fs.OnCall(func(c faulty.Call) error {
			if full && c.Name == directory.FormatFile+".tmp" && c.Kind == faulty.Write {
				return syscall.ENOSPC
			}
			return nil
		})
		j, err := Open(fs, small)
		if full {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("opening on a full disk: %v, want %v", err, syscall.ENOSPC)
			}
		} else {
			if err != nil {
				t.Fatal(err)
			}
			if err := h.verify(j); err != nil {
				t.Error(err)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		}
		f, err := fs.Open(directory.FormatFile)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		line := make([]byte, len("weir journal 1"))
		if _, err := f.ReadAt(line, 0); err != nil {
			t.Fatal(err)
		}
		return string(line)
	}
	for _, step := range []struct {
		full bool
		want string
	}{{true, "weir journal 1"}, {false, "weir journal 5"}, {false, "weir journal 5"}} {
		if got := version(step.full); got != step.want {
			t.Errorf("full disk %v: the format is %q after opening, want %q", step.full, got, step.want)
		}
	}
}
