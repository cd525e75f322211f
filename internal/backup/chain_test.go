package backup

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// write writes an archive. For simplicity, each file contains just its seal, which is the string
// that identifies the content of a file.
func write(t *testing.T, h Head) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range h.Files {
		if err := w.Add(func(w io.Writer) error { _, err := io.WriteString(w, e.Seal); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func summary(t *testing.T, archive []byte) *Summary {
	t.Helper()
	s, err := Summarize(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// head returns a head with files that are given as NAME=SEAL.
func head(day int, files ...string) (h Head) {
	h.Taken = time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC)
	for _, f := range files {
		name, seal, _ := strings.Cut(f, "=")
		h.Files = append(h.Files, Entry{name, int64(len(seal)), seal})
	}
	return h
}

// TestContinue builds a chain of four backups. A backup leaves out a file only if an earlier backup
// has a file with the same name and the same seal, which must not be empty. An earlier backup may
// be missing if the last one needs none of its files.
func TestContinue(t *testing.T) {
	first := summary(t, write(t, head(1, "a=one", "b=two", "c=")))
	h := head(2, "a=one", "b=TWO", "c=", "d=four")
	h.Continue(first)
	second := summary(t, write(t, h))
	if got := names(second.Head.Files); got != "b c d" || len(second.Head.Earlier) != 1 || second.Head.Format != 2 {
		t.Fatalf("the second backup contains %s, and its head is %+v", got, second.Head)
	}
	h = head(3, "a=one", "d=four", "e=five") // b was removed
	h.Continue(second)
	third := summary(t, write(t, h))
	if got := names(third.Head.Files); got != "e" || len(third.Head.Links) != 2 {
		t.Fatalf("the third backup contains %s, and its head is %+v", got, third.Head)
	}
	chain, wanted, err := Chain([]*Summary{first, third, second})
	if err != nil || len(chain) != 3 || chain[0] != third || len(wanted[0])+len(wanted[1])+len(wanted[2]) != 3 {
		t.Fatalf("the chain is %v, the files to read are %v, error %v", chain, wanted, err)
	}
	if _, _, err := Chain([]*Summary{first, third}); !errors.Is(err, ErrChain) || !strings.Contains(err.Error(), "taken at 2026-01-02T00:00:00Z") {
		t.Errorf("the second backup is missing: Chain returned %v", err)
	}
	h = head(4, "e=five")
	h.Continue(third)
	fourth := summary(t, write(t, h))
	if chain, _, err := Chain([]*Summary{fourth, third}); err != nil || len(chain) != 2 || len(fourth.Head.Links) != 3 {
		t.Errorf("the fourth backup needs only the third: Chain returned %v", err)
	}
	third.Sums["e"] = strings.Repeat("0", sumLength)
	if _, _, err := Chain([]*Summary{fourth, third}); !errors.Is(err, ErrChain) {
		t.Errorf("the third backup has another file with the name e: Chain returned %v", err)
	}
}

func names(files []Entry) string {
	var all []string
	for _, e := range files {
		all = append(all, e.Name)
	}
	return strings.Join(all, " ")
}

// TestSummarizeRefuses damages the parts of an archive that a summary is made of.
func TestSummarizeRefuses(t *testing.T) {
	whole := write(t, head(1, "a=one", "b=two"))
	for what, b := range map[string][]byte{
		"truncated":      whole[:len(whole)-3000],
		"another name":   bytes.Replace(whole, []byte("  b\n"), []byte("  c\n"), 1),
		"another head":   bytes.Replace(whole, []byte("2026-01-01"), []byte("2026-01-02"), 1),
		"not an archive": []byte("hello"),
	} {
		if s, err := Summarize(bytes.NewReader(b)); err == nil {
			t.Errorf("%s: Summarize returned %+v, want an error", what, s)
		}
	}
}
