package faulty

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
)

var errTest = errors.New("injected")

func TestHookSeesEveryCall(t *testing.T) {
	d := New()
	var seen []string
	d.OnCall(func(c Call) error {
		seen = append(seen, fmt.Sprintf("%v %d %s%s %d %d", c.Kind, c.N, c.Name, c.To, c.Off, c.Len))
		return nil
	})
	l, err := d.Lock("l")
	check(t, err)
	check(t, l.Close())
	f, err := d.Create("a")
	check(t, err)
	check(t, f.WriteAt(3, []byte("ab"), []byte("c")))
	check(t, f.WriteAt(0, []byte("...")))
	check(t, f.SyncData())
	check(t, d.SyncDir())
	check(t, d.Rename("a", "b"))
	_, err = f.ReadAt(make([]byte, 2), 1)
	check(t, err)
	check(t, f.Truncate(4))
	_, err = d.Open("b")
	check(t, err)
	_, err = d.List()
	check(t, err)
	check(t, d.Remove("b"))
	check(t, f.SyncData())
	want := []string{
		"Lock 1 l 0 0", "Create 1 a 0 0", "Write 1 a 3 3", "Write 2 a 0 3", "Sync 1 a 0 0", "SyncDir 1  0 0",
		"Rename 1 ab 0 0", "Read 1 b 1 2", "Truncate 1 b 4 0", "Open 1 b 0 0", "List 1  0 0", "Remove 1 b 0 0",
		"Sync 2 b 0 0",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("seen %q\nwant %q", seen, want)
	}
	if d.Calls(Write) != 2 || d.Calls(Lock) != 1 {
		t.Errorf("counted %d writes and %d locks, want 2 and 1", d.Calls(Write), d.Calls(Lock))
	}
}

func TestHookFailsEveryKindOfCall(t *testing.T) {
	d := New()
	f := createSynced(t, d, "a", "abc")
	d.OnCall(func(Call) error { return errTest })
	_, create := d.Create("b")
	_, open := d.Open("a")
	_, lock := d.Lock("l")
	_, list := d.List()
	_, read := f.ReadAt(make([]byte, 1), 0)
	for what, err := range map[string]error{
		"create": create, "open": open, "lock": lock, "list": list, "read": read, "write": f.WriteAt(0, []byte("x")),
		"sync": f.SyncData(), "sync dir": d.SyncDir(), "rename": d.Rename("a", "b"), "remove": d.Remove("a"),
		"truncate": f.Truncate(0),
	} {
		if !errors.Is(err, errTest) {
			t.Errorf("%s: %v", what, err)
		}
	}
	d.OnCall(nil)
	holds(t, d, "a", "abc")
}

func TestFailCallFailsOnce(t *testing.T) {
	d := New()
	f := createSynced(t, d, "a", "")
	d.FailCall(Write, 2, errTest)
	for i, want := range []error{nil, errTest, nil, nil} {
		if err := f.WriteAt(int64(i), []byte("x")); !errors.Is(err, want) {
			t.Errorf("write %d: %v, want %v", i, err, want)
		}
	}
	holds(t, d, "a", "x\x00xx")
}

func TestPartialWrite(t *testing.T) {
	d := New()
	f := createSynced(t, d, "a", "......")
	d.FailCall(Write, 1, Partial{Err: errTest, Bytes: 3})
	if err := f.WriteAt(1, []byte("12"), []byte("34")); !errors.Is(err, errTest) {
		t.Fatal(err)
	}
	holds(t, d, "a", ".123..")
	exactly(t, outcomes(d, LoseAll, 1), "a=......")
	exactly(t, outcomes(d, Tear, 100), "a=......", "a=.1....", "a=.12...", "a=.123..")
	d.FailCall(Write, 1, Partial{Err: errTest, Bytes: 99})
	if err := f.WriteAt(5, []byte("x")); !errors.Is(err, errTest) {
		t.Fatal(err)
	}
	holds(t, d, "a", ".123.x")
}

// A hook can simulate a crash before every call that a program makes.
func TestCrashInsideHook(t *testing.T) {
	d := New()
	var images []string
	d.OnCall(func(c Call) error {
		images = append(images, image(d.Crash(LoseNothing, nil)))
		return nil
	})
	f, err := d.Create("a")
	check(t, err)
	check(t, f.WriteAt(0, []byte("1")))
	check(t, f.WriteAt(1, []byte("2")))
	check(t, f.SyncData())
	if want := []string{"", "a=", "a=1", "a=12"}; !slices.Equal(images, want) {
		t.Errorf("content before each call: %q, want %q", images, want)
	}
}

func TestHookMayCloseTheFile(t *testing.T) {
	d := New()
	f := createSynced(t, d, "a", "1")
	check(t, f.WriteAt(0, []byte("2")))
	d.OnCall(func(Call) error { f.Close(); return nil })
	if err := f.SyncData(); !errors.Is(err, fs.ErrClosed) {
		t.Fatal(err)
	}
	exactly(t, outcomes(d, LoseNothing, 1), "a=2")
}

func TestCapacity(t *testing.T) {
	d := New()
	d.Capacity(10)
	f := createSynced(t, d, "a", "12345678")
	g := createSynced(t, d, "b", "")
	if err := g.WriteAt(0, []byte("abc")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	holds(t, d, "a", "12345678", "b", "ab") // as much as fits is written, like on a disk that runs full
	check(t, f.WriteAt(0, []byte("full")))
	if err := f.Truncate(9); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	check(t, f.Truncate(7))
	check(t, g.WriteAt(2, []byte("c")))
	if d.Size() != 10 {
		t.Errorf("size %d, want 10", d.Size())
	}
	d.Capacity(11)
	check(t, g.WriteAt(3, []byte("d")))
	check(t, d.Remove("a"))
	check(t, g.WriteAt(4, []byte("efghijk")))
	check(t, d.Rename("b", "c"))
	h := createSynced(t, d, "b", "")
	if err := h.WriteAt(0, []byte("x")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	check(t, d.Rename("b", "c"))
	check(t, h.WriteAt(0, []byte("replaced")))
	d.Capacity(3) // below the current use: files can shrink but not grow
	if err := h.WriteAt(8, []byte("x")); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	check(t, h.Truncate(4))
	d.Capacity(-1)
	check(t, h.WriteAt(4, make([]byte, 1000)))
}

func TestFlip(t *testing.T) {
	d := New()
	f := createSynced(t, d, "a", "aaaa")
	check(t, f.WriteAt(2, []byte("AAA")))
	before := d.Crash(LoseNothing, nil)
	d.Flip("a", 0, 1)
	d.Flip("a", 2, 1)
	d.Flip("a", 4, 1)
	holds(t, d, "a", "caCAC")
	exactly(t, outcomes(d, LoseAll, 1), "a=caca")
	exactly(t, outcomes(d, LoseNothing, 1), "a=caCAC")
	holds(t, before, "a", "aaAAA")
	defer func() {
		if recover() == nil {
			t.Error("flipping a bit after the end of the file did not panic")
		}
	}()
	d.Flip("a", 5, 0)
}

func TestManyGoroutines(t *testing.T) {
	d := New()
	d.OnCall(func(c Call) error {
		if c.N%50 == 0 {
			d.Crash(LoseSome, rand.New(rand.NewPCG(uint64(c.N), 1)))
		}
		if c.N%31 == 0 {
			return Partial{errTest, 2}
		}
		return nil
	})
	shared, err := d.Create("shared")
	check(t, err)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			name := fmt.Sprint("f", i)
			for j := range 100 {
				shared.WriteAt(int64(j*100), []byte(name))
				shared.ReadAt(make([]byte, 10), int64(j))
				shared.SyncData()
				if f, err := d.Create(name); err == nil {
					f.Truncate(5)
					f.Close()
				}
				d.Rename(name, name+"x")
				d.SyncDir()
				d.Remove(name + "x")
				d.List()
				d.Files()
			}
		})
	}
	all.Wait()
	var sum int64
	for _, b := range d.Files() {
		sum += int64(len(b))
	}
	if d.Size() != sum {
		t.Errorf("size %d, want %d", d.Size(), sum)
	}
}
