// Package segments reads and writes the segment files of a journal. It knows the layout of their
// bytes, their groups of records, and the index and the keys of a sealed segment. It also finds
// what can still be read of a damaged segment. It knows neither the other files of a journal nor
// what its records mean.
//
// DESIGN.md of the journal describes every byte.
package segments

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal/blocks"
)

// Segment is one segment: its file, and what is known about the content of the file.
type Segment struct {
	Number uint64
	Name   string
	size   int64
	File   disk.File
	Seed   uint32

	// While groups are added, one goroutine at a time uses the next fields. In a journal, this is the
	// committer until it moves on to the next segment, and then the goroutine that seals the segment.
	End   int64  // offset of the next record or group
	Slots []byte // the index so far; nil once sealed
	Count int    // number of records
	keys  keyList

	Sealed atomic.Bool
	Used   int64    // bytes of groups and index; set when sealed
	table  keyTable // position of the key slots; set when sealed
}

// Init sets the fields of an empty segment.
func (s *Segment) Init(file disk.File, salt [8]byte, number uint64, size int64) {
	s.Number, s.Name, s.size, s.File, s.Seed, s.End = number, Name(number), size, file, seed(salt, number), DataStart
}

// Pack makes the segment store its content in compressed blocks. Its file must be empty.
func (s *Segment) Pack(c *blocks.Cache) { s.File = blocks.Create(s.File, s.Seed, s.size, c) }

// Unpack finds out whether the content of the segment is stored in compressed blocks. If it is, the
// file of the segment is from then on a blocks.File. An undamaged segment that is not compressed
// has its full size, and its header says that it is not compressed.
func (s *Segment) Unpack(c *blocks.Cache) error {
	size, err := s.File.Size()
	if err != nil {
		return fmt.Errorf("size of %s: %w", s.Name, err)
	}
	b := make([]byte, headerSize)
	if n, _ := s.File.ReadAt(b, 0); n == len(b) && size == s.size && b[33] != packed && checkHeader(b, s.Seed, s.Number, size) == nil {
		return nil
	}
	if x, err := blocks.Open(s.File, s.Seed, s.size, c); err != nil {
		return fmt.Errorf("open %s: %w", s.Name, err)
	} else if x != nil {
		s.File = x
	}
	return nil
}

// Packed returns the file of a segment that is stored in compressed blocks, and nil for any other
// segment.
func (s *Segment) Packed() *blocks.File {
	x, _ := s.File.(*blocks.File)
	return x
}

// Stored returns the size of the segment file.
func (s *Segment) Stored() int64 {
	if x := s.Packed(); x != nil {
		return s.size - x.Saved()
	}
	return s.size
}

// Damage returns an error that says where the segment is damaged.
func (s *Segment) Damage(off int64, what string, err error) error {
	return &DamageError{File: s.Name, Offset: off, What: what, Err: err}
}

// Read fills b from offset off. A short read is damage, because every segment has its full size.
func (s *Segment) Read(b []byte, off int64) error {
	n, err := s.File.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return s.Damage(off+int64(n), "data", errShort)
	}
	if errors.Is(err, blocks.ErrDamaged) {
		return s.Damage(off+int64(n), "block", err)
	}
	if errors.Is(err, fs.ErrClosed) { // the journal was closed during the read
		return engine.ErrClosed
	}
	return fmt.Errorf("read %s: %w", s.Name, err)
}

// Fits reports whether the segment has space for n more bytes in the given number of records,
// besides the index, the footer and as many bytes as the parameter reserve says.
func (s *Segment) Fits(n, records int, reserve int64) bool {
	index := int64(s.Count+records)*SlotSize + keySpace(s.keys.len())
	return s.End+FrameSize+int64(n)+index+footerSize+reserve <= s.size
}

// Fill writes zeros to the space between the groups and the place where the keys and the index will
// be. A file with holes would need more space when it is recycled.
func (s *Segment) Fill() error {
	free := s.size - footerSize - int64(len(s.Slots)) - keySpace(s.keys.len()) - s.End
	zeros := make([]byte, min(copyStep, max(0, free)))
	for off := s.End; free > 0; off, free = off+copyStep, free-copyStep {
		if err := s.File.WriteAt(off, zeros[:min(free, copyStep)]); err != nil {
			return fmt.Errorf("fill %s: %w", s.Name, err)
		}
	}
	return nil
}

// Mark writes the watermark. The watermark says that everything below the offset end was synced,
// and that next is the number of the next group.
func (s *Segment) Mark(end int64, next uint64) error {
	if err := s.File.WriteAt(watermarkOffset, encodeWatermark(s.Seed, end, next)); err != nil {
		return fmt.Errorf("write watermark of %s: %w", s.Name, err)
	}
	return nil
}

// Seal writes and syncs the key slots, the index and the footer, so that the next start need not
// read the records. Key slots that do not fit are left out: a segment that an older build has
// filled has no space for them. Seal also writes the final watermark. The watermark and the footer
// both say where the groups end, so this is still known if one of the two is damaged. The function
// put runs the writes, and may repeat them; if put is nil, they run once.
func (s *Segment) Seal(nextGroup uint64, put func(func() error) error) error {
	f := footer{
		number: s.Number, nextGroup: nextGroup, end: s.End, slots: s.Count,
		index: s.size - footerSize - int64(len(s.Slots)), indexSum: Sum(s.Seed, s.Slots),
	}
	keys, directory := s.keys.all(), []byte(nil)
	if n := len(keys) / KeySlotSize; n > 0 && f.index-keySpace(n) >= s.End {
		directory = keyDirectory(keys, s.Seed)
		f.keys = keyTable{at: f.index - keySpace(n), count: n, sum: Sum(s.Seed, directory)}
	} else {
		keys = nil
	}
	if put == nil {
		put = func(write func() error) error { return write() }
	}
	err := put(func() error {
		if err := s.Mark(s.End, nextGroup|FinalMark); err != nil {
			return err
		}
		return s.File.WriteAt(f.unused(), keys, directory, s.Slots, f.encode(s.Seed))
	})
	if err != nil {
		return fmt.Errorf("seal %s: %w", s.Name, err)
	}
	if err := s.File.SyncData(); err != nil {
		return fmt.Errorf("seal %s: %w", s.Name, err)
	}
	s.Slots, s.Used, s.table = nil, s.End-DataStart+int64(s.Count)*SlotSize, f.keys
	s.Sealed.Store(true)
	s.keys.clear()
	return nil
}

// footer reads the footer. It returns false if the segment is not sealed or the footer is damaged.
func (s *Segment) footer() (footer, bool, error) {
	b := make([]byte, footerSize)
	if err := s.Read(b, s.size-footerSize); err != nil {
		return footer{}, false, err
	}
	f, ok := decodeFooter(b, s.Seed)
	return f, ok && f.number == s.Number, nil
}

// Summary sets the end of a sealed segment and returns what Scan would find, except that Newest is
// the offset of the keys and the index.
func (s *Segment) Summary() (Scanned, error) {
	f, _, err := s.footer()
	s.End = f.end
	return Scanned{Newest: f.unused(), Next: f.nextGroup}, err
}

// Identity returns the footer in hexadecimal. It identifies the content of a sealed segment, which
// never changes. It returns an empty string if there is no valid footer.
func (s *Segment) Identity() string {
	f, ok, err := s.footer()
	if err != nil || !ok {
		return ""
	}
	return fmt.Sprintf("%x", f.encode(s.Seed))
}

// whole reads the footer of a sealed segment. It returns engine.ErrDamaged if the footer is not valid
// or the index is not where the footer says.
func (s *Segment) whole() (footer, error) {
	f, ok, err := s.footer()
	if err == nil && (!ok || s.size-footerSize-f.index != int64(f.slots)*SlotSize || f.index < f.end) {
		err = s.Damage(s.size-footerSize, "footer", ErrChecksum)
	}
	return f, err
}

// Index reads the index slots of a sealed segment, and sets the fields Used and table. It returns
// engine.ErrDamaged if the footer or the index is not valid.
func (s *Segment) Index() ([]byte, error) {
	f, err := s.whole()
	if err != nil {
		return nil, err
	}
	b := make([]byte, f.slots*SlotSize)
	if err := s.Read(b, f.index); err != nil {
		return nil, err
	}
	if Sum(s.Seed, b) != f.indexSum {
		return nil, s.Damage(f.index, "index", ErrChecksum)
	}
	if !s.Sealed.Load() {
		s.Used, s.table = f.end-DataStart+int64(f.slots)*SlotSize, f.keys
	}
	return b, nil
}

// sector is the unit in which unreadable parts of a disk are skipped.
const sector = 4096

// readable fills b from off and replaces unreadable sectors with zeros. It calls the function bad
// with the bounds and the error of each unreadable sector. It first tries to read all of b at once,
// and returns the error of this attempt, or engine.ErrClosed.
func (s *Segment) readable(b []byte, off int64, bad func(from, to int64, err error)) error {
	first := s.Read(b, off)
	for first != nil && len(b) > 0 {
		piece := b[:min(sector-int(off%sector), len(b))] // one sector at a time, because the sectors around a bad one may be readable
		next := off + int64(len(piece))
		if err := s.Read(piece, off); errors.Is(err, engine.ErrClosed) {
			return err
		} else if err != nil {
			clear(piece)
			bad(off, next, err)
		}
		b, off = b[len(piece):], next
	}
	return first
}

// ProvedEnd returns the offset where the groups of a sealed segment end. The footer and the final
// watermark both hold this offset. ProvedEnd returns 0 if neither is valid.
func (s *Segment) ProvedEnd() (int64, error) {
	f, ok, err := s.footer()
	if err != nil || ok {
		return f.end, err
	}
	b := make([]byte, DataStart)
	if err := s.Read(b, 0); err != nil || b[32] != headerVersion {
		return 0, err
	}
	end, _ := decodeWatermark(b[watermarkOffset:], s.Seed)
	return end, nil
}

// CheckHeader returns engine.ErrDamaged if the header or the size of a segment file is wrong.
func (s *Segment) CheckHeader() error {
	size, err := s.File.Size()
	if err != nil {
		return fmt.Errorf("size of %s: %w", s.Name, err)
	}
	b := make([]byte, headerSize)
	if size >= headerSize {
		if err := s.Read(b, 0); err != nil {
			return err
		}
	}
	if err := checkHeader(b, s.Seed, s.Number, s.size); err != nil {
		return s.Damage(0, "segment header", err)
	}
	if size != s.size {
		return s.Damage(0, "segment", fmt.Errorf("file is %d bytes, want %d", size, s.size))
	}
	return nil
}
