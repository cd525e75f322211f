// Package backup reads and writes backup files. A backup is a tar archive that standard tools can
// read. Its first member lists the other files with their sizes. Its last member holds their
// checksums in the format of sha256sum. An archive without this last member is incomplete. The
// package knows nothing about the content of the files.
//
// A backup may leave out files that earlier backups hold. Its first member then lists these
// backups, and the checksums of the files that are stored there. Such backups form a chain.
package backup

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"strings"
	"time"
)

// Format is the highest archive version that this code reads. An archive that needs no earlier
// archive has format 1, which earlier versions of Weir read too.
const Format = 2

// Names of the members that belong to the archive itself.
const (
	headName = "weir-backup.json"
	sumsName = "weir-backup.sums"
)

// maxHead limits the size of the first and the last member, which are read into memory.
const maxHead = 64 << 20

// Head is the first member of an archive.
type Head struct {
	Format  int       `json:"format"`
	Taken   time.Time `json:"taken"`
	Version string    `json:"version"` // version of the program that took the backup
	Files   []Entry   `json:"files"`   // in archive order

	// Links are the earlier backups that this one continues, oldest first. Earlier lists the files
	// that are stored in those backups. Both fields are empty in a backup that continues no other.
	Links   []Link    `json:"links,omitempty"`
	Earlier []Earlier `json:"earlier,omitempty"`
}

// Entry is one file.
type Entry struct {
	Name string `json:"name"` // relative path with slashes
	Size int64  `json:"size"`
	// Seal identifies the content of a file that never changes again. Two files with the same name,
	// size and seal have the same content.
	Seal string `json:"seal,omitempty"`
}

// Size returns the approximate size of the archive in bytes, including padding.
func (h Head) Size() int64 {
	n := int64(4096)
	for _, f := range h.Files {
		n += 512 + (f.Size+511)&^511 + 70 + int64(len(f.Name))
	}
	return n
}

// Writer writes an archive: first the head, then each file in order with Add, then Close.
type Writer struct {
	tar  *tar.Writer
	head Head
	next int
	sums strings.Builder
}

// NewWriter starts an archive on w and writes its head.
func NewWriter(w io.Writer, h Head) (*Writer, error) {
	if h.Format = 1; len(h.Earlier) > 0 {
		h.Format = 2
	}
	text, err := json.MarshalIndent(h, "", "\t")
	if err != nil {
		return nil, err
	}
	a := &Writer{tar: tar.NewWriter(w), head: h}
	return a, a.member(Entry{Name: headName, Size: int64(len(text))}, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// Add writes the next of the files that the head lists. The function content must write exactly as
// many bytes as the head says.
func (a *Writer) Add(content func(io.Writer) error) error {
	e := a.head.Files[a.next]
	a.next++
	return a.member(e, content)
}

func (a *Writer) member(e Entry, content func(io.Writer) error) error {
	err := a.tar.WriteHeader(&tar.Header{ // the tar format is USTAR, or PAX if the name is too long or not ASCII
		Typeflag: tar.TypeReg, Name: e.Name, Size: e.Size, Mode: 0o600, ModTime: a.head.Taken.Truncate(time.Second),
	})
	if err != nil {
		return err
	}
	sum := sha256.New()
	if err := content(io.MultiWriter(a.tar, sum)); err != nil {
		return err
	}
	if err := a.tar.Flush(); err != nil {
		return fmt.Errorf("%s: %w", e.Name, err) // content wrote fewer bytes than e.Size
	}
	fmt.Fprintf(&a.sums, "%x  %s\n", sum.Sum(nil), e.Name)
	return nil
}

// Close writes the checksums and the remarks, and ends the archive. It does not close the
// underlying writer. Remarks are lines of text about the backup, such as damage that was found in
// the data. They are stored with the checksums, and the function Read returns them.
func (a *Writer) Close(remarks []string) error {
	if a.next != len(a.head.Files) {
		return errors.New("close backup: not all files were written")
	}
	for _, r := range remarks {
		fmt.Fprintf(&a.sums, "# %s\n", strings.ReplaceAll(r, "\n", " "))
	}
	text := a.sums.String()
	text += fmt.Sprintf("# complete %x\n", sha256.Sum256([]byte(text)))
	err := a.member(Entry{Name: sumsName, Size: int64(len(text))}, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if err != nil {
		return err
	}
	return a.tar.Close()
}

// Errors for an archive that cannot be restored. ErrChain is returned by Chain, and the others by
// Read.
var (
	ErrForeign = errors.New("not a Weir backup")
	ErrNewer   = errors.New("written by a newer version of Weir")
	ErrAltered = errors.New("the backup is damaged")
	ErrShort   = errors.New("the backup is truncated")
	ErrChain   = errors.New("the chain of backups is not complete")
)

// Read reads an archive to its end and passes every file to the function visit, in order. The
// function need not read all of the content. The caller must not rely on any file before Read
// returns nil, because only the end of the archive proves that it is complete and unaltered. Read
// returns the head and the remarks. If the archive cannot be restored, the error wraps ErrForeign,
// ErrNewer, ErrAltered or ErrShort and adds details. Any other error comes from visit or from r.
func Read(r io.Reader, visit func(e Entry, content io.Reader) error) (Head, []string, error) {
	a := &reader{tar: tar.NewReader(r), sums: &strings.Builder{}}
	if err := a.readHead(); err != nil {
		return a.head, nil, err
	}
	for _, e := range a.head.Files {
		if err := a.openEntry(e); err != nil {
			return a.head, nil, err
		}
		if err := a.pass(e, visit); err != nil {
			return a.head, nil, err
		}
	}
	remarks, err := a.readSums()
	return a.head, remarks, err
}

type reader struct {
	tar  *tar.Reader
	head Head
	size int64            // size of the current member
	sums *strings.Builder // checksum lines of everything read so far
}

// open advances to the next member, which must have this name.
func (a *reader) open(name string) error {
	h, err := a.tar.Next()
	switch {
	case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: it ends before %s", ErrShort, name)
	case errors.Is(err, tar.ErrHeader):
		return fmt.Errorf("%w: before %s: %v", ErrAltered, name, err)
	case err != nil:
		return err
	case h.Name != name || h.Typeflag != tar.TypeReg:
		return fmt.Errorf("%w: found %q instead of %s", ErrAltered, h.Name, name)
	}
	a.size = h.Size
	return nil
}

// openEntry advances to the next member, which must be this file.
func (a *reader) openEntry(e Entry) error {
	if err := a.open(e.Name); err != nil {
		return err
	}
	if a.size != e.Size {
		return fmt.Errorf("%w: %s is %d bytes, but the file list says %d", ErrAltered, e.Name, a.size, e.Size)
	}
	return nil
}

func (a *reader) readHead() error {
	h, err := a.tar.Next()
	if err != nil || h.Name != headName || h.Size > maxHead {
		if err != nil && err != io.EOF && !errors.Is(err, tar.ErrHeader) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		return fmt.Errorf("%w: it does not begin with %s", ErrForeign, headName)
	}
	text, err := a.readSmall(headName)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &a.head); err != nil {
		return fmt.Errorf("%w: %s: %v", ErrAltered, headName, err)
	}
	if a.head.Format > Format {
		return fmt.Errorf("%w: format %d, this version supports up to %d", ErrNewer, a.head.Format, Format)
	}
	return a.head.check()
}

// check returns an error if the head is inconsistent.
func (h *Head) check() error {
	for _, e := range h.Files {
		if !Holds(e.Name) || e.Size < 0 {
			return fmt.Errorf("%w: %s lists %q", ErrAltered, headName, e.Name)
		}
	}
	for _, e := range h.Earlier {
		if !Holds(e.Name) || e.Size < 0 || len(e.Sum) != sumLength || e.Link < 0 || e.Link >= len(h.Links) {
			return fmt.Errorf("%w: %s lists %q", ErrAltered, headName, e.Name)
		}
	}
	return nil
}

// sumLength is the length of a checksum in hexadecimal.
const sumLength = 2 * sha256.Size

// Holds reports whether an archive can contain a file of this name. Read refuses an archive that
// lists any other name.
func Holds(name string) bool {
	return name == path.Clean(name) && isLocal(name) && !strings.ContainsAny(name, "\n")
}

// isLocal reports whether a name stays below the directory it is restored to, on every system.
func isLocal(name string) bool {
	return name != "." && name != ".." && !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "../") && !strings.ContainsAny(name, "\\\x00:")
}

// readSmall reads a whole member into memory and records its checksum.
func (a *reader) readSmall(name string) ([]byte, error) {
	text, err := io.ReadAll(a.tar)
	if err != nil {
		return nil, cut(name, err)
	}
	fmt.Fprintf(a.sums, "%x  %s\n", sha256.Sum256(text), name)
	return text, nil
}

// cut replaces io.ErrUnexpectedEOF by ErrShort, and returns any other error unchanged.
func cut(name string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: in %s", ErrShort, name)
	}
	return err
}

// pass passes a file to the function visit, and then reads the part that visit has not read.
func (a *reader) pass(e Entry, visit func(Entry, io.Reader) error) error {
	content := &summed{r: a.tar, sum: sha256.New()}
	if err := visit(e, content); err != nil {
		return cut(e.Name, err)
	}
	if _, err := io.Copy(io.Discard, content); err != nil {
		return cut(e.Name, err)
	}
	fmt.Fprintf(a.sums, "%x  %s\n", content.sum.Sum(nil), e.Name)
	return nil
}

type summed struct {
	r   io.Reader
	sum hash.Hash
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.sum.Write(p[:n])
	return n, err
}

// openSums reads the last member. It returns the text of the checksums and remarks, and the
// checksum of that text.
func (a *reader) openSums() (text, check string, err error) {
	if err := a.open(sumsName); err != nil {
		return "", "", err
	}
	if a.size > maxHead {
		return "", "", fmt.Errorf("%w: %s is %d bytes", ErrAltered, sumsName, a.size)
	}
	b, err := io.ReadAll(a.tar)
	if err != nil {
		return "", "", cut(sumsName, err)
	}
	text = string(b)
	i := strings.LastIndex(text, "# complete ")
	sum := sha256.Sum256([]byte(text[:max(i, 0)]))
	check = hex.EncodeToString(sum[:])
	if i < 0 || text[i:] != "# complete "+check+"\n" {
		return "", "", fmt.Errorf("%w: %s does not match its own checksum", ErrAltered, sumsName)
	}
	return text[:i], check, nil
}

// readSums compares the checksums of the archive with those of the data that was read.
func (a *reader) readSums() ([]string, error) {
	text, _, err := a.openSums()
	if err != nil {
		return nil, err
	}
	want := a.sums.String()
	remarks, ok := strings.CutPrefix(text, want)
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrAltered, firstDifference(text, want))
	}
	if _, err := a.tar.Next(); err != io.EOF {
		return nil, fmt.Errorf("%w: unexpected data after its end", ErrAltered)
	}
	var list []string
	for line := range strings.Lines(remarks) {
		list = append(list, strings.TrimSpace(strings.TrimPrefix(line, "#")))
	}
	return list, nil
}

// firstDifference returns a text about the first file whose checksum does not match.
func firstDifference(has, want string) string {
	lines := strings.Split(has, "\n")
	for i, line := range strings.Split(want, "\n") {
		if i >= len(lines) || lines[i] != line {
			if _, name, ok := strings.Cut(line, "  "); ok {
				return "the checksum of " + name + " does not match"
			}
		}
	}
	return "the list of checksums does not match the files"
}
