package journal

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"testing"
	"unsafe"

	"weir/internal/disk/faulty"
	"weir/internal/engine"
)

// noted is an engine.Judge. It keeps the note that Restore gets, which is the bytes that the last
// trim of the log stored.
type noted struct {
	recall
	note []byte
}

func (n *noted) Restore(note []byte, entries iter.Seq[*engine.Header]) error {
	n.note = note
	return n.recall.Restore(note, entries)
}

// The journal does not keep long notes in memory, not even while their log is open. After a crash
// it reads a long note only when the log of that note is opened.
func TestLongNotesStayOnDisk(t *testing.T) {
	ctx := context.Background()
	fs := faulty.New()
	j, err := Open(fs, Options{SegmentSize: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	d, err := j.Create(ctx, "log", nil)
	if err != nil {
		t.Fatal(err)
	}
	if log, err := j.Open(ctx, d.Created, &noted{}); err != nil || log.Trim(ctx, 1, make([]byte, engine.MaxNote+1)) == nil || log.Close() != nil {
		t.Fatalf("a note that is too long was accepted, or the log was not opened or closed: %v", err)
	}
	var want []byte
	for i := range 4 {
		got := &noted{}
		log, err := j.Open(ctx, d.Created, got)
		if err != nil || !bytes.Equal(got.note, want) {
			t.Fatalf("round %d: the note has %d bytes, want %d: %v", i, len(got.note), len(want), err)
		}
		want = bytes.Repeat([]byte{byte(i), 1, 2, 3}, engine.MaxNote/4)
		if err := log.Trim(ctx, 1, want); err != nil {
			t.Fatal(err)
		}
		if n := len(j.logOf(d.Created).lastMark().note); n > 0 {
			t.Errorf("round %d: %d bytes of the note are in memory", i, n)
		}
		j.Close()
		fs = fs.Crash(faulty.LoseAll, nil)
		if j, err = Open(fs, Options{}); err != nil {
			t.Fatal(err)
		}
		if n := len(j.logOf(d.Created).lastMark().note); n > 0 {
			t.Errorf("round %d: after a crash, %d bytes of the note are in memory", i, n)
		}
	}
	j.Close()
}

// A journal may have a million logs, so every field of a log counts. DESIGN.md states its size, which
// includes the only entry of a log.
func TestLogSize(t *testing.T) {
	if size := unsafe.Sizeof(log{}); size > 96 {
		t.Errorf("a log takes %d bytes", size)
	}
}

// A log may be opened while its document is being deleted, and both use the mark of the log.
func TestOpenDuringDeletion(t *testing.T) {
	ctx := context.Background()
	j, err := Open(faulty.New(), Options{SegmentSize: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for i := range 200 {
		d, err := j.Create(ctx, "log", nil)
		if err != nil {
			t.Fatal(err)
		}
		log, err := j.Open(ctx, d.Created, &noted{})
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Trim(ctx, 1, []byte("note")); err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		deleted := make(chan error, 1)
		go func() { deleted <- j.Delete(ctx, "log", d.Revision) }()
		for err = nil; err == nil; {
			if log, err = j.Open(ctx, d.Created, &noted{}); err == nil {
				err = log.Close()
			}
		}
		if !errors.Is(err, engine.ErrDropped) {
			t.Fatalf("round %d: got error %v", i, err)
		}
		if err := <-deleted; err != nil {
			t.Fatalf("round %d: Delete returned %v", i, err)
		}
	}
}
