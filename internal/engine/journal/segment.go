package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"sync/atomic"

	"weir/internal/disk"
	"weir/internal/engine"
)

// segment is one file of the journal. All have the same size, written in full before their first use.
type segment struct {
	number uint64
	name   string
	file   disk.File
	seed   uint32

	live atomic.Int64 // bytes of records that are still needed
	refs atomic.Int32 // readers, plus one for the journal itself; the file is given up at 0
	gone func(*segment)

	// Of the committer alone, until it goes on to the next segment; then of the writer, until it is sealed.
	end     int64  // where the next record or group goes
	slots   []byte // the index so far; nil once sealed
	count   int    // records
	leaving bool   // of the committer: no manifest lists it any more

	sealed atomic.Bool
	used   int64 // bytes of groups and index, once it is sealed
	stuck  bool  // of the reclaimer alone: damaged, left as it is
}

func segmentName(number uint64) string { return fmt.Sprintf("%012d.seg", number) }

func segmentNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ".seg")
	n, err := strconv.ParseUint(digits, 10, 32) // 32 bits: the index in memory keeps no more
	return n, ok && err == nil && len(digits) == 12
}

// acquire keeps the file from being given up until release. Only for a segment that is reachable through an index.
func (s *segment) acquire() { s.refs.Add(1) }

func (s *segment) release() {
	if s.refs.Add(-1) == 0 {
		s.gone(s)
	}
}

func (s *segment) damage(off int64, what string, err error) error {
	return &DamageError{File: s.name, Offset: off, What: what, Err: err}
}

// read fills b from off. Less than that is damage: every segment has its full size.
func (s *segment) read(b []byte, off int64) error {
	n, err := s.file.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return s.damage(off+int64(n), "data", errShort)
	}
	if errors.Is(err, fs.ErrClosed) { // the journal was closed under a reader
		return engine.ErrClosed
	}
	return fmt.Errorf("read %s: %w", s.name, err)
}

// fits tells whether n more bytes of records, in so many records, leave room for the index and the footer.
func (s *segment) fits(size int64, n, records int, reserve int64) bool {
	index := int64(s.count+records) * slotSize
	return s.end+frameSize+int64(n)+index+footerSize+reserve <= size
}

// seal writes the index and the footer, so that a start need not read the records.
func (s *segment) seal(size int64, nextGroup uint64) error {
	f := footer{
		number: s.number, nextGroup: nextGroup, end: s.end, slots: s.count,
		index: size - footerSize - int64(len(s.slots)), indexSum: sum(s.seed, s.slots),
	}
	if err := s.file.WriteAt(f.index, s.slots, f.encode(s.seed)); err != nil {
		return fmt.Errorf("seal %s: %w", s.name, err)
	}
	if err := s.file.SyncData(); err != nil {
		return fmt.Errorf("seal %s: %w", s.name, err)
	}
	s.slots, s.used = nil, s.end-dataStart+int64(s.count)*slotSize
	s.sealed.Store(true)
	return nil
}

// footer reads the footer; false when the segment has none, that is when it is not sealed (or the footer is damaged).
func (s *segment) footer(size int64) (footer, bool, error) {
	b := make([]byte, footerSize)
	if err := s.read(b, size-footerSize); err != nil {
		return footer{}, false, err
	}
	f, ok := decodeFooter(b, s.seed)
	return f, ok && f.number == s.number, nil
}

// index reads the slots of a sealed segment, and how much of it is used.
func (s *segment) index(size int64) ([]byte, error) {
	f, ok, err := s.footer(size)
	if err != nil {
		return nil, err
	}
	n := size - footerSize - f.index
	if !ok || n != int64(f.slots)*slotSize || f.index < f.end {
		return nil, s.damage(size-footerSize, "footer", errChecksum)
	}
	b := make([]byte, n)
	if err := s.read(b, f.index); err != nil {
		return nil, err
	}
	if sum(s.seed, b) != f.indexSum {
		return nil, s.damage(f.index, "index", errChecksum)
	}
	if !s.sealed.Load() {
		s.used = f.end - dataStart + int64(f.slots)*slotSize
	}
	return b, nil
}
