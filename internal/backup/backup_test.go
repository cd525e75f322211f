package backup

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

var sample = map[string]string{"journal/format": "what it is\n", "journal/1.seg": strings.Repeat("abc", 400), "tls/empty": ""}

// archive writes an archive of the sample files.
func archive(t *testing.T, remarks ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	h := Head{Taken: time.Unix(1_800_000_000, 0).UTC(), Version: "test"}
	names := []string{"journal/format", "journal/1.seg", "tls/empty"}
	for _, name := range names {
		h.Files = append(h.Files, Entry{Name: name, Size: int64(len(sample[name]))})
	}
	w, err := NewWriter(&b, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := w.Add(func(w io.Writer) error { _, err := io.WriteString(w, sample[name]); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(remarks); err != nil {
		t.Fatal(err)
	}
	if want := h.Size(); int64(b.Len()) > want+4096 || int64(b.Len()) < want-8192 {
		t.Errorf("the archive has %d bytes, but Size returns %d", b.Len(), want)
	}
	return b.Bytes()
}

// files reads an archive.
func files(b []byte) (map[string]string, Head, []string, error) {
	found := map[string]string{}
	h, remarks, err := Read(bytes.NewReader(b), func(e Entry, content io.Reader) error {
		text, err := io.ReadAll(content)
		found[e.Name] = string(text)
		return err
	})
	return found, h, remarks, err
}

func TestRoundTrip(t *testing.T) {
	found, h, remarks, err := files(archive(t, "one remark", "another\nover two lines"))
	if err != nil || !maps.Equal(found, sample) {
		t.Fatalf("read the files %q, error %v", found, err)
	}
	if h.Format != 1 || h.Version != "test" || h.Taken.Unix() != 1_800_000_000 || len(h.Files) != 3 {
		t.Errorf("the head is %+v", h)
	}
	if got := fmt.Sprintf("%q", remarks); got != `["one remark" "another over two lines"]` {
		t.Errorf("the remarks are %s", got)
	}
	if _, _, err := Read(bytes.NewReader(archive(t)), func(Entry, io.Reader) error { return nil }); err != nil {
		t.Errorf("a function that reads nothing of a file: %v", err)
	}
}

// Certificates of an ACME authority have long file names.
func TestLongNames(t *testing.T) {
	long := "tls/acme/certificates/acme.authority.example.com-acme-directory/" + strings.Repeat("streams.", 25) + "example.com/" + strings.Repeat("b\u00fccher.", 12) + "crt"
	var b bytes.Buffer
	w, err := NewWriter(&b, Head{Taken: time.Unix(1_800_000_000, 5).UTC(), Files: []Entry{{Name: long, Size: 3}, {Name: "tls/ca.pem", Size: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"abc", "de"} {
		if err := w.Add(func(w io.Writer) error { _, err := io.WriteString(w, text); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(nil); err != nil {
		t.Fatal(err)
	}
	found, _, _, err := files(b.Bytes())
	if err != nil || !maps.Equal(found, map[string]string{long: "abc", "tls/ca.pem": "de"}) {
		t.Errorf("read the files %q, error %v", found, err)
	}
	for name, want := range map[string]bool{long: true, "tls/a:b": false, "tls/a\\b": false, "../x": false, "/x": false, "tls//x": false, "tls/a\nb": false} {
		if Holds(name) != want {
			t.Errorf("Holds(%q) = %v, want %v", name, !want, want)
		}
	}
}

// The test alters every byte in several ways. Each change is detected, or it does not affect the
// restored files.
func TestEveryByteAltered(t *testing.T) {
	good := archive(t)
	noticed := 0
	for i := range good {
		for _, mask := range []byte{1, 0x20, 0x80, 0xff} {
			bad := bytes.Clone(good)
			bad[i] ^= mask
			found, _, _, err := files(bad)
			if err != nil {
				noticed++
			} else if !maps.Equal(found, sample) {
				t.Fatalf("byte %d altered by %x is not detected: %q", i, mask, found)
			}
		}
	}
	if noticed < 4*2500 {
		t.Errorf("only %d of %d changes were detected", noticed, 4*len(good))
	}
}

// A truncated archive is refused, unless only the zeros at its end are missing.
func TestTruncatedAtEveryLength(t *testing.T) {
	good := archive(t)
	end := len(bytes.TrimRight(good, "\x00"))
	for n := range good {
		found, _, _, err := files(good[:n])
		switch {
		case err == nil && (n < end || !maps.Equal(found, sample)):
			t.Fatalf("the first %d of %d bytes are accepted as a backup", n, len(good))
		case err != nil && n > 1024 && !errors.Is(err, ErrShort) && !errors.Is(err, ErrAltered):
			t.Fatalf("the first %d bytes: %v", n, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	good := archive(t)
	at := func(text string) int { return bytes.Index(good, []byte(text)) }
	altered := func(text, by string) []byte {
		b := bytes.Clone(good)
		copy(b[at(text):], by)
		return b
	}
	member := func(name string) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg})
		w.Close()
		return b.Bytes()
	}
	for name, c := range map[string]struct {
		b    []byte
		err  error
		says string
	}{
		"empty":           {nil, ErrForeign, "does not begin with weir-backup.json"},
		"another archive": {member("x"), ErrForeign, "does not begin with weir-backup.json"},
		"not an archive":  {[]byte(strings.Repeat("x", 5000)), ErrForeign, "does not begin"},
		"newer format":    {altered(`"format": 1`, `"format": 9`), ErrNewer, "format 9, this version supports up to 2"},
		"payload":         {altered("abcabc", "abcabd"), ErrAltered, "the checksum of journal/1.seg does not match"},
		"file list":       {altered(`"journal/1.seg"`, `"journal/2.seg"`), ErrAltered, `found "journal/1.seg" instead of journal/2.seg`},
		"parent path":     {altered(`"journal/1.seg"`, `"../rnal/1.seg"`), ErrAltered, `lists "../rnal/1.seg"`},
		"absolute path":   {altered(`"journal/1.seg"`, `"/ournal/1.seg"`), ErrAltered, `lists "/ournal/1.seg"`},
		"size":            {altered(`"size": 1200`, `"size": 1201`), ErrAltered, "journal/1.seg is 1200 bytes, but the file list says 1201"},
		"ends in a file":  {good[:at("abcabc")+100], ErrShort, "in journal/1.seg"},
		"no checksums":    {good[:at("weir-backup.sums")], ErrShort, "ends before weir-backup.sums"},
		"two archives":    {append(good[:len(good)-1024:len(good)-1024], good...), ErrAltered, "unexpected data"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, _, err := files(c.b); !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v with %q", err, c.err, c.says)
			}
		})
	}
}

func TestWriterEnforcesFileList(t *testing.T) {
	h := Head{Files: []Entry{{Name: "a", Size: 3}, {Name: "b", Size: 1}}}
	for _, content := range []string{"ab", "abcd"} {
		w, err := NewWriter(io.Discard, h)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Add(func(w io.Writer) error { _, err := io.WriteString(w, content); return err }); err == nil {
			t.Errorf("%q was accepted for a file of 3 bytes", content)
		}
	}
	w, _ := NewWriter(io.Discard, h)
	if err := w.Close(nil); err == nil {
		t.Error("closing an archive without its files succeeded")
	}
}

// tar can unpack a backup, and sha256sum can verify it.
func TestStandardTools(t *testing.T) {
	for _, tool := range []string{"tar", "sha256sum"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/b.tar", archive(t, "a remark"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"tar xf b.tar", "sha256sum --strict -c weir-backup.sums"} {
		c := exec.Command("sh", "-c", command)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
}
