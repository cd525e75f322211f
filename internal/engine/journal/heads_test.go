package journal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
)

// recall is an engine.Judge. It needs the idempotency keys of entries from a given time on, and
// counts the entries and keys that it gets.
type recall struct {
	since   weir.Time
	entries int
	keys    int
}

func (r *recall) KeysSince() weir.Time     { return r.since }
func (r *recall) Admit(*engine.Entry) bool { return true }
func (r *recall) Commit(int)               {}
func (r *recall) Dropped()                 {}
func (r *recall) Restore(_ []byte, entries iter.Seq[*engine.Header]) error {
	for h := range entries {
		r.entries++
		if h.KeyDigest != (weir.KeyDigest{}) {
			r.keys++
		}
	}
	return nil
}

// keyed opens a journal with one log of n entries. Each entry has a key, and its time is equal to
// its sequence.
func keyed(t *testing.T, fs *faulty.FS, n, payload int) (*Journal, engine.LogID) {
	t.Helper()
	ctx := context.Background()
	j, err := Open(fs, Options{SegmentSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	d, err := j.Create(ctx, "log", nil)
	if err != nil {
		t.Fatal(err)
	}
	log, err := j.Open(ctx, d.Created, &recall{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for i := range n {
		h := engine.Header{Kind: engine.Batch, Seq: weir.Seq(i + 1), Time: weir.Time(i + 1), Key: fmt.Sprint("key ", i)}
		if err := log.Append(ctx, &engine.Entry{Header: h, Payload: make([]byte, payload)}); err != nil {
			t.Fatal(err)
		}
	}
	return j, d.Created
}

// When a log is opened, the journal reads only the keys that the judge needs, with few reads.
func TestKeysAreReadInRuns(t *testing.T) {
	const n, headBridge, headRun = 3000, 4 << 10, 256 << 10 // the last two as in index.HeadReader
	for _, payload := range []int{10, 500, headBridge + 1} {
		fs := faulty.New()
		count := n
		if payload > headBridge {
			count = 100 // with payloads this long, each key is read by itself, so fewer entries suffice
		}
		j, id := keyed(t, fs, count, payload)
		for _, since := range []int{0, count/2 + 1, count + 1} {
			before := fs.Calls(faulty.Read)
			r := &recall{since: weir.Time(since)}
			log, err := j.Open(context.Background(), id, r)
			if err != nil {
				t.Fatal(err)
			}
			reads, keys := fs.Calls(faulty.Read)-before, count-max(since-1, 0)
			if r.entries != count || r.keys != keys {
				t.Errorf("%d entries with %d keys, want %d with %d", r.entries, r.keys, count, keys)
			}
			most := keys * (payload + 200) / headRun * 2
			if payload > headBridge {
				most = keys
			} else if keys > 0 {
				most += 20 // each segment and each batch of keys may need one more read
			}
			if reads > most {
				t.Errorf("payloads of %d bytes: %d reads for %d keys, want at most %d", payload, reads, keys, most)
			}
			log.Close()
		}
		j.Close()
	}
}

// If the keys cannot be read, opening the log returns the error of the disk. The log can be opened
// once the disk recovers.
func TestKeysThatCannotBeRead(t *testing.T) {
	fs := faulty.New()
	j, id := keyed(t, fs, 3000, 500)
	defer j.Close()
	broken := errors.New("broken")
	fs.OnCall(func(c faulty.Call) error {
		if c.Kind == faulty.Read {
			return broken
		}
		return nil
	})
	if _, err := j.Open(context.Background(), id, &recall{}); !errors.Is(err, broken) {
		t.Errorf("open: %v, want the error of the disk", err)
	}
	fs.OnCall(nil)
	r := &recall{}
	log, err := j.Open(context.Background(), id, r)
	if err != nil || r.keys != 3000 {
		t.Fatalf("open after the disk recovered: %d keys, want 3000: %v", r.keys, err)
	}
	log.Close()
}
