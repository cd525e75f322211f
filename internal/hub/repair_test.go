package hub

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal"
	"weir/internal/engine/journal/repair"
)

// acknowledged describes what the server acknowledged to the publishers of a stream before the disk
// was damaged.
type acknowledged struct {
	id     weir.StreamID
	stored map[weir.Seq]string // payloads of the batches that were acknowledged and not evicted
	cursor weir.Seq
}

var damageable = journal.Options{SegmentSize: 64 << 10}

// The test overwrites parts of a journal's files and repairs the journal. Whatever was lost, four
// things hold. A batch that can be read has the payload that was stored. No acknowledged sequence
// is used again. No cursor decreases. Subscribers get every remaining batch, and a gap for every
// lost batch.
func TestRepairOfDamagedFiles(t *testing.T) {
	fs := faulty.New()
	var all []acknowledged
	synctest.Test(t, func(t *testing.T) {
		j, err := journal.Open(fs, damageable)
		if err != nil {
			t.Fatal(err)
		}
		h := open(t, j, Options{})
		all = fillStreams(t, h)
		time.Sleep(time.Minute) // long enough for gaps to close
		for i := range all {
			s, _ := h.Stream(all[i].id)
			publish(t, s, &Publish{Batch: weir.Batch{Payload: []byte("last")}})
			all[i].cursor++
			all[i].stored[all[i].cursor] = "last"
		}
		time.Sleep(time.Minute) // long enough for evicted batches to be trimmed
		if err := errors.Join(h.Close(), j.Close()); err != nil {
			t.Fatal(err)
		}
	})
	var names []string
	for name := range fs.Files() {
		if strings.HasSuffix(name, ".seg") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	rng := rand.New(rand.NewPCG(5, 5))
	lost, gone := 0, 0
	for n := range faulty.Cases(120) {
		after := fs.Crash(faulty.LoseNothing, nil)
		name := names[rng.IntN(len(names))]
		used := int64(len(strings.TrimRight(string(after.Files()[name]), "\x00")))
		off, length := rng.Int64N(max(used, 1)), int64(16<<rng.IntN(9))
		overwrite(t, after, name, off, length, rng)
		synctest.Test(t, func(t *testing.T) {
			l, g := verifyRepaired(t, fmt.Sprintf("damage %d: %d bytes at %d of %s", n, length, off, name), after, all)
			lost, gone = lost+l, gone+g
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d batches lost, %d streams lost", lost, gone)
	if lost < faulty.Cases(100)/5 {
		t.Errorf("only %d batches were lost, too few to test anything", lost)
	}
}

// The test removes each file of a journal in turn and repairs the journal. One stream has more
// batches than the number of sequences that a publisher may skip. In other streams every batch was
// evicted and trimmed (removed from the log). Only the record of the trim is left, and the files
// that held these batches were reused.
func TestRepairOfMissingFiles(t *testing.T) {
	fs := faulty.New()
	var all []acknowledged
	synctest.Test(t, func(t *testing.T) {
		j, err := journal.Open(fs, journal.Options{SegmentSize: 256 << 10})
		if err != nil {
			t.Fatal(err)
		}
		h := open(t, j, Options{})
		all = fillFiles(t, h, func() { time.Sleep(time.Hour) })
		if err := errors.Join(h.Close(), j.Close()); err != nil {
			t.Fatal(err)
		}
	})
	report, err := repair.Check(fs, repair.CheckOptions{})
	if err != nil || len(report.Damages) > 0 {
		t.Fatal(report, err)
	}
	var names []string
	for name := range fs.Files() {
		if strings.HasSuffix(name, ".seg") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	lost, gone, harmed := 0, 0, 0
	for _, name := range names {
		after := fs.Crash(faulty.LoseNothing, nil)
		if err := errors.Join(after.Remove(name), after.SyncDir()); err != nil {
			t.Fatal(err)
		}
		report, err := repair.Check(after, repair.CheckOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if report.MayBeLost == 0 {
			continue // the file was prepared for later use and holds no records
		}
		harmed++
		synctest.Test(t, func(t *testing.T) {
			l, g := verifyRepaired(t, "without "+name, after, all)
			lost, gone = lost+l, gone+g
		})
	}
	t.Logf("%d files, %d batches lost, %d streams lost", harmed, lost, gone)
	if harmed < 3 || lost < 1200 {
		t.Errorf("only %d files and %d batches were lost, too few to test anything", harmed, lost)
	}
}

// fillFiles publishes enough to fill several files of the journal. The first files become free and
// are reused.
func fillFiles(t *testing.T, h *Hub, pass func()) (all []acknowledged) {
	one := func(s *Stream, k *acknowledged, payload string) {
		k.cursor++
		publish(t, s, at(k.cursor, payload))
		k.stored[k.cursor] = payload
	}
	streams := []*Stream{}
	for i := range 4 {
		s := made(t, h, func(s *Spec) {
			if s.RetentionSeconds = 60; i >= 2 {
				s.RetentionSeconds = 7 * 24 * 3600
			}
		})
		streams, all = append(streams, s), append(all, acknowledged{id: s.ID, stored: map[weir.Seq]string{}})
	}
	for range 2000 { // these batches expire, so only the record of their trim is left
		one(streams[0], &all[0], strings.Repeat("short", 60))
		one(streams[1], &all[1], "short")
	}
	pass()
	clear(all[0].stored)
	clear(all[1].stored)
	for range 1600 {
		one(streams[2], &all[2], "small")
	}
	for range 120 {
		one(streams[3], &all[3], strings.Repeat("large", 2000))
	}
	return all
}

// fillStreams publishes to streams of several kinds.
func fillStreams(t *testing.T, h *Hub) []acknowledged {
	var all []acknowledged
	for i := range 4 {
		s := made(t, h, func(s *Spec) {
			if i == 2 {
				s.MaxBytes = 20_000
			}
		})
		k := acknowledged{id: s.ID, stored: map[weir.Seq]string{}}
		for seq := weir.Seq(1); seq <= 150; seq++ {
			if i == 1 && seq%10 == 5 {
				continue // leave a gap
			}
			payload := strings.Repeat(fmt.Sprint(i, seq, " "), 1+int(seq)%60)
			p := at(seq, payload)
			if i == 3 {
				p = &Publish{Key: fmt.Sprint("key", seq), Batch: weir.Batch{Payload: []byte(payload)}}
			}
			publish(t, s, p)
			k.stored[seq], k.cursor = payload, seq
		}
		all = append(all, k)
	}
	for i := range all {
		s, _ := h.Stream(all[i].id)
		for seq := range all[i].stored {
			if _, err := s.Batch(ctx, seq); err != nil {
				delete(all[i].stored, seq) // the batch was evicted
			}
		}
	}
	return all
}

func overwrite(t *testing.T, fs *faulty.FS, name string, off, length int64, rng *rand.Rand) {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, _ := f.Size()
	b := make([]byte, min(length, size-off))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	if err := errors.Join(f.WriteAt(off, b), f.SyncData()); err != nil {
		t.Fatal(err)
	}
}

// verifyRepaired repairs a journal and checks each stream with acknowledged.verify. It returns the
// numbers of lost batches and of lost streams.
func verifyRepaired(t *testing.T, what string, fs *faulty.FS, all []acknowledged) (lost, gone int) {
	t.Helper()
	check := func(d engine.Document, note []byte, entries iter.Seq[*engine.Header]) error {
		return CheckStream(d, note, entries)
	}
	r, err := repair.Run(fs, repair.Options{
		CheckOptions: repair.CheckOptions{Document: check},
		Mend: func(d engine.Document, low weir.Seq, note []byte, entries iter.Seq[*engine.Header], unknown int) ([]byte, []engine.Header, error) {
			return MendStream(d, low, note, entries, unknown, weir.TimeOf(time.Now()))
		},
	})
	if err != nil || len(r.After.Damages) > 0 {
		t.Fatalf("%s: repair returned error %v and report %+v", what, err, r)
	}
	j, err := journal.Open(fs, damageable)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer j.Close()
	h := open(t, j, Options{})
	defer h.Close()
	for _, k := range all {
		s, err := h.Stream(k.id)
		if err != nil {
			if gone++; len(r.Documents) == 0 && r.Before.MayBeLost == 0 {
				t.Errorf("%s: stream %s is lost, but the repair did not report it", what, k.id)
			}
			continue
		}
		n, err := k.verify(t, s)
		if err != nil {
			t.Errorf("%s: stream %s: %v\nfound %+v\nlost %+v", what, k.id, err, r.Before.Damages, r.Losses)
		}
		lost += n
	}
	return lost, gone
}

// verify checks every acknowledged batch: it can be read unchanged, or it is lost and its sequence
// cannot be used again. It returns the number of lost batches.
func (k *acknowledged) verify(t *testing.T, s *Stream) (lost int, err error) {
	c, err := s.Cursor(ctx)
	if err != nil {
		return 0, err
	}
	if c.Cursor < k.cursor {
		return 0, fmt.Errorf("the cursor went from %d to %d", k.cursor, c.Cursor)
	}
	left := map[weir.Seq]string{}
	for seq, payload := range k.stored {
		b, err := s.Batch(ctx, seq)
		ack, again := s.Publish(ctx, at(seq, "again"))
		switch {
		case err == nil && string(b.Payload) != payload:
			return 0, fmt.Errorf("batch %d does not have the payload that was stored", seq)
		case err == nil && (again != nil || !ack.Duplicate):
			return 0, fmt.Errorf("batch %d is kept, but publishing it again gives %+v, %v", seq, ack, again)
		case err == nil:
			left[seq] = payload
		case code(err) != weir.StreamNotFound:
			return 0, fmt.Errorf("batch %d: %w", seq, err)
		case code(again) != weir.InvalidSequence:
			return 0, fmt.Errorf("batch %d is lost, but publishing it again gives %+v, %v", seq, ack, again)
		default:
			lost++
		}
	}
	ack, err := s.Publish(ctx, &Publish{Batch: weir.Batch{Payload: []byte("new")}})
	if err != nil || ack.Seq <= k.cursor {
		return 0, fmt.Errorf("the next publish after the repair: got %+v, %v; want a sequence above the old cursor", ack, err)
	}
	left[ack.Seq] = "new"
	low := s.traffic.open().state.Low() // the new batch may have evicted others
	maps.DeleteFunc(left, func(seq weir.Seq, _ string) bool { return seq < low })
	return lost, k.verifySubscription(s, ack.Seq, left)
}

// verifySubscription subscribes from the oldest batch. It checks that every remaining batch arrives
// in order, and that every lost batch is reported in a gap.
func (k *acknowledged) verifySubscription(s *Stream, last weir.Seq, left map[weir.Seq]string) error {
	sub, err := s.Subscribe(ctx, Oldest)
	if err != nil {
		return err
	}
	defer sub.Close()
	var gaps []Gap
	for next := weir.Seq(0); next <= last; {
		ev, err := sub.Next(ctx, time.Hour)
		if err != nil {
			return err
		}
		if ev.Gap == nil && len(ev.Frames) == 0 {
			return fmt.Errorf("no batch or gap arrived from sequence %d on", next)
		}
		if g := ev.Gap; g != nil {
			if !g.Lost || g.From < next {
				return fmt.Errorf("got gap %+v, want a gap of lost batches at %d or above", *g, next)
			}
			gaps = append(gaps, *g)
			next = g.To + 1
		}
		for seq, payload := range batchesOf(ev) {
			if seq < next || left[seq] != payload {
				return fmt.Errorf("got batch %d: it is below %d, or its payload is wrong", seq, next)
			}
			delete(left, seq)
			next = seq + 1
		}
	}
	for seq := range left {
		return fmt.Errorf("batch %d did not arrive", seq)
	}
	for seq := range k.stored {
		if _, err := s.Batch(ctx, seq); err != nil && seq >= s.traffic.open().state.Low() && !slices.ContainsFunc(gaps, func(g Gap) bool { return g.From <= seq && seq <= g.To }) {
			c, _ := s.Cursor(ctx)
			return fmt.Errorf("batch %d is lost, but no gap reported it (cursor %d)", seq, c.Cursor)
		}
	}
	return nil
}
