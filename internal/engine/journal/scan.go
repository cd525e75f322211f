package journal

import (
	"cmp"
	"errors"
	"fmt"
)

// scanned is the result of reading all groups of a segment.
type scanned struct {
	newest int64  // offset of the last group
	next   uint64 // number of the group after the last one; 0 if there is no group
	marked bool   // the watermark says that all groups were synced
	final  bool   // the watermark is final: no more groups follow in this segment
}

// scan reads a segment group by group up to the last complete group and builds the segment's index.
//
// An incomplete group after that is normally a write that a crash cut short, which was never
// acknowledged. It is damage in two cases: the watermark says that the segment was synced further,
// or a later group is valid. Each group is synced before the next is written, so a later group
// proves that the incomplete one was once complete.
func (s *storedSegment) scan() (x scanned, err error) {
	s.end, s.count, s.slots = dataStart, 0, nil
	s.keys.clear()
	for g := range groups(s.read, s.seed, dataStart, s.size-footerSize) {
		if errors.Is(g.err, errChecksum) || errors.Is(g.err, errShort) {
			break
		}
		if g.err != nil {
			return x, g.err
		}
		if x.next > 0 && g.group != x.next {
			return x, s.damage(s.end, "group", fmt.Errorf("group %d follows group %d", g.group, x.next-1))
		}
		for off, rec := range g.records(s.seed) {
			s.slots = appendSlot(s.slots, off, rec)
			s.keys.add(off, rec)
			s.count++
		}
		x.newest, s.end, x.next = g.off, g.off+int64(g.length), g.group+1
	}
	s.used = s.end - dataStart + int64(s.count)*slotSize
	return x, s.evidence(&x)
}

// evidence returns engine.ErrDamaged if the segment once held more groups than scan found.
func (s *storedSegment) evidence(x *scanned) error {
	var mark [watermarkSize]byte
	if err := s.read(mark[:], watermarkOffset); err != nil {
		return err
	}
	synced, final := decodeWatermark(mark[:], s.seed)
	if x.marked, x.final = synced == s.end, final; synced > s.end {
		return s.damage(s.end, "group", errChecksum)
	}
	const step = 1 << 20
	buf := make([]byte, max(0, min(step+frameSize, s.size-s.end-align)))
	for off := s.end + align; off < s.size; off += step {
		n := min(int64(len(buf)), s.size-off)
		if err := s.read(buf[:n], off); err != nil {
			return err
		}
		for i := nextFrame(buf[:n], 0); i >= 0 && i < step; i = nextFrame(buf[:n], i+1) {
			if f, ok := decodeFrame(buf[i:n], s.seed); ok && f.group >= x.next {
				return s.damage(s.end, "group", errChecksum)
			}
		}
	}
	return nil
}

// window reads consecutive records of a segment, a large piece at a time.
type window struct {
	seg   *storedSegment
	off   int64
	buf   []byte
	ahead int64 // number of bytes to read at once; 0 means windowSize
}

const windowSize = 256 << 10

// holds reports whether the window contains the n bytes at off.
func (w *window) holds(off, n int64) bool { return off >= w.off && off+n <= w.off+int64(len(w.buf)) }

// record reads the record that an index slot describes. The payload is valid until the next call.
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
