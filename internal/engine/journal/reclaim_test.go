package journal

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk/faulty"
)

// TestReclaim evicts most of what many logs hold, so that every segment is left sparse. In calm the journal goes back
// to within two segments of its live bytes while it runs, and what is left is whole, also after a crash.
func TestReclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, h := faulty.New(), newHistory()
		w, err := openWorld(fs, h)
		if err != nil {
			t.Fatal(err)
		}
		const logs, entries = 20, 60
		for i := range logs {
			if err := w.create(fmt.Sprint("log", i), "x"); err != nil {
				t.Fatal(err)
			}
		}
		for seq := weir.Seq(1); seq <= entries; seq++ {
			for i := range logs {
				if err := w.append(fmt.Sprint("log", i), seq, 700); err != nil {
					t.Fatal(err)
				}
			}
		}
		full := w.j.Stats()
		for i := range logs {
			key := fmt.Sprint("log", i)
			switch i % 4 {
			case 0:
				err = w.remove(key)
			case 1:
				err = w.trim(key, entries+1, "empty")
			case 2:
				err = w.trim(key, entries-5, "nearly")
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		s := w.j.Stats()
		fixed := int64(s.Segments) * (dataStart + w.j.commit.reserve + 1024) // of each segment, whatever it holds
		if s.Disk > s.Live+2*small.SegmentSize+fixed || s.Copied == 0 {
			t.Errorf("%+v after %+v", s, full)
		}
		if err := h.verifyOpen(w); err != nil {
			t.Error(err)
		}
		w.j.Close()
		if got, want := fs.Size(), s.Disk+1024; got > want {
			t.Errorf("%d bytes on the disk, %d counted", got, want)
		}
		if err := openAndVerify(fs.Crash(faulty.LoseAll, nil), h); err != nil {
			t.Error(err)
		}
	})
}

// verifyOpen closes the logs of a world and holds its journal against the history.
func (h *history) verifyOpen(w *world) error {
	for _, l := range w.logs {
		l.Close()
	}
	return h.verify(w.j)
}
