package backup

import (
	"archive/tar"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Link identifies a backup. The ID is the checksum of the list of checksums in that backup, so it
// identifies the whole content.
type Link struct {
	ID    string    `json:"id"`
	Taken time.Time `json:"taken"`
}

// Earlier is a file that belongs to a backup but is stored in an earlier one.
type Earlier struct {
	Entry
	Sum  string `json:"sum"`  // SHA-256 of the file, in hexadecimal
	Link int    `json:"link"` // index in Head.Links
}

// Summary is what an archive says about itself, without the content of its files.
type Summary struct {
	Link
	Head Head              `json:"head"`
	Sums map[string]string `json:"sums"` // SHA-256 of each file in Head.Files, by name
}

// Summarize reads the first and the last member of an archive and seeks over the others. It returns
// the errors of Read, but does not notice altered files.
func Summarize(r io.ReadSeeker) (*Summary, error) {
	a := &reader{tar: tar.NewReader(r), sums: &strings.Builder{}}
	if err := a.readHead(); err != nil {
		return nil, err
	}
	for _, e := range a.head.Files {
		if err := a.openEntry(e); err != nil {
			return nil, err
		}
	}
	text, id, err := a.openSums()
	if err != nil {
		return nil, err
	}
	s := &Summary{Link: Link{id, a.head.Taken}, Head: a.head, Sums: map[string]string{}}
	text, ok := strings.CutPrefix(text, a.sums.String()) // so far a.sums has only the checksum of the head
	for _, e := range a.head.Files {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		sum, name, _ := strings.Cut(line, "  ")
		ok = ok && name == e.Name && len(sum) == sumLength
		s.Sums[name] = sum
	}
	if !ok {
		return nil, fmt.Errorf("%w: the list of checksums does not match the files", ErrAltered)
	}
	return s, nil
}

// Continue makes h the head of a backup that continues an earlier one. It moves files from h.Files
// to h.Earlier if the earlier backup holds them or refers to them. It moves only files with a seal
// (Entry.Seal), because other files can still change.
func (h *Head) Continue(earlier *Summary) {
	h.Links = append(slices.Clone(earlier.Head.Links), earlier.Link)
	known := map[Entry]Earlier{}
	for _, e := range earlier.Head.Earlier {
		known[e.Entry] = e
	}
	for _, e := range earlier.Head.Files {
		known[e] = Earlier{e, earlier.Sums[e.Name], len(h.Links) - 1}
	}
	files := h.Files
	h.Files = nil
	for _, e := range files {
		if there, ok := known[e]; ok && e.Seal != "" {
			h.Earlier = append(h.Earlier, there)
		} else {
			h.Files = append(h.Files, e)
		}
	}
}

// Check returns an error if the summary is inconsistent. It is for summaries that did not come from
// Summarize.
func (s *Summary) Check() error { return s.Head.check() }

// Chain returns the newest of the given backups, followed by those that it continues, in the order
// of its links. For each of them, the result wanted has the names of the files to restore from it.
// If a file is needed from a backup that is not given, Chain returns an error that names this
// backup.
func Chain(all []*Summary) (chain []*Summary, wanted []map[string]bool, err error) {
	newest := all[0]
	byID := map[string]*Summary{}
	for _, s := range all {
		byID[s.ID] = s
		if s.Taken.After(newest.Taken) {
			newest = s
		}
	}
	names := make([]map[string]bool, len(newest.Head.Links)) // for each link, the names of the files that are needed from it
	for _, e := range newest.Head.Earlier {
		l := newest.Head.Links[e.Link]
		switch s := byID[l.ID]; {
		case s == nil:
			return nil, nil, fmt.Errorf("%w: the backup taken at %s (%.12s) is missing", ErrChain, l.Taken.Format(time.RFC3339), l.ID)
		case s.Sums[e.Name] != e.Sum:
			return nil, nil, fmt.Errorf("%w: file %s of the backup taken at %s is not the one that the newest backup refers to", ErrChain, e.Name, l.Taken.Format(time.RFC3339))
		case names[e.Link] == nil:
			names[e.Link] = map[string]bool{}
		}
		names[e.Link][e.Name] = true
	}
	chain, wanted = []*Summary{newest}, []map[string]bool{{}}
	for _, e := range newest.Head.Files {
		wanted[0][e.Name] = true
	}
	for i, l := range newest.Head.Links {
		if s := byID[l.ID]; s != nil {
			chain, wanted = append(chain, s), append(wanted, names[i])
		}
	}
	return chain, wanted, nil
}
