package journal

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
)

// storedGroup is a group (the records of one write) as it was read from a segment.
type storedGroup struct {
	frame
	off int64  // offset in the segment
	b   []byte // the whole group, valid until the next group is read; nil if there is no valid frame
	err error  // why the group cannot be used; nil if it is whole
	bad int64  // if err is not nil: offset of the damage in the segment
}

// groups iterates over the groups of a segment between two offsets. In a group that is not whole,
// the field err is set. If the frame (the head of the group) is not valid either, nothing says
// where the group ends, so the iteration ends there. The function read fills a slice from an offset
// of the segment.
func groups(read func([]byte, int64) error, seed uint32, from, to int64) iter.Seq[storedGroup] {
	return func(yield func(storedGroup) bool) {
		var head [frameSize]byte
		var buf []byte
		for off := from; off < to; {
			g := storedGroup{off: off, bad: off, err: errChecksum}
			framed := false
			if off+frameSize <= to {
				if err := read(head[:], off); err != nil {
					g.err = err
				} else {
					g.frame, framed = decodeFrame(head[:], seed)
				}
			}
			if framed = framed && g.length > frameSize && off+int64(g.length) <= to; framed {
				if cap(buf) < g.length {
					buf = make([]byte, max(g.length, 2*cap(buf)))
				}
				g.b = buf[:g.length]
				if g.err = read(g.b, off); g.err == nil {
					at, err := checkGroup(g.b, g.frame, seed)
					g.bad, g.err = off+int64(at), err
				}
			}
			if !yield(g) || !framed {
				return
			}
			off += int64(g.length)
		}
	}
}

// records iterates over the records of a whole group and their offsets in the segment.
func (g *storedGroup) records(seed uint32) iter.Seq2[uint32, *record] {
	return func(yield func(uint32, *record) bool) {
		for off := frameSize; off < len(g.b); {
			var r record
			r.decodeHead(g.b[off:], seed) // cannot fail: the function groups has already decoded the record
			r.payload = g.b[off+r.headLen():][:r.length]
			if !yield(uint32(g.off)+uint32(off), &r) {
				return
			}
			off += r.size()
		}
	}
}

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
	for g := range groups(s.read, s.seed, dataStart, r.j.size-footerSize) {
		if errors.Is(g.err, errChecksum) || errors.Is(g.err, errShort) {
			break
		}
		if g.err != nil {
			return g.err
		}
		if last > 0 && g.group != last+1 {
			return s.damage(s.end, "group", fmt.Errorf("group %d follows group %d", g.group, last))
		}
		for off, rec := range g.records(s.seed) {
			s.slots = appendSlot(s.slots, off, rec)
			s.keys.add(off, rec)
			s.count++
		}
		r.newest, s.end, last = g.off, g.off+int64(g.length), g.group
		r.j.write.next = last + 1
	}
	return r.evidence(s, last)
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

// nextFrame returns the first aligned offset, not below start, at which there is the magic number
// of a frame (group head) and space for the whole frame. It returns -1 if there is none. It
// searches for the magic number instead of testing every offset, because most of the data is zeros,
// on which bytes.Index is much faster.
func nextFrame(b []byte, start int) int {
	for i := start; i+frameSize <= len(b); {
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
