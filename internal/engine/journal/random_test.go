package journal

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"weir"
	"weir/internal/disk/faulty"
)

// TestRandomWithReclaim performs random operations on a journal with small segments. Meanwhile the
// reclaimer frees segments, and now and then the process is killed or the power is cut. The journal
// must always match its history, and each segment must know exactly how many of its bytes are still
// needed.
func TestRandomWithReclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(undated{t}, func(t *rapid.T) {
			m := &machine{fs: faulty.New(), h: newHistory(), rng: rand.New(rand.NewPCG(1, 1)), next: map[string]weir.Seq{}}
			m.open(t)
			defer func() { m.w.j.Close() }()
			t.Repeat(map[string]func(*rapid.T){
				"create": m.create, "update": m.update, "remove": m.remove, "append": m.append, "trim": m.trim, "storm": m.storm,
				"calm":   func(*rapid.T) { time.Sleep(5 * time.Second) },
				"reopen": func(t *rapid.T) { m.w.j.Close(); m.open(t) },
				"kill":   func(t *rapid.T) { m.leave(t, (*faulty.FS).Kill) },
				"crash": func(t *rapid.T) {
					loss := rapid.SampledFrom(faulty.Losses).Draw(t, "loss")
					m.leave(t, func(fs *faulty.FS) *faulty.FS { return fs.Crash(loss, m.rng) })
				},
				"": m.check,
			})
		})
	})
}

// undated hides the deadline of a test from rapid. The deadline is a real time, which means nothing
// under the fake clock of synctest.
type undated struct{ rapid.TB }

type machine struct {
	fs   *faulty.FS
	h    *history
	w    *world
	rng  *rand.Rand
	next map[string]weir.Seq // the next sequence of each log
}

func (m *machine) open(t *rapid.T) {
	w, err := openWorld(m.fs, m.h)
	if err != nil {
		t.Fatal(err)
	}
	m.w = w
	m.attach(t)
}

// attach opens all logs.
func (m *machine) attach(t *rapid.T) {
	for key := range m.h.docs {
		d, err := m.w.j.Get(background, key)
		if err != nil {
			t.Fatal(key, err)
		}
		if m.w.logs[key], err = m.w.j.Open(background, d.Created, &fixed{}); err != nil {
			t.Fatal(key, err)
		}
	}
}

// leave abandons the journal. The function next simulates a kill or a power cut, and returns the
// disk that is left. leave opens the journal on that disk.
func (m *machine) leave(t *rapid.T, next func(*faulty.FS) *faulty.FS) {
	old := m.w.j
	m.fs = next(m.fs)
	old.Close()
	m.open(t)
}

func (m *machine) do(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func (m *machine) pick(t *rapid.T) string {
	if len(m.h.docs) == 0 {
		t.Skip("no document")
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(m.h.docs))).Draw(t, "key")
}

func (m *machine) create(t *rapid.T) {
	key := fmt.Sprint("key", rapid.IntRange(0, 7).Draw(t, "n"))
	if m.h.docs[key] != nil {
		t.Skip("document exists")
	}
	m.next[key] = 1
	m.do(t, m.w.create(key, m.value(t)))
}

func (m *machine) value(t *rapid.T) string {
	return fmt.Sprintf("%*d", rapid.SampledFrom([]int{1, 100, 9000}).Draw(t, "size"), m.rng.IntN(1000))
}

func (m *machine) update(t *rapid.T) { m.do(t, m.w.update(m.pick(t), m.value(t))) }
func (m *machine) remove(t *rapid.T) { m.do(t, m.w.remove(m.pick(t))) }
func (m *machine) trim(t *rapid.T) {
	m.do(t, m.trimOne(m.pick(t), rapid.IntRange(0, 30).Draw(t, "kept")))
}

func (m *machine) trimOne(key string, kept int) error {
	return m.w.trim(key, m.next[key]-min(m.next[key], weir.Seq(kept)), fmt.Sprint("kept ", kept))
}

func (m *machine) append(t *rapid.T) {
	key := m.pick(t)
	n := rapid.IntRange(1, 40).Draw(t, "n")
	size := rapid.SampledFrom([]int{0, 300, 1000, 5000, 20_000}).Draw(t, "size")
	if size > 10_000 {
		n = min(n, 3)
	}
	m.next[key] += weir.Seq(n)
	m.do(t, m.w.appendMany(key, m.next[key]-weir.Seq(n), m.next[key]-1, size))
}

// storm changes all documents and all logs concurrently.
func (m *machine) storm(t *rapid.T) {
	var wg sync.WaitGroup
	errs := make(chan error, 100)
	kept := rapid.IntRange(0, 10).Draw(t, "kept")
	for key := range m.h.copy().docs {
		from := m.next[key]
		m.next[key] += 20
		wg.Go(func() { errs <- m.w.appendMany(key, from, from+19, 400) })
		wg.Go(func() { errs <- m.w.update(key, "stormy") })
		low := from - min(from, weir.Seq(kept))
		wg.Go(func() { errs <- m.w.trim(key, low, "stormy") })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		m.do(t, err)
	}
}

func (m *machine) check(t *rapid.T) {
	if err := m.w.j.exact(); err != nil {
		t.Fatal(err)
	}
	if m.rng.IntN(5) > 0 {
		return
	}
	if err := m.h.verifyOpen(m.w); err != nil {
		t.Fatal(err)
	}
	m.attach(t)
}
