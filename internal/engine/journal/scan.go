package journal

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
)

// scan reads a segment group by group up to the last complete group and builds the segment's index.
//
// An incomplete group after that is normally a write that a crash cut short, which was never
// acknowledged. It is damage in two cases: the watermark says that the segment was synced further,
// or a later group is valid. Each group is synced before the next is written, so a later group
// proves that the incomplete one was once complete.
func (r *recovery) scan(s *segment) error {
	s.end, s.count, s.slots = dataStart, 0, nil
	s.keys.clear()
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
			return s.damage(s.end, "group", fmt.Errorf("group %d follows group %d", f.group, last))
		}
		buf, last = group, f.group
		for off := frameSize; off < len(group); {
			var rec record
			rec.decodeHead(group[off:], s.seed) // cannot fail: r.group has decoded it
			rec.payload = group[off+rec.headLen():][:rec.length]
			s.slots = appendSlot(s.slots, uint32(s.end)+uint32(off), &rec)
			s.keys.add(uint32(s.end)+uint32(off), &rec)
			s.count++
			off += rec.size()
		}
		r.newest = s.end
		s.end += int64(len(group))
		r.j.write.next = last + 1
	}
	return r.evidence(s, last)
}

// group reads and checks the group at s.end. It returns nil if there is no complete group.
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
	if _, err := checkGroup(buf, f, s.seed); err != nil {
		return nil, frame{}, nil
	}
	return buf, f, nil
}

// evidence returns engine.ErrDamaged if the segment once held more groups than scan found.
func (r *recovery) evidence(s *segment, last uint64) error {
	var mark [watermarkSize]byte
	if err := s.read(mark[:], watermarkOffset); err != nil {
		return err
	}
	synced, final := decodeWatermark(mark[:], s.seed)
	if r.marked, r.final = synced == s.end, final; synced > s.end {
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

// nextFrame returns the first aligned offset at or after from that has the magic number of a frame
// (group head) and room for the rest of the frame. It returns -1 if there is none. It searches for
// the magic number instead of testing every offset, because most of the data is zeros, on which
// bytes.Index is much faster.
func nextFrame(b []byte, from int) int {
	for i := from; i+frameSize <= len(b); {
		k := bytes.Index(b[i+4:], frameMark)
		if k < 0 {
			return -1
		}
		if i += k; i%align == 0 && i+frameSize <= len(b) {
			if m := binary.LittleEndian.Uint32(b[i+4:]); m == frameMagic || m == oldFrameMagic {
				return i
			}
		}
		i++
	}
	return -1
}

// frameMark is the common prefix of both magic numbers of frames. In a frame the magic number
// follows the first four bytes.
var frameMark = []byte("WGR")

// window reads consecutive records of a segment, a large piece at a time.
type window struct {
	seg   *segment
	off   int64
	buf   []byte
	ahead int64 // number of bytes to read at once; 0: windowSize
}

const windowSize = 256 << 10

// holds reports whether the window contains the n bytes at off.
func (w *window) holds(off, n int64) bool { return off >= w.off && off+n <= w.off+int64(len(w.buf)) }

// record reads the record that a slot describes. The payload is valid until the next call.
func (w *window) record(sl slot) (record, error) {
	off, n := int64(sl.off), int64(sl.head)+int64(sl.size)
	if !w.holds(off, n) {
		size, err := w.seg.file.Size()
		if err != nil {
			return record{}, err
		}
		want := min(max(n, cmp.Or(w.ahead, windowSize)), size-off)
		if int64(cap(w.buf)) < want {
			w.buf = make([]byte, want)
		}
		w.buf, w.off = w.buf[:want], off
		if err := w.seg.read(w.buf, off); err != nil {
			w.buf = w.buf[:n] // retry with this record alone, because only the data after it may be unreadable
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
