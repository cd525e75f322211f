package segments

import (
	"cmp"
	"errors"
	"fmt"
)

// Scanned is the result of reading all groups of a segment.
type Scanned struct {
	Newest int64  // offset of the last group
	Next   uint64 // number of the group after the last one; 0 if there is no group
	Marked bool   // the watermark says that all groups were synced
	Final  bool   // the watermark is final: no more groups follow in this segment
}

// Scan reads a segment group by group up to the last complete group and builds the segment's index.
//
// An incomplete group after that is normally a write that a crash cut short, which was never
// acknowledged. It is damage in two cases: the watermark says that the segment was synced further,
// or a later group is valid. Each group is synced before the next is written, so a later group
// proves that the incomplete one was once complete.
func (s *Segment) Scan() (x Scanned, err error) {
	s.End, s.Count, s.Slots = DataStart, 0, nil
	s.keys.clear()
	for g := range groups(s.Read, s.Seed, DataStart, s.size-footerSize) {
		if errors.Is(g.err, ErrChecksum) || errors.Is(g.err, errShort) {
			break
		}
		if g.err != nil {
			return x, g.err
		}
		if x.Next > 0 && g.group != x.Next {
			return x, s.Damage(s.End, "group", fmt.Errorf("group %d follows group %d", g.group, x.Next-1))
		}
		for off, rec := range g.records(s.Seed) {
			s.Slots = appendSlot(s.Slots, off, rec)
			s.keys.add(off, rec)
			s.Count++
		}
		x.Newest, s.End, x.Next = g.off, g.off+int64(g.length), g.group+1
	}
	s.Used = s.End - DataStart + int64(s.Count)*SlotSize
	return x, s.evidence(&x)
}

// evidence returns engine.ErrDamaged if the segment once held more groups than Scan found.
func (s *Segment) evidence(x *Scanned) error {
	var mark [watermarkSize]byte
	if err := s.Read(mark[:], watermarkOffset); err != nil {
		return err
	}
	synced, final := decodeWatermark(mark[:], s.Seed)
	if x.Marked, x.Final = synced == s.End, final; synced > s.End {
		return s.Damage(s.End, "group", ErrChecksum)
	}
	const step = LongRun - 4096 // leaves space for a frame that begins at the end of a step
	buf, release := Buffer(int(max(0, min(LongRun, s.size-s.End-align))))
	defer release()
	for off := s.End + align; off < s.size; off += step {
		n := min(int64(len(buf)), s.size-off)
		if err := s.Read(buf[:n], off); err != nil {
			return err
		}
		for i := nextFrame(buf[:n], 0); i >= 0 && i < step; i = nextFrame(buf[:n], i+1) {
			if f, ok := decodeFrame(buf[i:n], s.Seed); ok && f.group >= x.Next {
				return s.Damage(s.End, "group", ErrChecksum)
			}
		}
	}
	return nil
}

// Window reads consecutive records of a segment, a large piece at a time.
type Window struct {
	Seg   *Segment
	off   int64
	Buf   []byte
	Ahead int64 // number of bytes to read at once; 0 means WindowSize
}

// WindowSize is the number of bytes that a Window reads at once, unless its field Ahead says more.
const WindowSize = 256 << 10

// Holds reports whether the window contains the n bytes at off.
func (w *Window) Holds(off, n int64) bool { return off >= w.off && off+n <= w.off+int64(len(w.Buf)) }

// Record reads the record that an index slot describes. The payload is valid until the next call.
func (w *Window) Record(sl Slot) (Record, error) {
	off, n := int64(sl.Off), int64(sl.Head)+int64(sl.Size)
	if off+n > w.Seg.size {
		return Record{}, w.Seg.Damage(off, "record", errShort)
	}
	if !w.Holds(off, n) {
		want := min(max(n, cmp.Or(w.Ahead, WindowSize)), w.Seg.size-off)
		if int64(cap(w.Buf)) < want {
			w.Buf = make([]byte, want)
		}
		w.Buf, w.off = w.Buf[:want], off
		if err := w.Seg.Read(w.Buf, off); err != nil {
			w.Buf = w.Buf[:n] // retry with this record alone, because only the data after it may be unreadable
			if err := w.Seg.Read(w.Buf, off); err != nil {
				return Record{}, err
			}
		}
	}
	var r Record
	err := r.Decode(w.Buf[off-w.off:][:n], w.Seg.Seed)
	if err == nil && (r.Kind != sl.Kind || r.Log != sl.Log || r.Seq != sl.Seq) {
		err = ErrChecksum
	}
	if err != nil {
		return Record{}, w.Seg.Damage(off, "record", err)
	}
	return r, nil
}
