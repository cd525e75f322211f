package faulty

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"weir/internal/disk"
)

// outcomes simulates many crashes with different random numbers. It returns all resulting
// directories, as text.
func outcomes(d *FS, loss Loss, times int) map[string]bool {
	seen := map[string]bool{}
	for seed := range uint64(times) {
		seen[image(d.Crash(loss, rand.New(rand.NewPCG(seed, 7))))] = true
	}
	return seen
}

func image(d *FS) string {
	var b strings.Builder
	files := texts(d)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "%s=%s ", name, files[name])
	}
	return strings.TrimSpace(b.String())
}

func exactly(t *testing.T, got map[string]bool, want ...string) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(got))
	slices.Sort(want)
	if !slices.Equal(keys, want) {
		t.Errorf("outcomes: %q\nwant:     %q", keys, want)
	}
}

// The quoted sentences here and below are from the comments of disk.FS and disk.File. "A crash may
// undo writes since the file's last successful SyncData, wholly or in part": Tear can leave any
// prefix of the three bytes; LoseSome keeps or loses a sector as a unit.
func TestUnsyncedWrites(t *testing.T) {
	d := New()
	f := createSynced(t, d, "a", "...")
	check(t, f.WriteAt(1, []byte("xyz")))
	exactly(t, outcomes(d, LoseAll, 1), "a=...")
	exactly(t, outcomes(d, LoseNothing, 1), "a=.xyz")
	exactly(t, outcomes(d, LoseSome, 200), "a=...", "a=.xyz", "a=...\x00")
	exactly(t, outcomes(d, Tear, 200), "a=...", "a=.x.", "a=.xy", "a=.xyz")
	holds(t, d, "a", ".xyz")
}

// A crash may undo writes "in any order": LoseSome can keep the second of two writes without the
// first. Tear cannot, because it keeps the order.
func TestOrderOfUnsyncedWrites(t *testing.T) {
	d := New()
	f := createSynced(t, d, "a", "..")
	g := createSynced(t, d, "b", ".")
	check(t, f.WriteAt(0, []byte("1")))
	check(t, g.WriteAt(0, []byte("2")))
	check(t, f.WriteAt(1, []byte("3")))
	exactly(t, outcomes(d, LoseSome, 500), "a=.. b=.", "a=1. b=.", "a=.. b=2", "a=.3 b=.",
		"a=1. b=2", "a=13 b=.", "a=.3 b=2", "a=13 b=2")
	exactly(t, outcomes(d, Tear, 500), "a=.. b=.", "a=1. b=.", "a=1. b=2", "a=13 b=2")
}

// Sectors are aligned to the file, not to the write: a write across a sector boundary has two
// parts.
func TestSectorsAreIndependent(t *testing.T) {
	d := New()
	dots := strings.Repeat(".", 2*sector)
	f := createSynced(t, d, "a", dots)
	check(t, f.WriteAt(sector-1, []byte("12")))
	at := func(s string) string { return "a=" + dots[:sector-1] + s + dots[sector+1:] }
	exactly(t, outcomes(d, LoseSome, 200), at(".."), at("1."), at(".2"), at("12"))
}

// "Everything that a successful SyncData or SyncDir covered survives", even if later writes are
// lost.
func TestSyncedWritesStay(t *testing.T) {
	d := New()
	f := createSynced(t, d, "a", "first")
	check(t, f.WriteAt(5, []byte(" second")))
	check(t, f.SyncData())
	check(t, f.WriteAt(0, []byte("F")))
	for _, loss := range Losses {
		for found := range outcomes(d, loss, 50) {
			if !strings.HasSuffix(found, "irst second") {
				t.Errorf("a crash with %v left %q, and the synced writes are missing", loss, found)
			}
		}
	}
}

// SyncData makes everything durable, "including the file's size", whether the file grows or
// shrinks.
func TestTruncations(t *testing.T) {
	d := New()
	f := createSynced(t, d, "a", "long")
	check(t, f.Truncate(1))
	for _, loss := range []Loss{LoseSome, Tear} {
		exactly(t, outcomes(d, loss, 100), "a=long", "a=l")
	}
	exactly(t, outcomes(d, LoseAll, 1), "a=long")
	check(t, f.SyncData())
	exactly(t, outcomes(d, LoseAll, 1), "a=l")
	check(t, f.Truncate(3))
	check(t, f.SyncData())
	exactly(t, outcomes(d, LoseAll, 1), "a=l\x00\x00")
}

// "It may also undo creations, renames and removals since the last successful SyncDir": syncing a
// file does not make its name durable.
func TestUnsyncedCreation(t *testing.T) {
	d := New()
	f, err := d.Create("a")
	check(t, err)
	check(t, f.WriteAt(0, []byte("data")))
	check(t, f.SyncData())
	exactly(t, outcomes(d, LoseAll, 1), "")
	exactly(t, outcomes(d, LoseSome, 50), "", "a=data")
	exactly(t, outcomes(d, Tear, 50), "", "a=data")
	check(t, d.SyncDir())
	for _, loss := range Losses {
		exactly(t, outcomes(d, loss, 50), "a=data")
	}
}

// Syncing the directory does not make the content durable.
func TestSyncDirDoesNotSyncContent(t *testing.T) {
	d := New()
	f, err := d.Create("a")
	check(t, err)
	check(t, f.WriteAt(0, []byte("data")))
	check(t, d.SyncDir())
	exactly(t, outcomes(d, LoseAll, 1), "a=")
}

// A removed file may reappear with its durable content.
func TestUnsyncedRemoval(t *testing.T) {
	d := New()
	f := createSynced(t, d, "a", "kept")
	check(t, f.WriteAt(0, []byte("lost")))
	check(t, d.Remove("a"))
	holds(t, d)
	exactly(t, outcomes(d, LoseAll, 1), "a=kept")
	exactly(t, outcomes(d, LoseNothing, 1), "")
	exactly(t, outcomes(d, LoseSome, 100), "", "a=kept", "a=lost")
	check(t, d.SyncDir())
	for _, loss := range Losses {
		exactly(t, outcomes(d, loss, 50), "")
	}
}

// A rename may be undone: the old name reappears, and so does the replaced file.
func TestUnsyncedRename(t *testing.T) {
	d := New()
	createSynced(t, d, "new", "1")
	createSynced(t, d, "temp", "2")
	check(t, d.Rename("temp", "new"))
	holds(t, d, "new", "2")
	exactly(t, outcomes(d, LoseAll, 1), "new=1 temp=2")
	exactly(t, outcomes(d, Tear, 50), "new=1 temp=2", "new=2")
	check(t, d.SyncDir())
	exactly(t, outcomes(d, LoseAll, 1), "new=2")
}

// Directory changes survive in order: if one is lost, all later ones are lost too.
func TestPrefixOfDirectoryChanges(t *testing.T) {
	d := New()
	createSynced(t, d, "a", "1")
	check(t, d.Rename("a", "b"))
	_, err := d.Create("a")
	check(t, err)
	check(t, d.Remove("b"))
	for _, loss := range []Loss{LoseSome, Tear} {
		exactly(t, outcomes(d, loss, 200), "a=1", "b=1", "a= b=1", "a=")
	}
}

// "After an error nothing may be assumed about any write since the last success": those writes can
// be read, but a later successful SyncData does not make them durable.
func TestFailedSyncDropsWrites(t *testing.T) {
	d := New()
	f := createSynced(t, d, "a", "....")
	check(t, f.WriteAt(0, []byte("12")))
	broken := errors.New("broken")
	d.FailCall(Sync, 1, broken)
	if err := f.SyncData(); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	holds(t, d, "a", "12..")
	check(t, f.SyncData())
	check(t, f.WriteAt(1, []byte("34")))
	for _, loss := range Losses {
		for found := range outcomes(d, loss, 50) {
			if found[2] != '.' {
				t.Errorf("a crash with %v left %q, with a write from before the failed sync", loss, found)
			}
		}
	}
	check(t, f.SyncData())
	holds(t, d, "a", "134.")
	for _, loss := range Losses {
		exactly(t, outcomes(d, loss, 50), "a=.34.")
	}
}

// A failed SyncDir leaves the changes unsynced. A later SyncDir makes them durable.
func TestFailedSyncDir(t *testing.T) {
	d := New()
	_, err := d.Create("a")
	check(t, err)
	d.FailCall(SyncDir, 1, errors.New("broken"))
	if d.SyncDir() == nil {
		t.Fatal("SyncDir did not fail")
	}
	exactly(t, outcomes(d, LoseAll, 1), "")
	check(t, d.SyncDir())
	exactly(t, outcomes(d, LoseAll, 1), "a=")
}

// The directory after a crash is durable and independent of the original, and another crash changes
// nothing in it.
func TestCrashedDirectoryIsIndependent(t *testing.T) {
	d := New()
	f := createSynced(t, d, "a", "one")
	check(t, f.WriteAt(0, []byte("ONE")))
	d.Capacity(100)
	d.OnCall(func(Call) error { return errors.New("hook of the original") })
	after := d.Crash(LoseNothing, nil)
	d.OnCall(nil)

	g, err := after.Open("a")
	check(t, err)
	exactly(t, outcomes(after, LoseAll, 1), "a=ONE")
	check(t, g.WriteAt(3, []byte("!")))
	check(t, f.WriteAt(0, []byte("two")))
	check(t, g.SyncData())
	check(t, after.Remove("a"))
	holds(t, d, "a", "two")
	holds(t, after)
	exactly(t, outcomes(after, LoseAll, 1), "a=ONE!")
	exactly(t, outcomes(d, LoseAll, 1), "a=one")
	if after.Crash(LoseAll, nil).capacity != 100 {
		t.Error("the crash changed the capacity")
	}
}

// The same state and the same random numbers give the same crash.
func TestCrashIsRepeatable(t *testing.T) {
	d := New()
	for i := range 20 {
		f := createSynced(t, d, fmt.Sprint("f", i), "")
		check(t, f.WriteAt(int64(i), make([]byte, 5000), []byte("end")))
	}
	for _, loss := range Losses {
		a := d.Crash(loss, rand.New(rand.NewPCG(3, 4)))
		b := d.Crash(loss, rand.New(rand.NewPCG(3, 4)))
		if image(a) != image(b) {
			t.Errorf("%v: two crashes with the same random numbers differ", loss)
		}
	}
}

// After random calls and a crash, every byte of the file has either its durable value or a value
// that was written there since the last sync.
func TestRandomWritesAndCrashes(t *testing.T) {
	const length = 6000
	rng := rand.New(rand.NewPCG(11, 12))
	for range 60 {
		d := New()
		f := createSynced(t, d, "a", "")
		durable := make([]byte, length)
		allowed := make([][]byte, length)
		check(t, f.WriteAt(0, durable))
		check(t, f.SyncData())
		for range rng.IntN(40) {
			if rng.IntN(6) == 0 {
				check(t, f.SyncData())
				copy(durable, d.Files()["a"])
				clear(allowed)
			}
			off := rng.IntN(length - 1)
			data := random(rng, 1+rng.IntN(length-off-1))
			check(t, f.WriteAt(int64(off), data))
			for i, b := range data {
				allowed[off+i] = append(allowed[off+i], b)
			}
		}
		for _, loss := range Losses {
			for i, b := range d.Crash(loss, rng).Files()["a"] {
				if b != durable[i] && !bytes.Contains(allowed[i], []byte{b}) {
					t.Fatalf("%v: byte %d has a value that was never written there", loss, i)
				}
			}
		}
	}
}

func BenchmarkCrash(b *testing.B) {
	d := New()
	rng := rand.New(rand.NewPCG(1, 1))
	f, _ := d.Create("a")
	f.WriteAt(0, make([]byte, 1<<20))
	f.SyncData()
	d.SyncDir()
	for i := range int64(20) {
		f.WriteAt(i*1500, make([]byte, 1500))
	}
	for _, loss := range Losses {
		b.Run(loss.String(), func(b *testing.B) {
			var after disk.FS
			for b.Loop() {
				after = d.Crash(loss, rng)
			}
			_ = after
		})
	}
}

// The writes of a killed process can still be read, but they are not durable.
func TestKillKeepsUnsyncedWrites(t *testing.T) {
	d := New()
	f := createSynced(t, d, "a", "12")
	check(t, f.WriteAt(2, []byte("34")))
	check(t, d.Rename("a", "b"))
	_, err := d.Lock("b")
	check(t, err)
	next := d.Kill()
	check(t, f.WriteAt(0, []byte("....")))
	holds(t, next, "b", "1234")
	exactly(t, outcomes(next, LoseAll, 1), "a=12")
	_, err = next.Lock("b")
	check(t, err)
	g, err := next.Open("b")
	check(t, err)
	check(t, g.SyncData())
	check(t, next.SyncDir())
	holds(t, next.Crash(LoseAll, nil), "b", "1234")
}
