package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
	"weir/internal/disk"
	"weir/internal/engine"
)

// storedSegment is one segment: its file, and what is known about the content of the file.
type storedSegment struct {
	number uint64
	name   string
	size   int64
	file   disk.File
	seed   uint32

	// While groups are added, one goroutine at a time uses the next fields. In a journal, this is the
	// committer until it moves on to the next segment, and then the goroutine that seals the segment.
	end   int64  // offset of the next record or group
	slots []byte // the index so far; nil once sealed
	count int    // number of records
	keys  keyList

	sealed atomic.Bool
	used   int64    // bytes of groups and index; set when sealed
	table  keyTable // position of the key slots; set when sealed
}

// init sets the fields of an empty segment.
func (s *storedSegment) init(file disk.File, salt [8]byte, number uint64, size int64) {
	s.number, s.name, s.size, s.file, s.seed, s.end = number, segmentName(number), size, file, seed(salt, number), dataStart
}

func (s *storedSegment) damage(off int64, what string, err error) error {
	return &DamageError{File: s.name, Offset: off, What: what, Err: err}
}

// read fills b from offset off. A short read is damage, because every segment has its full size.
func (s *storedSegment) read(b []byte, off int64) error {
	n, err := s.file.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return s.damage(off+int64(n), "data", errShort)
	}
	if errors.Is(err, fs.ErrClosed) { // the journal was closed during the read
		return engine.ErrClosed
	}
	return fmt.Errorf("read %s: %w", s.name, err)
}

// fits reports whether the segment has space for n more bytes in the given number of records,
// besides the index, the footer and as many bytes as the parameter reserve says.
func (s *storedSegment) fits(n, records int, reserve int64) bool {
	index := int64(s.count+records)*slotSize + keySpace(s.keys.len())
	return s.end+frameSize+int64(n)+index+footerSize+reserve <= s.size
}

// free returns how many bytes are left between the groups and where the keys and the index will be.
func (s *storedSegment) free() int64 {
	return s.size - footerSize - int64(len(s.slots)) - keySpace(s.keys.len()) - s.end
}

// mark writes the watermark. The watermark says that everything below the offset end was synced,
// and that the next group has the number in the parameter next.
func (s *storedSegment) mark(end int64, next uint64) error {
	if err := s.file.WriteAt(watermarkOffset, encodeWatermark(s.seed, end, next)); err != nil {
		return fmt.Errorf("write watermark of %s: %w", s.name, err)
	}
	return nil
}

// seal writes and syncs the key slots, the index and the footer, so that the next start need not
// read the records. Key slots that do not fit are left out: a segment that an older build has
// filled has no space for them. seal also writes the final watermark. The watermark and the footer
// both say where the groups end, so this is still known if one of the two is damaged. The function
// put runs the writes, and may repeat them; if put is nil, they run once.
func (s *storedSegment) seal(nextGroup uint64, put func(func() error) error) error {
	f := footer{
		number: s.number, nextGroup: nextGroup, end: s.end, slots: s.count,
		index: s.size - footerSize - int64(len(s.slots)), indexSum: sum(s.seed, s.slots),
	}
	keys, directory := s.keys.all(), []byte(nil)
	if n := len(keys) / keySlotSize; n > 0 && f.index-keySpace(n) >= s.end {
		directory = keyDirectory(keys, s.seed)
		f.keys = keyTable{at: f.index - keySpace(n), count: n, sum: sum(s.seed, directory)}
	} else {
		keys = nil
	}
	if put == nil {
		put = func(write func() error) error { return write() }
	}
	err := put(func() error {
		if err := s.mark(s.end, nextGroup|finalMark); err != nil {
			return err
		}
		return s.file.WriteAt(f.unused(), keys, directory, s.slots, f.encode(s.seed))
	})
	if err != nil {
		return fmt.Errorf("seal %s: %w", s.name, err)
	}
	if err := s.file.SyncData(); err != nil {
		return fmt.Errorf("seal %s: %w", s.name, err)
	}
	s.slots, s.used, s.table = nil, s.end-dataStart+int64(s.count)*slotSize, f.keys
	s.sealed.Store(true)
	s.keys.clear()
	return nil
}

// footer reads the footer. It returns false if the segment is not sealed or the footer is damaged.
func (s *storedSegment) footer() (footer, bool, error) {
	b := make([]byte, footerSize)
	if err := s.read(b, s.size-footerSize); err != nil {
		return footer{}, false, err
	}
	f, ok := decodeFooter(b, s.seed)
	return f, ok && f.number == s.number, nil
}

// summary sets the end of a sealed segment and returns what scan would find, except that newest is
// the offset of the keys and the index.
func (s *storedSegment) summary() (scanned, error) {
	f, _, err := s.footer()
	s.end = f.end
	return scanned{newest: f.unused(), next: f.nextGroup}, err
}

// identity returns the footer in hexadecimal. It identifies the content of a sealed segment, which
// never changes. It returns an empty string if there is no valid footer.
func (s *storedSegment) identity() string {
	f, ok, err := s.footer()
	if err != nil || !ok {
		return ""
	}
	return fmt.Sprintf("%x", f.encode(s.seed))
}

// index reads the index slots of a sealed segment, and sets the fields used and table. It returns
// engine.ErrDamaged if the footer or the index is not valid.
func (s *storedSegment) index() ([]byte, error) {
	f, ok, err := s.footer()
	if err != nil {
		return nil, err
	}
	n := s.size - footerSize - f.index
	if !ok || n != int64(f.slots)*slotSize || f.index < f.end {
		return nil, s.damage(s.size-footerSize, "footer", errChecksum)
	}
	b := make([]byte, n)
	if err := s.read(b, f.index); err != nil {
		return nil, err
	}
	if sum(s.seed, b) != f.indexSum {
		return nil, s.damage(f.index, "index", errChecksum)
	}
	if !s.sealed.Load() {
		s.used, s.table = f.end-dataStart+int64(f.slots)*slotSize, f.keys
	}
	return b, nil
}

// sector is the unit in which unreadable parts of a disk are skipped.
const sector = 4096

// readable fills b from off and replaces unreadable sectors with zeros. It returns the offset and
// error of the first unreadable sector.
func (s *storedSegment) readable(b []byte, off int64) (int64, error) {
	if s.read(b, off) == nil {
		return 0, nil
	}
	at, fault := int64(0), error(nil)
	for len(b) > 0 {
		piece := b[:min(sector-int(off%sector), len(b))] // one sector at a time, because the sectors around a bad one may be readable
		if err := s.read(piece, off); err != nil {
			clear(piece)
			if fault == nil {
				at, fault = off, err
			}
		}
		b, off = b[len(piece):], off+int64(len(piece))
	}
	return at, fault
}

// provedEnd returns the offset where the groups of a sealed segment end. The footer and the final
// watermark both hold this offset. provedEnd returns 0 if neither is valid.
func (s *storedSegment) provedEnd() (int64, error) {
	f, ok, err := s.footer()
	if err != nil || ok {
		return f.end, err
	}
	b := make([]byte, dataStart)
	if err := s.read(b, 0); err != nil || b[32] != headerVersion {
		return 0, err
	}
	end, _ := decodeWatermark(b[watermarkOffset:], s.seed)
	return end, nil
}

// checkHeader returns engine.ErrDamaged if the header or the size of a segment file is wrong.
func (s *storedSegment) checkHeader() error {
	size, err := s.file.Size()
	if err != nil {
		return fmt.Errorf("size of %s: %w", s.name, err)
	}
	b := make([]byte, headerSize)
	if size >= headerSize {
		if err := s.read(b, 0); err != nil {
			return err
		}
	}
	if err := checkHeader(b, s.seed, s.number, s.size); err != nil {
		return s.damage(0, "segment header", err)
	}
	if size != s.size {
		return s.damage(0, "segment", fmt.Errorf("file is %d bytes, want %d", size, s.size))
	}
	return nil
}
