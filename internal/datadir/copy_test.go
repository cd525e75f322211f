package datadir

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"weir"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal"
)

// busy is a store whose logs change while they are copied. It calls the function change each time
// before a log is scanned.
type busy struct {
	engine.Engine
	change func(engine.Log)
}

func (b busy) Open(ctx context.Context, id engine.LogID, j engine.Judge) (engine.Log, error) {
	l, err := b.Engine.Open(ctx, id, admitting{j})
	return busyLog{l, b.change}, err
}

// admitting is a judge that admits every entry, so that busy can append to a log that is copied.
type admitting struct{ engine.Judge }

func (admitting) Admit(*engine.Entry) bool { return true }

type busyLog struct {
	engine.Log
	change func(engine.Log)
}

func (l busyLog) Scan(ctx context.Context, start weir.Seq, run int, visit func(*engine.Entry) bool) error {
	l.change(l.Log)
	return l.Log.Scan(ctx, start, run, visit)
}

func openJournal(t *testing.T) *journal.Journal {
	t.Helper()
	j, err := journal.Open(disk.OS(t.TempDir()), journal.Options{SegmentSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

// Each time a copy begins to read a log, the log is trimmed and extended, so that the copy misses
// entries. The copy then continues until it equals a state that the log had at some time. A
// document that is changed during the copy has its new value in the copy, and a stream that is
// deleted meanwhile is not in the copy.
func TestCopyWhileChanging(t *testing.T) {
	ctx := context.Background()
	from, to := openJournal(t), openJournal(t)
	doc, err := from.Create(ctx, "stream/one", []byte("before"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.Create(ctx, "stream/two", nil); err != nil {
		t.Fatal(err)
	}
	last, low := weir.Seq(0), weir.Seq(1)
	add := func(l engine.Log, n int) {
		for range n {
			last++
			e := &engine.Entry{Header: engine.Header{Kind: engine.Batch, Seq: last, Time: 1, Key: fmt.Sprint(last)}, Payload: fmt.Append(nil, "batch ", last)}
			if err := l.Append(ctx, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	l, err := from.Open(ctx, doc.Created, copyist{})
	if err != nil {
		t.Fatal(err)
	}
	add(l, 10)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	rounds := 0
	var want []outline
	change := func(l engine.Log) {
		if rounds++; rounds > 3 {
			return
		}
		add(l, 5)
		low += 8 // removes entries that the copy is about to read
		note := binary.AppendUvarint(binary.AppendUvarint([]byte{1, 1}, uint64(last)), uint64(low))
		if err := l.Trim(ctx, low, append(note, 0, 0)); err != nil {
			t.Fatal(err)
		}
		want = outlines(l)
		if rounds == 1 {
			_, fault := from.Update(ctx, "stream/one", []byte("after"), doc.Revision)
			if err := from.Delete(ctx, "stream/two", 0); err != nil || fault != nil {
				t.Fatal(err, fault)
			}
		}
	}
	if err := newTransfer(busy{from, change}, to, func(Copied) {}).copyAll(ctx); err != nil {
		t.Fatal(err)
	}
	copies, err := to.List(ctx, "", "", 10)
	if err != nil || len(copies) != 1 || string(copies[0].Value) != "after" {
		t.Fatalf("the copy has the documents %+v, %v", copies, err)
	}
	out, err := to.Open(ctx, copies[0].Created, &original{})
	if err != nil {
		t.Fatal(err)
	}
	if got := outlines(out); rounds != 4 || !slices.Equal(got, want) {
		t.Errorf("after %d rounds the copy has %v, want %v", rounds, got, want)
	}
}
