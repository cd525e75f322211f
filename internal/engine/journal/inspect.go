package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
)

// inspection is the result of reading a whole segment, which may be damaged. The records of a
// segment are in groups, and each group was one write. A valid record counts wherever it is found,
// because its checksum covers the journal's salt and the segment number.
type inspection struct {
	seg      *storedSegment
	b        []byte              // the whole file
	visit    func(slot, *record) // called with every record that is valid or can be corrected, in offset order; the payload is valid during the call
	slots    []byte              // index slots of the valid records
	records  int
	index    []byte   // the stored index, if it is valid
	sealed   bool     // footer and index are valid
	noIndex  *hole    // if sealed is false: the damage to report, unless the segment was never sealed
	proved   bool     // the footer or a final watermark says where the groups end
	marked   bool     // there is a valid watermark; older builds did not say whether it is final
	end      int64    // offset of the end of the groups
	group    uint64   // number of the last group; 0 if there is none
	first    uint64   // number of the first group
	manifest int64    // offset of the last manifest; 0 if there is none
	list     []uint64 // segments of the journal, according to that manifest
	next     uint64   // next revision, according to that manifest
	holes    []*hole
	torn     int64 // bytes of the newest group that a crash cut short; that group was never acknowledged
}

// hole is a damaged range of a file. Its Fate is empty until the method judge has compared the
// range with other data.
type hole struct {
	Damage
	number uint64 // number of the segment
	slot   slot   // slot of the record that was there; valid only if known is true
	known  bool   // the index, or the head of the record (the part before its payload), says which record was there
	count  int    // if the fate is Unknown: upper bound for the number of records that were there
	key    string // key of the record, if known is true and the head is valid
}

// inspect reads and checks a whole segment. The parameter synced is an offset: everything below it
// is known to have been written. inspect reads the file into buf; the result holds no reference to
// buf.
func (s *storedSegment) inspect(synced int64, buf []byte, visit func(slot, *record)) (*inspection, error) {
	size := s.size
	x := &inspection{seg: s, b: buf[:size], end: dataStart, visit: visit}
	have, err := s.file.Size()
	if err != nil {
		return nil, fmt.Errorf("size of %s: %w", s.name, err)
	}
	clear(x.b)
	if off, err := s.readable(x.b[:min(have, size)], 0); err != nil {
		x.damage(off, "data", err, Intact)
	}
	if err := checkHeader(x.b, s.seed, s.number, size); err != nil {
		x.damage(0, "segment header", err, Intact)
	}
	if have != size {
		x.damage(0, "segment", fmt.Errorf("file is %d bytes, want %d", have, size), Intact)
	}
	x.walk(max(x.readIndex(), min(synced, size-footerSize)))
	if len(x.holes) == 0 && x.sealed && !bytes.Equal(x.slots, x.index) {
		x.damage(size-footerSize-int64(len(x.index)), "index", errors.New("does not match the records"), Intact)
	}
	x.b, x.index, x.slots = nil, nil, nil
	return x, nil
}

// damage records a damaged range. The parameter fate is Intact if the range holds no record, but
// for example a header or a frame (the head of a group).
func (x *inspection) damage(off int64, what string, err error, fate Fate) *hole {
	h := &hole{Damage: Damage{File: x.seg.name, Offset: off, What: what, Why: err.Error(), Fate: fate}, number: x.seg.number}
	x.holes = append(x.holes, h)
	return h
}

// readIndex reads the footer and the index, and returns the end of the groups. Without a valid
// footer, the last valid frame determines the end: everything before that frame was synced, and the
// frame's own group counts if it is complete. The watermark may move the end further.
func (x *inspection) readIndex() (limit int64) {
	x.noIndex = x.damage(x.seg.size-footerSize, "footer", errChecksum, Intact)
	x.holes = x.holes[:len(x.holes)-1]
	f, ok := decodeFooter(x.b[x.seg.size-footerSize:], x.seg.seed)
	if ok && f.number == x.seg.number && f.index >= f.end && f.end >= dataStart &&
		x.seg.size-footerSize-f.index == int64(f.slots)*slotSize {
		x.index = x.b[f.index : x.seg.size-footerSize]
		if x.sealed = sum(x.seg.seed, x.index) == f.indexSum; !x.sealed {
			x.noIndex.Offset, x.noIndex.What, x.index = f.index, "index", nil
		}
		x.proved = true
		return f.end
	}
	limit = dataStart
	for i := nextFrame(x.b, dataStart); i >= 0; i = nextFrame(x.b, i+1) {
		for g := range groups(x.read, x.seg.seed, int64(i), x.seg.size-footerSize) {
			if g.b == nil {
				break
			}
			i, limit = int(g.off), g.off
			if g.err == nil {
				limit += int64(g.length)
			}
		}
	}
	mark, final := decodeWatermark(x.b[watermarkOffset:], x.seg.seed)
	x.proved = final
	x.marked = mark > 0 && x.b[32] == headerVersion && checkHeader(x.b, x.seg.seed, x.seg.number, x.seg.size) == nil
	return max(limit, min(mark, x.seg.size-footerSize))
}

// read reads from memory.
func (x *inspection) read(b []byte, off int64) error {
	copy(b, x.b[off:])
	return nil
}

// walk goes from group to group up to the offset limit. Beyond it, there can only be a group that a
// crash cut short. Where a group is damaged, walk goes from record to record.
func (x *inspection) walk(limit int64) {
	next := int64(0) // offset where the current group ends, according to its frame
	for x.end < limit {
		for g := range groups(x.read, x.seg.seed, x.end, limit) {
			if g.err != nil {
				if g.b != nil && g.bad == g.off {
					x.damage(g.off, "group", g.err, Intact)
				}
				break
			}
			x.begin(g.frame)
			for off, r := range g.records(x.seg.seed) {
				x.take(off, r, true)
			}
			x.end += int64(g.length)
		}
		if x.end < limit {
			next = x.salvage(limit, next)
		}
	}
	if f, ok := decodeFrame(x.b[min(x.end, x.seg.size-footerSize):], x.seg.seed); ok && !x.sealed {
		x.torn = min(int64(f.length), x.seg.size-footerSize-x.end)
	}
}

// begin records the number of a group. A group that does not follow the previous one is damage.
func (x *inspection) begin(f frame) {
	if x.group > 0 && f.group != x.group+1 {
		x.damage(x.end, "group", fmt.Errorf("group %d follows group %d", f.group, x.group), Intact)
	}
	if x.first == 0 {
		x.first = f.group
	}
	x.group = f.group
}

// salvage moves x.end past one frame, one record or one damaged range. The parameter next is the
// offset where the current group ends. salvage returns the new value of next.
func (x *inspection) salvage(limit, next int64) int64 {
	if f, ok := decodeFrame(x.b[x.end:], x.seg.seed); ok {
		x.begin(f)
		next = x.end + int64(f.length)
		x.end += frameSize
		return next
	}
	var r record
	if err := r.decode(x.b[x.end:limit], x.seg.seed); err == nil {
		x.take(uint32(x.end), &r, true)
		x.end += int64(r.size())
		return next
	}
	if x.end >= next && x.end+frameSize <= limit && x.follows(x.end+frameSize) { // a frame should be here, and a record follows, so only the frame is damaged
		x.damage(x.end, "group", errChecksum, Intact)
		x.end += frameSize
		return x.seg.size // the end of the group is not known without the frame
	}
	x.end += x.identify(limit)
	return next
}

// listed returns the slot of the record at off, if the index has one.
func (x *inspection) listed(off int64) (slot, bool) {
	n := len(x.index) / slotSize
	at := func(i int) int64 { return int64(binary.LittleEndian.Uint32(x.index[i*slotSize:])) }
	i := sort.Search(n, func(i int) bool { return at(i) >= off })
	if i == n || at(i) != off {
		return slot{}, false
	}
	return decodeSlot(x.index[i*slotSize:]), true
}

// follows reports whether there is a record at off, according to the index or to the bytes there.
func (x *inspection) follows(off int64) bool {
	if _, ok := x.listed(off); ok {
		return true
	}
	if off+recordSize > x.seg.size || kind(x.b[off+14]) > kindManifest { // a cheap test first, because resync calls this method at every eighth offset
		return false
	}
	_, _, _, err := checkHead(x.b[off:], x.seg.seed)
	return err == nil
}

// take adds a record that is valid or was corrected.
func (x *inspection) take(off uint32, r *record, valid bool) {
	b := appendSlot(x.slots, off, r)
	sl := decodeSlot(b[len(x.slots):])
	if valid {
		x.slots = b
		x.records++
	}
	if r.kind == kindManifest {
		x.manifest, x.next, x.list = int64(off), r.seq, nil
		for b := r.payload; len(b) >= 8; b = b[8:] {
			x.list = append(x.list, binary.LittleEndian.Uint64(b))
		}
	}
	x.visit(sl, r)
}

// identify records the damage at x.end: which record should be there, and how far the damage
// extends. It returns the length of the damage.
func (x *inspection) identify(limit int64) int64 {
	off := x.end
	h := x.damage(off, "record", errChecksum, "")
	sl, listed := x.listed(off)
	r, whole := mendRecord(x.b[off:limit], x.seg.seed)
	switch {
	case r != nil && (!listed || r.kind == sl.kind && r.log == sl.log && r.seq == sl.seq):
		h.known, h.slot, h.key = true, decodeSlot(appendSlot(nil, uint32(off), r)), r.key
		if whole {
			h.Fate = Mended
			x.take(uint32(off), r, false)
		}
	case listed:
		h.known, h.slot = true, sl
	case x.sealed: // the index lists every record, so there was no record at x.end
		h.What, h.Fate = "group", Intact
		return x.resync(off, limit)
	default:
		length := x.resync(off, limit)
		h.Why, h.Fate, h.count = "unrecognizable data", Unknown, int((length+recordSize-1)/recordSize)
		return length
	}
	return min(int64(padded(int(h.slot.head)+int(h.slot.size))), limit-off)
}

// resync returns the distance from off to the next offset that has a valid frame or record head, or
// that the index lists.
func (x *inspection) resync(off, limit int64) int64 {
	for at := off + align; at < limit; at += align {
		if _, ok := decodeFrame(x.b[at:], x.seg.seed); ok || x.follows(at) {
			return at - off
		}
	}
	return limit - off
}

// addUnknown records as damage that the file may have held more groups from x.end on, whose content
// is not known. Part of that space would have been used by the index. The function room takes this
// into account.
func (x *inspection) addUnknown(err error) *hole {
	h := x.damage(x.end, "group", err, Unknown)
	h.count = room(x.seg.size - x.end)
	return h
}

// room returns the largest number of records that fit in this many bytes of a sealed segment.
func room(bytes int64) int { return int(max(bytes, 0)/(recordSize+slotSize)) + 1 }

// begun reports whether the segment holds a group or a record.
func (x *inspection) begun() bool { return x.group > 0 || x.records > 0 || x.end > dataStart }
