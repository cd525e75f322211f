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

// segment is one file of the journal. All segments have the same size.
type segment struct {
	number uint64
	name   string
	file   disk.File
	seed   uint32

	live      atomic.Int64   // bytes of records that are still needed
	refs      atomic.Int32   // number of readers, plus one for the journal itself
	onRelease func(*segment) // called when refs reaches 0

	// Only the committer uses the next fields, until it moves on to the next segment. From then on
	// the writer and the goroutine that seals the segment use them.
	end     int64  // offset of the next record or group
	slots   []byte // the index so far; nil once sealed
	count   int    // number of records
	keys    keyList
	next    uint64 // number of the group after the last one, once the segment is full
	leaving bool   // used by the committer only: later manifests (lists of the journal's segments) leave this segment out

	blank   atomic.Int64  // offset from which the preparer still has to fill the file with zeros; 0 if nothing is left to fill
	filling chan struct{} // a lock that keeps the preparer and the writer from writing to a blank file at once; a channel, because a mutex is not fair

	sealed atomic.Bool
	used   int64    // bytes of groups and index; set when sealed
	table  keyTable // position of the key slots; set when sealed
	stuck  bool     // used by the reclaimer only: a record is damaged, so the segment is not emptied
	moving bool     // used by the reclaimer only: entries were copied to a cold segment that is not adopted yet (see cold.go)
}

func segmentName(number uint64) string { return fmt.Sprintf("%012d.seg", number) }

func segmentNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ".seg")
	n, err := strconv.ParseUint(digits, 10, 32) // the in-memory index stores segment numbers in 32 bits
	return n, ok && err == nil && len(digits) == 12
}

// acquire keeps the file from being recycled or removed until the method release is called. The
// segment must be reachable through an index, or already be held.
func (s *segment) acquire() { s.refs.Add(1) }

// release undoes one acquire.
func (s *segment) release() {
	if s.refs.Add(-1) == 0 {
		s.onRelease(s)
	}
}

func (s *segment) damage(off int64, what string, err error) error {
	return &DamageError{File: s.name, Offset: off, What: what, Err: err}
}

// read fills b from offset off. A short read is damage, because every segment has its full size.
func (s *segment) read(b []byte, off int64) error {
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
func (s *segment) fits(size int64, n, records int, reserve int64) bool {
	index := int64(s.count+records)*slotSize + keySpace(s.keys.len())
	return s.end+frameSize+int64(n)+index+footerSize+reserve <= size
}

// mark writes the watermark. The watermark says that everything below the offset end was synced,
// and that the next group has the number in the parameter next.
func (s *segment) mark(end int64, next uint64) error {
	if err := s.file.WriteAt(watermarkOffset, encodeWatermark(s.seed, end, next)); err != nil {
		return fmt.Errorf("write watermark of %s: %w", s.name, err)
	}
	return nil
}

// seal writes and syncs the key slots, the index and the footer, so that the next start need not
// read the records. Key slots that do not fit are left out: a segment that an older build has
// filled has no space for them. seal also writes the final watermark. The watermark and the footer
// both say where the groups end, so this is still known if one of the two is damaged. The function
// put runs the writes, and may repeat them.
func (s *segment) seal(size int64, nextGroup uint64, put func(func() error) error) error {
	f := footer{
		number: s.number, nextGroup: nextGroup, end: s.end, slots: s.count,
		index: size - footerSize - int64(len(s.slots)), indexSum: sum(s.seed, s.slots),
	}
	keys, directory := s.keys.all(), []byte(nil)
	if n := len(keys) / keySlotSize; n > 0 && f.index-keySpace(n) >= s.end {
		directory = keyDirectory(keys, s.seed)
		f.keys = keyTable{at: f.index - keySpace(n), count: n, sum: sum(s.seed, directory)}
	} else {
		keys = nil
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

// once runs a write and returns its error.
func once(write func() error) error { return write() }

// footer reads the footer. It returns false if the segment is not sealed or the footer is damaged.
func (s *segment) footer(size int64) (footer, bool, error) {
	b := make([]byte, footerSize)
	if err := s.read(b, size-footerSize); err != nil {
		return footer{}, false, err
	}
	f, ok := decodeFooter(b, s.seed)
	return f, ok && f.number == s.number, nil
}

// index reads the index slots of a sealed segment, and sets the fields used and table. It returns
// engine.ErrDamaged if the footer or the index is not valid.
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
		s.used, s.table = f.end-dataStart+int64(f.slots)*slotSize, f.keys
	}
	return b, nil
}
