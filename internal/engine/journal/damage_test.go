package journal

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/repair"
)

var (
	damages    = flag.Int("journal.damages", faulty.Cases(600), "number of random damages that TestDamage makes")
	damageSeed = flag.Uint64("journal.seed", 0, "seed of TestDamage; 0 means a random seed")
)

// victim is a journal on disk, and the history of what was acknowledged before the disk was
// damaged.
type victim struct {
	name string
	fs   *faulty.FS
	h    *history
}

// TestDamage damages one file of a journal, or swaps two files. Every fourth time it does so twice.
// Then one of three things must be true: the repair loses nothing, the repair reports what is lost
// or may be lost, or the journal is refused. No loss is silent, no older state of a document and no
// deleted document returns, and a repaired journal opens. The same rule applies to opening without
// a repair.
func TestDamage(t *testing.T) {
	seed := *damageSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -journal.seed=%d", seed)
	all := victims(t)
	for i, v := range all {
		t.Run(v.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			outcomes := map[string]int{}
			for n := range *damages/len(all) + 1 {
				what, damaged, hook := v.damage(rng)
				if n%4 == 3 && hook() == nil {
					second := victim{fs: damaged, h: v.h}
					more, twice, again := second.damage(rng)
					what, damaged, hook = what+" and "+more, twice, again
				}
				outcome, err := v.judge(damaged, hook)
				if err != nil {
					t.Errorf("damage %d: %s: %v", n, what, err)
					continue
				}
				outcomes[outcome]++
			}
			t.Log(outcomes)
		})
	}
}

// clock lets time pass on the fake clock of a test.
type clock func(time.Duration)

// victims returns journals of several shapes. Each is closed cleanly, killed while idle, or killed
// under load.
func victims(t *testing.T) (all []victim) {
	grow := func(w *world, _ clock) error { // nothing is reclaimed
		err := errors.Join(w.create("a", "active"), w.create("b", "active"), w.create("gone", "active"))
		for n := weir.Seq(0); n < 6; n++ {
			err = errors.Join(err, w.appendMany("a", 40*n+1, 40*n+30, 900), w.closeGap("a", 40*n+31, 40*n+40), w.appendMany("b", 9*n+1, 9*n+9, 1500))
			switch n {
			case 2:
				err = errors.Join(err, w.update("a", "revoked"), w.remove("gone"))
			case 5:
				err = errors.Join(err, w.update("b", "revoked"), w.create("late", "active"), w.update("late", "revoked"))
			}
		}
		return err
	}
	churn := func(w *world, pass clock) error { // most segments are reclaimed, so most segment numbers are unused
		err := errors.Join(w.create("kept", "active"), w.create("a", "active"), w.create("b", "active"))
		for n := weir.Seq(0); n < 9; n++ {
			short := fmt.Sprint("short", n)
			err = errors.Join(err, w.create(short, "active"), w.appendMany("kept", 8*n+1, 8*n+8, 700), w.appendMany("a", 50*n+1, 50*n+50, 900), w.appendMany(short, 1, 20, 500))
			err = errors.Join(err, w.trim("a", 50*n+20, fmt.Sprint("round ", n)), w.remove(short))
			if n == 4 {
				err = errors.Join(err, w.update("b", "revoked"), w.closeGap("b", 1, 5))
			}
			pass(10 * time.Second)
		}
		return errors.Join(err, w.update("kept", "revoked"), w.appendMany("kept", 100, 120, 900))
	}
	tiny := func(w *world, _ clock) error {
		return errors.Join(w.create("a", "active"), w.appendMany("a", 1, 3, 100), w.update("a", "revoked"))
	}
	full := func(w *world, pass clock) error { // the last write just fits, so the next write starts a new segment
		return errors.Join(grow(w, pass), w.appendMany("b", 100, 130, 1400), w.create("last", "active"), w.appendMany("b", 131, 140, 1400))
	}
	packed := func(w *world, pass clock) error { // some segments are compressed
		rest := func() { pass(calm * 3 / 5) }
		err := errors.Join(mixture(w, 0, 20, rest), w.create("a", "active"))
		for n := weir.Seq(20); err == nil && w.j.Stats().Saved == 0; n++ { // now and then, all of them are freed again
			if err = mixture(w, n, n+1, rest); n == 40 {
				err = errors.New("no segment is compressed")
			}
		}
		return err
	}
	for _, story := range []struct {
		name string
		tell func(*world, clock) error
	}{{"append-only", grow}, {"reclaiming", churn}, {"tiny", tiny}, {"rotating", full}, {"compressed", packed}} {
		for _, end := range []string{"closed", "killed", "killed under load"} {
			synctest.Test(t, func(t *testing.T) {
				fs, h := faulty.New(), newHistory()
				w := newWorld(t, fs, h)
				defer func() { w.j.Close() }()
				pass := func(d time.Duration) { time.Sleep(d) }
				if err := story.tell(w, pass); err != nil {
					t.Fatal(err)
				}
				switch end {
				case "closed":
					w.j.Close()
				case "killed":
					pass(10 * time.Second)
				case "killed under load":
					h = w.load(t, pass)
				}
				all = append(all, victim{story.name + ", " + end, fs.Crash(faulty.LoseNothing, nil), h})
			})
		}
	}
	return all
}

// load appends without any pause of 100 ms, so that the journal is never idle. It returns the
// history without the appends of the last 200 ms. If these are damaged, they may look like a write
// that a crash cut short, because the journal has not yet recorded that they were synced.
func (w *world) load(t *testing.T, pass clock) *history {
	const entries = 100
	var proved *history
	for seq := weir.Seq(1000); seq < 1000+entries; seq++ {
		if seq == 1000+entries-20 {
			proved = w.h.copy()
		}
		if err := w.append("a", seq, 200); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Millisecond)
	}
	all := w.h.copy()
	for key, d := range all.docs {
		d.entries = proved.docs[key].entries
	}
	return all
}

// damage returns a damaged copy of the journal's disk. Some damage consists of failing reads. So
// the caller must get a hook from the returned function, and install it, each time before it uses
// the disk.
func (v *victim) damage(rng *rand.Rand) (what string, damaged *faulty.FS, hook func() func(faulty.Call) error) {
	hook = func() func(faulty.Call) error { return nil }
	fs := v.fs.Crash(faulty.LoseNothing, nil)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(fs.Files())), func(name string) bool { return name == directory.LockFile })
	name := names[rng.IntN(len(names))]
	old := fs.Files()[name]
	content := bytes.Clone(old)
	at := somewhere(rng, old)
	switch how := rng.IntN(10); how {
	case 0:
		what, content = fmt.Sprintf("truncate %s to %d", name, at), content[:at]
	case 1:
		what = fmt.Sprintf("zero the first %d bytes of %s", at, name)
		clear(content[:at])
	case 2:
		what = fmt.Sprintf("zero %s from offset %d on", name, at)
		clear(content[at:])
	case 3:
		what = fmt.Sprintf("zero the page at %d of %s", at&^4095, name)
		clear(content[at&^4095 : min(len(content), at&^4095+4096)])
	case 4, 5:
		bit := rng.IntN(8)
		if at = min(at, len(content)-1); at < 0 {
			return "nothing", fs, hook
		}
		what = fmt.Sprintf("flip bit %d at %d of %s", bit, at, name)
		content[at] ^= 1 << bit
	case 6:
		what = "remove " + name
		fs.Remove(name)
		fs.SyncDir()
		return what, fs.Crash(faulty.LoseNothing, nil), hook
	case 7:
		other := names[rng.IntN(len(names))]
		what = fmt.Sprintf("swap %s and %s", name, other)
		put(fs, other, old)
		if other != name {
			content = v.fs.Files()[other]
		}
	case 8:
		from, to := int64(at&^4095), int64(at&^4095+4096)
		if rng.IntN(3) == 0 {
			from, to = 0, 1<<40
		}
		hook = func() func(faulty.Call) error { return unreadable(name, from, to) }
		return fmt.Sprintf("make %s unreadable from %d to %d", name, from, to), fs, hook
	case 9:
		n := min(len(content)-at, 1<<rng.IntN(17))
		what = fmt.Sprintf("overwrite %d bytes at %d of %s", n, at, name)
		for i := range content[at : at+n] {
			content[at+i] = byte(rng.Uint32())
		}
	}
	put(fs, name, content)
	return what, fs.Crash(faulty.LoseNothing, nil), hook
}

// somewhere returns an offset in a file: anywhere, in the first page, or near the end of the used
// part.
func somewhere(rng *rand.Rand, content []byte) int {
	n := len(content)
	if n == 0 {
		return 0
	}
	used := len(bytes.TrimRight(content[:max(0, n-8192)], "\x00"))
	switch rng.IntN(6) {
	case 0:
		return 0
	case 1:
		return rng.IntN(min(n, 4096))
	case 2:
		return max(0, n-1-rng.IntN(min(n, 20<<10)))
	case 3:
		return rng.IntN(n)
	case 4:
		return max(0, used-rng.IntN(min(used+1, 4096)))
	}
	return rng.IntN(used + 1)
}

// put writes a file, in place of an existing file with that name, and makes it durable.
func put(fs *faulty.FS, name string, content []byte) {
	fs.Remove(name)
	f, err := fs.Create(name)
	if err == nil {
		err = errors.Join(f.WriteAt(0, content), f.SyncData(), f.Close(), fs.SyncDir())
	}
	if err != nil {
		panic(err)
	}
}

// unreadable returns a hook that fails reads of a range of a file, until the file is removed or
// replaced.
func unreadable(name string, from, to int64) func(faulty.Call) error {
	bad := true
	return func(c faulty.Call) error {
		switch {
		case c.Kind == faulty.Remove && c.Name == name, c.Kind == faulty.Rename && c.To == name:
			bad = false
		case bad && c.Kind == faulty.Read && c.Name == name && c.Off < to && c.Off+int64(c.Len) > from:
			return syscall.EIO
		}
		return nil
	}
}

// judge opens the damaged journal without a repair, then repairs and opens it. It returns how the
// repair ended, or an error if anything was lost silently.
func (v *victim) judge(fs *faulty.FS, hook func() func(faulty.Call) error) (string, error) {
	plain := fs.Crash(faulty.LoseNothing, nil)
	plain.OnCall(hook())
	if err := openAndVerify(plain, v.h); err != nil && !refused(err) {
		return "", fmt.Errorf("opened without a repair: %w", err)
	}
	fs.OnCall(hook())
	o := repair.Options{}
	o.Stale = func(engine.Document) ([]byte, error) { return []byte("suspended"), nil }
	o.Mend = func(_ engine.Document, _ weir.Seq, note []byte, entries iter.Seq[*engine.Header], unknown int) ([]byte, []engine.Header, error) {
		return note, nil, nil
	}
	r, err := repair.Run(fs, o)
	if err != nil {
		if refused(err) {
			return "refused", nil
		}
		return "", fmt.Errorf("repair: %w", err)
	}
	if len(r.After.Damages) > 0 {
		return "", fmt.Errorf("still damaged after the repair: %+v, before: %+v", r.After.Damages, r.Before.Damages)
	}
	after := fs.Crash(faulty.LoseAll, nil)
	if r.Lossless() {
		if err := openAndVerify(after, v.h); err != nil {
			return "", fmt.Errorf("SILENT LOSS: %w (damages %+v)", err, r.Before.Damages)
		}
		if len(r.Before.Damages) == 0 {
			return "no damage", nil
		}
		return "nothing lost", nil
	}
	if err := v.excused(after, r); err != nil {
		return "", fmt.Errorf("%w (damages %+v, losses %+v, %d may be lost, stale %q)", err, r.Before.Damages, r.Losses, r.Before.MayBeLost, r.Before.MayBeStale)
	}
	if r.Before.MayBeLost == 0 {
		return "loss named", nil
	}
	return "loss bounded", nil
}

func refused(err error) bool {
	for _, e := range []error{engine.ErrDamaged, ErrForeign, ErrNewer, syscall.EIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// excused verifies a journal whose repair reported a loss. Everything that is missing must have
// been reported, and nothing that was changed or deleted may return.
func (v *victim) excused(fs *faulty.FS, r *repair.Result) error {
	j, err := Open(fs, small)
	if err != nil {
		return fmt.Errorf("open after the repair: %w", err)
	}
	defer j.Close()
	docs, err := j.List(background, "", "", 1000)
	if err != nil {
		return err
	}
	missing, bound := 0, r.Before.MayBeLost
	found := map[string]bool{}
	for _, d := range docs {
		found[d.Key] = true
		stale := string(d.Value) == "suspended" && slices.Contains(r.Before.MayBeStale, d.Key)
		if h := v.h.docs[d.Key]; !stale && (h == nil || string(d.Value) != *h.acked) {
			return fmt.Errorf("document %s returned with the former value %q", d.Key, d.Value)
		}
	}
	for key, h := range v.h.docs {
		if !found[key] {
			if !slices.Contains(r.Documents, key) {
				missing++
			}
			continue
		}
		doc, err := j.Get(background, key)
		if err != nil {
			return err
		}
		n, err := h.excused(j, key, doc, bound > 0)
		if err != nil {
			return fmt.Errorf("log of %s: %w", key, err)
		}
		missing += n
	}
	if missing > bound && !slices.Contains(r.Documents, "") {
		return fmt.Errorf("SILENT LOSS: %d records are missing without a trace, at most %d were reported", missing, bound)
	}
	return nil
}

// excused counts the acknowledged entries that are missing although no other entry marks them as
// lost. If the parameter unknown is true, the record of a trim may be lost, so trimmed entries may
// return.
func (d *docHistory) excused(j *Journal, key string, doc engine.Document, unknown bool) (missing int, err error) {
	l, err := j.Open(background, doc.Created, &fixed{})
	if err != nil {
		return 0, err
	}
	defer l.Close()
	seen := map[weir.Seq]bool{}
	err = l.Scan(background, 0, 0, func(e *engine.Entry) bool {
		seen[e.Seq] = true
		size, ok := d.open[e.Seq]
		switch {
		case e.Flags&engine.Lost != 0, e.Kind == engine.GapClosed && d.closed[e.Seq]:
		case e.Seq < d.low && !unknown:
			err = fmt.Errorf("trimmed entry %d returned although low is %d", e.Seq, d.low)
		case !ok || !bytes.Equal(e.Payload, payloadOf(key, e.Seq, size)):
			err = fmt.Errorf("entry %d differs from what was appended", e.Seq)
		}
		return err == nil
	})
	for seq := range d.entries {
		if !seen[seq] && seq >= d.lowMay {
			missing++
		}
	}
	for seq := range d.closed {
		if !seen[seq] && seq >= d.lowMay {
			missing++
		}
	}
	return missing, err
}
