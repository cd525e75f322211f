package segments

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
)

// Inspection is the result of reading a whole segment, which may be damaged. The records of a
// segment are in groups, and each group was one write. A record with a valid checksum is
// accepted at any offset: the checksum covers the journal's salt and the segment number, so bytes of
// another journal or segment cannot pass for a record.
type Inspection struct {
	Seg      *Segment
	b        []byte              // the whole file
	visit    func(Slot, *Record) // called with every record that is valid or can be corrected, in offset order; the payload is valid during the call
	slots    []byte              // index slots of the valid records
	Records  int
	index    []byte   // the stored index, if it is valid
	Sealed   bool     // footer and index are valid
	NoIndex  *Hole    // why Sealed is false; this is damage if the segment had been sealed
	Proved   bool     // the footer or a final watermark says where the groups end
	Marked   bool     // there is a valid watermark; older builds did not say whether it is final
	End      int64    // offset of the end of the groups
	Group    uint64   // number of the last group; 0 if there is none
	First    uint64   // number of the first group
	Manifest int64    // offset of the last manifest; 0 if there is none
	List     []uint64 // segments of the journal, according to that manifest
	Next     uint64   // next revision, according to that manifest
	Holes    []*Hole
	Torn     int64 // bytes of the newest group that a crash cut short; that group was never acknowledged
}

// Hole is a damaged range of a file. If its Fate is empty, the journal determines it by comparing the
// range with other data.
type Hole struct {
	Damage
	Number uint64 // number of the segment
	Slot   Slot   // slot of the record that was there; valid only if Known is true
	Known  bool   // the index, or the head of the record (the part before its payload), says which record was there
	Count  int    // if the fate is Unknown: upper bound for the number of records that were there
	Key    string // key of the record, if Known is true and the head is valid
}

// Inspect reads and checks a whole segment. The parameter synced is an offset: everything below it
// is known to have been written. Inspect reads the file into buf; the result holds no reference to
// buf.
func (s *Segment) Inspect(synced int64, buf []byte, visit func(Slot, *Record)) (*Inspection, error) {
	size := s.size
	x := &Inspection{Seg: s, b: buf[:size], End: DataStart, visit: visit}
	have, err := s.File.Size()
	if err != nil {
		return nil, fmt.Errorf("size of %s: %w", s.Name, err)
	}
	clear(x.b)
	s.readable(x.b[:min(have, size)], 0, func(off, _ int64, err error) {
		if len(x.Holes) == 0 {
			x.damage(off, "data", err, Intact)
		}
	})
	if err := checkHeader(x.b, s.Seed, s.Number, size); err != nil {
		x.damage(0, "segment header", err, Intact)
	}
	if p := s.Packed(); p != nil {
		if err := p.Fault(); err != nil {
			x.damage(size, "table of blocks", err, Intact)
		}
	}
	if have != size {
		x.damage(0, "segment", fmt.Errorf("file is %d bytes, want %d", have, size), Intact)
	}
	x.walk(max(x.readIndex(), min(synced, size-footerSize)))
	if len(x.Holes) == 0 && x.Sealed && !bytes.Equal(x.slots, x.index) {
		x.damage(size-footerSize-int64(len(x.index)), "index", errors.New("does not match the records"), Intact)
	}
	x.b, x.index, x.slots = nil, nil, nil
	return x, nil
}

// damage records a damaged range. The parameter fate is Intact if no record is affected, for
// example if the range holds only a header or a frame (the head of a group).
func (x *Inspection) damage(off int64, what string, err error, fate Fate) *Hole {
	h := &Hole{Damage: Damage{File: x.Seg.Name, Offset: off, What: what, Why: err.Error(), Fate: fate}, Number: x.Seg.Number}
	x.Holes = append(x.Holes, h)
	return h
}

// readIndex reads the footer and the index, and returns the end of the groups. Without a valid
// footer, the last valid frame determines the end: everything before that frame was synced, and the
// frame's own group counts if it is complete. The watermark may move the end further.
func (x *Inspection) readIndex() (limit int64) {
	x.NoIndex = x.damage(x.Seg.size-footerSize, "footer", ErrChecksum, Intact)
	x.Holes = x.Holes[:len(x.Holes)-1]
	f, ok := decodeFooter(x.b[x.Seg.size-footerSize:], x.Seg.Seed)
	if ok && f.number == x.Seg.Number && f.index >= f.end && f.end >= DataStart &&
		x.Seg.size-footerSize-f.index == int64(f.slots)*SlotSize {
		x.index = x.b[f.index : x.Seg.size-footerSize]
		if x.Sealed = Sum(x.Seg.Seed, x.index) == f.indexSum; !x.Sealed {
			x.NoIndex.Offset, x.NoIndex.What, x.index = f.index, "index", nil
		}
		x.Proved = true
		return f.end
	}
	limit = DataStart
	for i := nextFrame(x.b, DataStart); i >= 0; i = nextFrame(x.b, i+1) {
		for g := range groups(x.read, x.Seg.Seed, int64(i), x.Seg.size-footerSize) {
			if g.b == nil {
				break
			}
			i, limit = int(g.off), g.off
			if g.err == nil {
				limit += int64(g.length)
			}
		}
	}
	mark, final := decodeWatermark(x.b[watermarkOffset:], x.Seg.Seed)
	x.Proved = final
	x.Marked = mark > 0 && x.b[32] == headerVersion && checkHeader(x.b, x.Seg.Seed, x.Seg.Number, x.Seg.size) == nil
	return max(limit, min(mark, x.Seg.size-footerSize))
}

// read reads from memory.
func (x *Inspection) read(b []byte, off int64) error {
	copy(b, x.b[off:])
	return nil
}

// walk goes from group to group up to the offset limit. Beyond this offset, there can only be a
// group that a crash cut short. Where a group is damaged, walk goes from record to record.
func (x *Inspection) walk(limit int64) {
	next := int64(0) // offset where the current group ends, according to its frame
	for x.End < limit {
		for g := range groups(x.read, x.Seg.Seed, x.End, limit) {
			if g.err != nil {
				if g.b != nil && g.bad == g.off {
					x.damage(g.off, "group", g.err, Intact)
				}
				break
			}
			x.begin(g.frame)
			for off, r := range g.records(x.Seg.Seed) {
				x.take(off, r, true)
			}
			x.End += int64(g.length)
		}
		if x.End < limit {
			next = x.salvage(limit, next)
		}
	}
	if f, ok := decodeFrame(x.b[min(x.End, x.Seg.size-footerSize):], x.Seg.Seed); ok && !x.Sealed {
		x.Torn = min(int64(f.length), x.Seg.size-footerSize-x.End)
	}
}

// begin records the number of a group. A group that does not follow the previous one is damage.
func (x *Inspection) begin(f frame) {
	if x.Group > 0 && f.group != x.Group+1 {
		x.damage(x.End, "group", fmt.Errorf("group %d follows group %d", f.group, x.Group), Intact)
	}
	if x.First == 0 {
		x.First = f.group
	}
	x.Group = f.group
}

// salvage moves x.End past one frame, one record or one damaged range. The parameter next is the
// offset where the current group ends. salvage returns the new value of next.
func (x *Inspection) salvage(limit, next int64) int64 {
	if f, ok := decodeFrame(x.b[x.End:], x.Seg.Seed); ok {
		x.begin(f)
		next = x.End + int64(f.length)
		x.End += FrameSize
		return next
	}
	var r Record
	if err := r.Decode(x.b[x.End:limit], x.Seg.Seed); err == nil {
		x.take(uint32(x.End), &r, true)
		x.End += int64(r.Size())
		return next
	}
	if x.End >= next && x.End+FrameSize <= limit && x.follows(x.End+FrameSize) { // a frame should be here, and a record follows, so only the frame is damaged
		x.damage(x.End, "group", ErrChecksum, Intact)
		x.End += FrameSize
		return x.Seg.size // the end of the group is not known without the frame
	}
	x.End += x.identify(limit)
	return next
}

// listed returns the slot of the record at off, if the index has one.
func (x *Inspection) listed(off int64) (Slot, bool) {
	n := len(x.index) / SlotSize
	at := func(i int) int64 { return int64(binary.LittleEndian.Uint32(x.index[i*SlotSize:])) }
	i := sort.Search(n, func(i int) bool { return at(i) >= off })
	if i == n || at(i) != off {
		return Slot{}, false
	}
	return DecodeSlot(x.index[i*SlotSize:]), true
}

// follows reports whether there is a record at off, according to the index or to the bytes there.
func (x *Inspection) follows(off int64) bool {
	if _, ok := x.listed(off); ok {
		return true
	}
	if off+RecordSize > x.Seg.size || Kind(x.b[off+14]) > KindManifest { // a cheap test first, because resync calls this method at every eighth offset
		return false
	}
	_, _, _, err := CheckHead(x.b[off:], x.Seg.Seed)
	return err == nil
}

// take adds a record that is valid or was corrected.
func (x *Inspection) take(off uint32, r *Record, valid bool) {
	b := appendSlot(x.slots, off, r)
	sl := DecodeSlot(b[len(x.slots):])
	if valid {
		x.slots = b
		x.Records++
	}
	if r.Kind == KindManifest {
		x.Manifest, x.Next, x.List = int64(off), r.Seq, nil
		for b := r.Payload; len(b) >= 8; b = b[8:] {
			x.List = append(x.List, binary.LittleEndian.Uint64(b))
		}
	}
	x.visit(sl, r)
}

// identify records the damage at x.End: which record should be there, and how far the damage
// extends. It returns the length of the damage.
func (x *Inspection) identify(limit int64) int64 {
	off := x.End
	h := x.damage(off, "record", ErrChecksum, "")
	sl, listed := x.listed(off)
	r, whole := mendRecord(x.b[off:limit], x.Seg.Seed)
	switch {
	case r != nil && (!listed || r.Kind == sl.Kind && r.Log == sl.Log && r.Seq == sl.Seq):
		h.Known, h.Slot, h.Key = true, DecodeSlot(appendSlot(nil, uint32(off), r)), r.Key
		if whole {
			h.Fate = Mended
			x.take(uint32(off), r, false)
		}
	case listed:
		h.Known, h.Slot = true, sl
	case x.Sealed: // the index lists every record, so there was no record at x.End
		h.What, h.Fate = "group", Intact
		return x.resync(off, limit)
	default:
		length := x.resync(off, limit)
		h.Why, h.Fate, h.Count = "unrecognizable data", Unknown, int((length+RecordSize-1)/RecordSize)
		return length
	}
	return min(int64(Padded(int(h.Slot.Head)+int(h.Slot.Size))), limit-off)
}

// resync returns the distance from off to the next offset that has a valid frame or record head, or
// that the index lists.
func (x *Inspection) resync(off, limit int64) int64 {
	for at := off + align; at < limit; at += align {
		if _, ok := decodeFrame(x.b[at:], x.Seg.Seed); ok || x.follows(at) {
			return at - off
		}
	}
	return limit - off
}

// AddUnknown reports a damaged range from x.End on: the file may have held more groups there, with
// unknown content. The function Room allows for the index, which would have taken a part of
// that space.
func (x *Inspection) AddUnknown(err error) *Hole {
	h := x.damage(x.End, "group", err, Unknown)
	h.Count = Room(x.Seg.size - x.End)
	return h
}

// Room returns the largest number of records that fit in this many bytes of a sealed segment.
func Room(bytes int64) int { return int(max(bytes, 0)/(RecordSize+SlotSize)) + 1 }

// Begun reports whether the segment holds a group or a record.
func (x *Inspection) Begun() bool { return x.Group > 0 || x.Records > 0 || x.End > DataStart }
