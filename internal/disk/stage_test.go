package disk_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"

	"weir/internal/disk"
	"weir/internal/disk/faulty"
)

func put(t *testing.T, dir disk.FS, name, content string) {
	t.Helper()
	f, err := dir.Create(name)
	if err == nil {
		err = errors.Join(f.WriteAt(0, []byte(content)), f.SyncData(), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// content returns the files of a directory as text.
func content(dir *faulty.FS) string {
	files, all := dir.Files(), ""
	for _, name := range slices.Sorted(maps.Keys(files)) {
		all += fmt.Sprintf("%s=%s ", name, files[name])
	}
	return all
}

const oldContent, newContent = "a=1 b=2 c=3 e=6 ", "a=1 c=4 d=5 damaged-e=6 "

// stageReplacement stages new content: c changes, d is new, b is left out, and e is set aside.
func stageReplacement(t *testing.T, dir *faulty.FS) (*disk.Stage, error) {
	t.Helper()
	s, err := disk.NewStage(dir)
	if err != nil {
		return s, err
	}
	put(t, s, "c", "4")
	put(t, s, "x", "5")
	s.Leave("b")
	s.SetAside("e")
	return s, s.Rename("x", "d")
}

func oldDirectory(t *testing.T) *faulty.FS {
	t.Helper()
	dir := faulty.New()
	put(t, dir, "a", "1")
	put(t, dir, "b", "2")
	put(t, dir, "c", "3")
	put(t, dir, "e", "6")
	if err := dir.SyncDir(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A stage shows the new content while the directory still has the old content. Commit replaces the
// old content.
func TestStage(t *testing.T) {
	dir := oldDirectory(t)
	s, err := stageReplacement(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	names, err := s.List()
	if err != nil || !slices.Equal(names, []string{"a", "c", "d"}) {
		t.Errorf("the stage lists %q, %v", names, err)
	}
	if _, err := s.Open("b"); err == nil {
		t.Error("a file that is left out can be opened")
	}
	for name, want := range map[string]string{"a": "1", "c": "4", "d": "5"} {
		f, err := s.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1)
		if f.ReadAt(b, 0); string(b) != want {
			t.Errorf("%s is %q in the stage, want %q", name, b, want)
		}
		f.Close()
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := content(dir.Crash(faulty.LoseAll, nil)); got != newContent {
		t.Errorf("after the commit: %q, want %q", got, newContent)
	}
}

// The power is cut before every disk call of Commit, and once more before every disk call of the
// Install that follows. The directory then has either the old or the new content.
func TestStageInterrupted(t *testing.T) {
	outcomes := map[string]int{}
	var whole func(dir *faulty.FS, deep bool)
	interrupted := func(dir *faulty.FS, run func() error, deep bool) {
		dir.OnCall(func(c faulty.Call) error {
			for _, loss := range []faulty.Loss{faulty.LoseAll, faulty.LoseNothing} {
				whole(dir.Crash(loss, nil), deep)
			}
			return nil
		})
		if err := run(); err != nil {
			t.Fatal(err)
		}
		dir.OnCall(nil)
	}
	whole = func(dir *faulty.FS, deep bool) {
		if deep {
			again := dir.Crash(faulty.LoseNothing, nil)
			interrupted(again, func() error { return disk.Install(again) }, false)
		}
		if err := disk.Install(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := disk.NewStage(dir); err != nil { // removes what the crash left
			t.Fatal(err)
		}
		got := content(dir)
		if outcomes[got]++; got != oldContent && got != newContent {
			t.Fatalf("after a power cut: %q", got)
		}
	}
	dir := oldDirectory(t)
	interrupted(dir, func() error {
		s, err := stageReplacement(t, dir)
		if err != nil {
			return err
		}
		return s.Commit()
	}, true)
	if outcomes[oldContent] < 10 || outcomes[newContent] < 10 {
		t.Errorf("number of times that each content was found after a power cut: %v; want the old and the new content at least 10 times each", outcomes)
	}
}

// One disk call of Commit fails. If Commit returns an error, the directory has the old content
// after Discard. Otherwise the next Install completes the new content.
func TestStageFails(t *testing.T) {
	for _, kind := range []faulty.Kind{faulty.SyncDir, faulty.Rename, faulty.Remove, faulty.List, faulty.Create} {
		for k := 1; ; k++ {
			dir := oldDirectory(t)
			s, err := stageReplacement(t, dir)
			if err != nil {
				t.Fatal(err)
			}
			before := dir.Calls(kind)
			dir.FailCall(kind, k, syscall.EIO)
			want := newContent
			if err := s.Commit(); err != nil {
				want = oldContent
				if err := s.Discard(); err != nil {
					t.Fatal(err)
				}
			}
			if err := disk.Install(dir); err != nil && disk.Install(dir) != nil {
				t.Fatal(err)
			}
			if got := content(dir); got != want {
				t.Errorf("%v %d failed: %q, want %q", kind, k, got, want)
			}
			if dir.Calls(kind) < before+k {
				break
			}
		}
	}
}
