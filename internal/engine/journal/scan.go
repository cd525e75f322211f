package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// scan reads a segment group by group up to the last whole one, and builds its index. What follows is either a write
// that a crash cut short, which nobody was told of, or damage: it is damage when the watermark says that the segment
// was synced further, or when a later group is whole (each group is synced before the next is written).
func (r *recovery) scan(s *segment) error {
	s.end, s.count, s.slots = dataStart, 0, nil
	last := uint64(0)
	var buf []byte
	for {
		group, f, err := r.group(s, buf)
		if err != nil {
			return err
		}
		if group == nil {
			break
		}
		if last > 0 && f.group != last+1 {
			return s.damage(s.end, "group", fmt.Errorf("number %d follows %d", f.group, last))
		}
		buf, last = group, f.group
		for off := frameSize; off < len(group); {
			var rec record
			rec.decodeHead(group[off:], s.seed) // checked by r.group
			rec.payload = group[off+rec.headLen():][:rec.length]
			s.slots = appendSlot(s.slots, uint32(s.end)+uint32(off), &rec)
			s.count++
			off += rec.size()
		}
		r.newest = s.end
		s.end += int64(len(group))
		r.j.write.next = last + 1
	}
	return r.evidence(s, last)
}

// group reads and checks the group at the end of what was read so far; nil when there is no whole one.
func (r *recovery) group(s *segment, buf []byte) ([]byte, frame, error) {
	limit := r.j.size - footerSize
	if s.end+frameSize > limit {
		return nil, frame{}, nil
	}
	var head [frameSize]byte
	if err := s.read(head[:], s.end); err != nil {
		return nil, frame{}, err
	}
	f, ok := decodeFrame(head[:], s.seed)
	if !ok || f.length <= frameSize || s.end+int64(f.length) > limit {
		return nil, frame{}, nil
	}
	if cap(buf) < f.length {
		buf = make([]byte, max(f.length, int(min(r.j.size, 1<<20))))
	}
	buf = buf[:f.length]
	if err := s.read(buf, s.end); err != nil {
		return nil, frame{}, err
	}
	off, count := frameSize, 0
	for ; off < len(buf); count++ {
		var rec record
		if err := rec.decode(buf[off:], s.seed); err != nil {
			return nil, frame{}, nil
		}
		off += rec.size()
	}
	if off != len(buf) || count != f.count {
		return nil, frame{}, nil
	}
	return buf, f, nil
}

// evidence looks for signs that the segment held more than what was found whole.
func (r *recovery) evidence(s *segment, last uint64) error {
	var mark [watermarkSize]byte
	if err := s.read(mark[:], watermarkOffset); err != nil {
		return err
	}
	synced := decodeWatermark(mark[:], s.seed)
	if r.marked = synced == s.end; synced > s.end {
		return s.damage(s.end, "group", errChecksum)
	}
	const step = 1 << 20
	buf := make([]byte, max(0, min(step+frameSize, r.j.size-s.end-align)))
	for off := s.end + align; off < r.j.size; off += step {
		n := min(int64(len(buf)), r.j.size-off)
		if err := s.read(buf[:n], off); err != nil {
			return err
		}
		for i := nextFrame(buf[:n], 0); i >= 0 && i < step; i = nextFrame(buf[:n], i+1) {
			if f, ok := decodeFrame(buf[i:n], s.seed); ok && f.group > last {
				return s.damage(s.end, "group", errChecksum)
			}
		}
	}
	return nil
}

// nextFrame finds what may be a frame: the first place at from or behind it, where one may lie, that has its magic number and room
// for the rest; -1: none. Nearly all that is searched are zeros, and a loop over every place is slow where many are.
func nextFrame(b []byte, from int) int {
	for i := from; i+frameSize <= len(b); {
		k := bytes.Index(b[i+4:], frameMark)
		if k < 0 {
			return -1
		}
		if i += k; i%align == 0 && i+frameSize <= len(b) {
			return i
		}
		i++
	}
	return -1
}

// frameMark is the magic number as it stands in the four bytes that follow a frame's first four.
var frameMark = binary.LittleEndian.AppendUint32(nil, frameMagic)

// window reads the records of a segment that follow each other, a large piece at a time.
type window struct {
	seg *segment
	off int64
	buf []byte
}

const windowSize = 256 << 10

// record reads the record of a slot. Its payload is valid until the next call.
func (w *window) record(sl slot) (record, error) {
	off, n := int64(sl.off), int64(sl.head)+int64(sl.size)
	if off < w.off || off+n > w.off+int64(len(w.buf)) {
		size, err := w.seg.file.Size()
		if err != nil {
			return record{}, err
		}
		want := min(max(n, windowSize), size-off)
		if int64(cap(w.buf)) < want {
			w.buf = make([]byte, want)
		}
		w.buf, w.off = w.buf[:want], off
		if err := w.seg.read(w.buf, off); err != nil {
			w.buf = w.buf[:n] // what lies behind it may be unreadable
			if err := w.seg.read(w.buf, off); err != nil {
				return record{}, err
			}
		}
	}
	var r record
	b := w.buf[off-w.off:]
	if int64(len(b)) < n {
		return record{}, w.seg.damage(off, "record", errShort)
	}
	err := r.decode(b[:n], w.seg.seed)
	if err == nil && (r.kind != sl.kind || r.log != sl.log || r.seq != sl.seq) {
		err = errChecksum
	}
	if err != nil {
		return record{}, w.seg.damage(off, "record", err)
	}
	return r, nil
}
