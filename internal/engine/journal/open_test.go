package journal

import (
	"testing"
	"testing/synctest"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
)

// OpenNow opens a log if everything that the judge needs is in memory. Otherwise it returns nil, and
// Open can still open the log. OpenNow never reads the disk.
func TestOpenNow(t *testing.T) {
	const since = 100 // the judge needs the keys of entries from this time on
	key := engine.Header{Kind: engine.Batch, Key: "key", Time: since}
	tests := []struct {
		name    string
		entries int
		each    engine.Header
		trims   bool
		opens   bool
	}{
		{"empty", 0, engine.Header{}, false, true},
		{"a few batches", fewItems, engine.Header{Kind: engine.Batch}, false, true},
		{"many batches", fewItems + 1, engine.Header{Kind: engine.Batch}, false, false},
		{"keys", 1, key, false, false},
		{"old keys", 1, engine.Header{Kind: engine.Batch, Key: "key", Time: since - 1}, false, true},
		{"a closed gap", 1, engine.Header{Kind: engine.GapClosed}, false, false},
		{"trimmed", 3, engine.Header{Kind: engine.Batch}, true, true},
	}
	synctest.Test(t, func(t *testing.T) {
		fs := faulty.New()
		j, err := Open(fs, small)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		for _, c := range tests {
			d, err := j.Create(background, c.name, nil)
			if err != nil {
				t.Fatal(err)
			}
			l, err := j.Open(background, d.Created, &recall{since: since})
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.entries {
				e := &engine.Entry{Header: c.each}
				e.Seq = weir.Seq(i + 1)
				e.First = e.Seq
				if err := l.Append(background, e); err != nil {
					t.Fatal(err)
				}
			}
			want := c.entries
			if c.trims {
				want--
				if err := l.Trim(background, 2, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			before := fs.Calls(faulty.Read)
			judge := &recall{since: since}
			synctest.Wait() // until no other goroutine holds the lock of the documents
			l = j.OpenNow(d.Created, judge)
			if (l != nil) != c.opens || fs.Calls(faulty.Read) != before {
				t.Errorf("%s: opened at once: %v, with %d reads; want %v and none", c.name, l != nil, fs.Calls(faulty.Read)-before, c.opens)
			}
			if l == nil {
				if l, err = j.Open(background, d.Created, judge); err != nil {
					t.Fatal(err)
				}
			}
			if judge.entries != want {
				t.Errorf("%s: the judge got %d entries, want %d", c.name, judge.entries, want)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// OpenNow does not wait until the deletion of the document has succeeded or failed. It does not open
// logs without a document, and none of a closed journal.
func TestOpenNowDuringDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := faulty.New()
		j, d, l := openOne(t, fs, &counting{})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until the next segments are prepared: from then on, only the deletion syncs
		release := holdSyncs(fs)
		deleted := make(chan error, 1)
		go func() { deleted <- j.Delete(background, d.Key, d.Revision) }()
		synctest.Wait()
		if j.OpenNow(d.Created, &counting{}) != nil {
			t.Error("OpenNow opened a log whose document is being deleted")
		}
		release()
		if err := <-deleted; err != nil {
			t.Fatal(err)
		}
		if j.OpenNow(d.Created, &counting{}) != nil {
			t.Error("OpenNow opened a log whose document was deleted")
		}
		d, err := j.Create(background, "another", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if j.OpenNow(d.Created, &counting{}) != nil {
			t.Error("OpenNow opened a log of a closed journal")
		}
	})
}
