package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"weir"
	"weir/internal/disk"
	"weir/internal/engine"
)

// small are the options of the fault tests. With them, even a short script fills several segments,
// the reclaimer frees some of them, and it copies entries to cold segments (see cold.go).
var small = Options{SegmentSize: 64 << 10, ReclaimRate: 1 << 40, holdMore: true, Compress: true}

// history records what a test did to a journal and which calls succeeded. A test verifies an opened
// journal against its history. Everything acknowledged must be present. Everything requested but
// not acknowledged may be present if it is complete. Nothing else may be present.
type history struct {
	mu   sync.Mutex
	docs map[string]*docHistory
}

// docHistory is the history of one document and of the log that it owns.
type docHistory struct {
	acked   *string           // last acknowledged value; nil if no creation was acknowledged
	maybe   map[string]bool   // requested values that may be present instead of acked
	gone    bool              // a deletion was requested but not acknowledged
	entries map[weir.Seq]int  // size of the payload of each acknowledged append
	open    map[weir.Seq]int  // size of the payload of each requested append
	closed  map[weir.Seq]bool // acknowledged closed gaps, by their last sequence
	low     weir.Seq          // entries below this sequence were removed by an acknowledged trim
	lowMay  weir.Seq          // entries below this sequence may have been removed by a requested trim
	note    string            // bytes that the last acknowledged trim stored
	notes   map[string]bool   // bytes that requested trims may have stored
}

func newHistory() *history { return &history{docs: map[string]*docHistory{}} }

// copy returns a copy of the history at this moment.
func (h *history) copy() *history {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := newHistory()
	for k, d := range h.docs {
		n := *d
		n.maybe, n.entries, n.open, n.notes = maps.Clone(d.maybe), maps.Clone(d.entries), maps.Clone(d.open), maps.Clone(d.notes)
		n.closed = maps.Clone(d.closed)
		c.docs[k] = &n
	}
	return c
}

func (h *history) doc(key string) *docHistory {
	d := h.docs[key]
	if d == nil {
		d = &docHistory{maybe: map[string]bool{}, entries: map[weir.Seq]int{}, open: map[weir.Seq]int{}, notes: map[string]bool{}, closed: map[weir.Seq]bool{}}
		h.docs[key] = d
	}
	return d
}

func (h *history) with(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// payloadOf returns a payload that is unique to its log and sequence, so that a mix-up is detected.
func payloadOf(key string, seq weir.Seq, size int) []byte {
	b := binary.LittleEndian.AppendUint64([]byte(key+"/"), uint64(seq))
	rng := rand.New(rand.NewPCG(uint64(seq), uint64(len(key))))
	for len(b) < size {
		b = binary.LittleEndian.AppendUint64(b, rng.Uint64())
	}
	return b[:max(size, len(key)+9)]
}

// fixed is an engine.Judge that admits every entry as it is.
type fixed struct{ restored []engine.Header }

func (f *fixed) Restore(_ []byte, entries iter.Seq[*engine.Header]) error {
	for h := range entries {
		f.restored = append(f.restored, *h)
	}
	return nil
}
func (f *fixed) Admit(*engine.Entry) bool { return true }
func (f *fixed) Commit(int)               {}
func (f *fixed) Dropped()                 {}

// attach opens the log of a document with a judge that admits everything.
func attach(t *testing.T, j *Journal, key string) engine.Log {
	t.Helper()
	d, err := j.Get(background, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := j.Open(background, d.Created, &fixed{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// world operates a journal and records each operation in a history.
type world struct {
	j    *Journal
	h    *history
	logs map[string]engine.Log
}

func openWorld(fs disk.FS, h *history) (*world, error) {
	j, err := Open(fs, small)
	if err != nil {
		return nil, err
	}
	j.queue.mu.Lock()
	j.opts.QuickDisk = time.Hour // Flush waits for the disk, however long the test takes to write
	j.queue.mu.Unlock()
	return &world{j: j, h: h, logs: map[string]engine.Log{}}, nil
}

func newWorld(t testing.TB, fs disk.FS, h *history) *world {
	t.Helper()
	w, err := openWorld(fs, h)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

var background = context.Background()

func (w *world) create(key, value string) error {
	w.h.with(func() { w.h.doc(key).maybe[value] = true })
	d, err := w.j.Create(background, key, []byte(value))
	if err != nil {
		return err
	}
	w.h.with(func() { d := w.h.doc(key); d.acked = &value; clear(d.maybe) })
	w.logs[key], err = w.j.Open(background, d.Created, &fixed{})
	return err
}

func (w *world) update(key, value string) error {
	old, err := w.j.Get(background, key)
	if err != nil {
		return err
	}
	w.h.with(func() { w.h.doc(key).maybe[value] = true })
	if _, err = w.j.Update(background, key, []byte(value), old.Revision); err == nil {
		w.h.with(func() { d := w.h.doc(key); d.acked = &value; clear(d.maybe) })
	}
	return err
}

func (w *world) remove(key string) error {
	w.h.with(func() { w.h.doc(key).gone = true })
	err := w.j.Delete(background, key, 0)
	if err == nil {
		w.h.with(func() { delete(w.h.docs, key) })
		delete(w.logs, key)
	}
	return err
}

// append appends an entry. Entries with an even sequence are deferred until Flush is called.
func (w *world) append(key string, seq weir.Seq, size int) error {
	w.h.with(func() { w.h.doc(key).open[seq] = size })
	e := &engine.Entry{Payload: payloadOf(key, seq, size), Header: engine.Header{
		Kind: engine.Batch, Seq: seq, Time: weir.Time(seq), Count: uint32(seq), Key: fmt.Sprintf("%.*s", int(seq%3), "ab"),
	}}
	var err error
	if e.Deferred = seq%2 == 0; e.Deferred {
		done := make(chan error, 1)
		w.logs[key].Propose(e, func(err error) { done <- err })
		w.j.Flush()
		err = <-done
	} else {
		err = w.logs[key].Append(background, e)
	}
	if err == nil {
		w.h.with(func() { w.h.doc(key).entries[seq] = size })
	}
	return err
}

// closeGap closes the gap from first to last.
func (w *world) closeGap(key string, first, last weir.Seq) error {
	err := w.logs[key].Append(background, &engine.Entry{Header: engine.Header{Kind: engine.GapClosed, First: first, Seq: last, Time: weir.Time(last)}})
	if err == nil {
		w.h.with(func() { w.h.doc(key).closed[last] = true })
	}
	return err
}

func (w *world) trim(key string, low weir.Seq, note string) error {
	w.h.with(func() { d := w.h.doc(key); d.lowMay = max(d.lowMay, low); d.notes[note] = true })
	err := w.logs[key].Trim(background, low, []byte(note))
	if err == nil {
		w.h.with(func() { d := w.h.doc(key); d.low = max(d.low, low); d.note = note; clear(d.notes) })
	}
	return err
}

// verify compares an opened journal with the history.
func (h *history) verify(j *Journal) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	docs, err := j.List(background, "", "", 1<<30)
	if err != nil {
		return err
	}
	found := map[string]engine.Document{}
	for _, d := range docs {
		found[d.Key] = d
		if h.docs[d.Key] == nil {
			return fmt.Errorf("deleted document %s exists", d.Key)
		}
	}
	for key, d := range h.docs {
		got, ok := found[key]
		if !ok {
			if d.acked != nil && !d.gone {
				return fmt.Errorf("document %s is lost", key)
			}
			continue
		}
		if v := string(got.Value); (d.acked == nil || *d.acked != v) && !d.maybe[v] {
			return fmt.Errorf("document %s has value %.20q", key, v)
		}
		if err := d.verify(j, key, got); err != nil {
			return fmt.Errorf("log of %s: %w", key, err)
		}
	}
	return nil
}

func (d *docHistory) verify(j *Journal, key string, doc engine.Document) error {
	judge := &fixed{}
	l, err := j.Open(background, doc.Created, judge)
	if err != nil {
		return err
	}
	defer l.Close()
	seen := map[weir.Seq]bool{}
	err = l.Scan(background, 0, 0, func(e *engine.Entry) bool {
		size, ok := d.open[e.Seq]
		if e.Kind == engine.GapClosed && d.closed[e.Seq] {
			seen[e.Seq] = true
			return true
		}
		if !ok || seen[e.Seq] || !bytes.Equal(e.Payload, payloadOf(key, e.Seq, size)) || e.Time != weir.Time(e.Seq) || e.Count != uint32(e.Seq) {
			err = fmt.Errorf("entry %d differs from what was appended (requested: %t, seen before: %t)", e.Seq, ok, seen[e.Seq])
			return false
		}
		if e.Seq < d.low {
			err = fmt.Errorf("trimmed entry %d exists, low is %d", e.Seq, d.low)
			return false
		}
		if n := len(seen); n >= len(judge.restored) || judge.restored[n] != e.Header.Restored() {
			err = fmt.Errorf("entry %d was not restored, or its restored header differs", e.Seq)
			return false
		}
		seen[e.Seq] = true
		return true
	})
	if err != nil {
		return err
	}
	for seq := range d.entries {
		if !seen[seq] && seq >= d.lowMay {
			return fmt.Errorf("acknowledged entry %d is lost", seq)
		}
	}
	for seq := range d.closed {
		if !seen[seq] && seq >= d.lowMay {
			return fmt.Errorf("the gap closed at %d is open again", seq)
		}
	}
	if len(judge.restored) != len(seen) {
		return fmt.Errorf("restored %d entries, scanned %d", len(judge.restored), len(seen))
	}
	if note := string(l.(*handle).noteInMemory()); note != d.note && !d.notes[note] {
		return fmt.Errorf("note %q, want %q", note, d.note)
	}
	return nil
}

// allowed reports whether a journal on a failing disk may return err.
func allowed(err error) bool {
	return err == nil || errors.Is(err, engine.ErrReadOnly) || errors.Is(err, engine.ErrFull) || errors.Is(err, engine.ErrClosed)
}

// noteInMemory returns the note of the last trim if it is kept in memory. The reclaimer may move the
// mark at the same time.
func (l *log) noteInMemory() []byte {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.lastMark().note
}
