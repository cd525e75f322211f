package journal

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"weir"
	"weir/internal/disk/faulty"
	"weir/internal/engine"
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/repair"
	"weir/internal/engine/journal/segments"
)

// format1 is a journal that was written by a version of Weir with format 1, as a tar archive.
// Document a has the entries 11 to 130, followed by a closed gap from 131 to 140. Its value was
// changed from "active" to "revoked". Document b has the value "active", and the document "gone"
// was deleted.
//
//go:embed testdata/format1.tar.gz.base64
var format1 string

// oldJournal returns the stored journal of format 1.
func oldJournal(t *testing.T) *faulty.FS {
	t.Helper()
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(format1)))
	if err != nil {
		t.Fatal(err)
	}
	fs := faulty.New()
	for files := tar.NewReader(z); ; {
		h, err := files.Next()
		if err == io.EOF {
			return fs
		}
		content, bad := io.ReadAll(files)
		if err := errors.Join(err, bad); err != nil {
			t.Fatal(err)
		}
		put(fs, h.Name, content)
	}
}

// verifyOld verifies a journal that began as the stored one. The log of document a must end with
// the sequence last.
func verifyOld(fs *faulty.FS, last weir.Seq) (err error) {
	j, err := Open(fs, small)
	if err != nil {
		return err
	}
	defer j.Close()
	docs, err := j.List(background, "", "", 10)
	if err != nil || len(docs) != 2 || string(docs[0].Value) != "revoked" || string(docs[1].Value) != "active" {
		return fmt.Errorf("documents %+v, %w", docs, err)
	}
	l, err := j.Open(background, docs[0].Created, &fixed{})
	if err != nil {
		return err
	}
	defer l.Close()
	next := weir.Seq(11)
	scan := l.Scan(background, 0, 0, func(e *engine.Entry) bool {
		if e.Kind == engine.GapClosed && next == 131 {
			next = e.Seq
		} else if e.Seq != next || !bytes.Equal(e.Payload, bytes.Repeat([]byte("old"), 300)) {
			err = fmt.Errorf("entry %d, want %d", e.Seq, next)
		}
		next++
		return err == nil
	})
	if next != last+1 {
		scan = errors.Join(scan, fmt.Errorf("the last entry is %d, want %d", next-1, last))
	}
	return errors.Join(err, scan)
}

// A journal of format 1 can be checked, repaired and opened. Opening converts it to the current
// format. A crash at any time during the conversion leaves a journal that opens. Records of both
// formats can be read afterwards.
func TestFormat1(t *testing.T) {
	if r, err := repair.Check(oldJournal(t), repair.CheckOptions{}); err != nil || len(r.Damages) > 0 || r.Batches != 120 || r.ClosedGaps != 1 {
		t.Fatalf("report %+v, error %v", r, err)
	}
	fs := oldJournal(t)
	images := 0
	fs.OnCall(func(c faulty.Call) error {
		if c.Kind != faulty.Read && c.Kind != faulty.Open && c.Kind != faulty.List {
			for _, loss := range []faulty.Loss{faulty.LoseAll, faulty.LoseNothing} {
				images++
				if err := verifyOld(fs.Crash(loss, nil), 140); err != nil {
					t.Errorf("power cut before %s: %v", c, err)
				}
			}
		}
		return nil
	})
	j, err := Open(fs, small)
	if err != nil {
		t.Fatal(err)
	}
	fs.OnCall(nil)
	if images < 10 {
		t.Errorf("only %d power cuts", images)
	}
	l := attach(t, j, "a")
	for seq := weir.Seq(141); seq <= 220; seq++ { // fills the segment that was begun in format 1
		e := &engine.Entry{Payload: bytes.Repeat([]byte("old"), 300), Header: engine.Header{Kind: engine.Batch, Seq: seq, Time: weir.Time(seq)}}
		if err := l.Append(background, e); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	j.Close()
	if text := string(fs.Files()[directory.FormatFile]); !strings.HasPrefix(text, "weir journal 5\n") || len(fs.Files()[directory.EndFile]) != endLen {
		t.Errorf("the format file is %q, want version 5; the file end has %d bytes, want %d", text, len(fs.Files()[directory.EndFile]), endLen)
	}
	if r, err := repair.Check(fs, repair.CheckOptions{}); err != nil || len(r.Damages) > 0 || r.Batches != 200 {
		t.Fatalf("report %+v, error %v", r, err)
	}
	if err := verifyOld(fs, 220); err != nil {
		t.Error(err)
	}
}

// A journal of format 1 cannot prove where its newest segment ended. So a repair does not treat a
// damaged newest segment as one that was never used.
func TestFormat1LostTail(t *testing.T) {
	for _, name := range []string{segments.Name(2), segments.Name(3)} {
		fs := oldJournal(t)
		put(fs, name, nil)
		r, err := repair.Run(fs, repair.Options{})
		if err != nil || r.Before.MayBeLost == 0 || len(r.After.Damages) > 0 {
			t.Errorf("%s: report %+v, error %v", name, r, err)
		}
		if _, err := Open(fs, small); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
