package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
)

// inspection is the result of reading a whole segment, in whatever state the segment is. A valid
// record counts wherever it is found, because its checksum covers the journal's salt and the
// segment number.
type inspection struct {
	seg       *segment
	size      int64
	b         []byte // the whole file
	slots     []byte // slots of the valid records, in offset order
	records   int
	index     []byte // the stored index, if it is valid
	sealed    bool   // footer and index are valid
	proved    bool   // the footer or a final watermark says where the groups end
	marked    bool   // there is a watermark; older builds marked no watermark as final
	end       int64  // offset of the end of the groups
	group     uint64 // number of the last group; 0 if there is none
	first     uint64 // number of the first group
	manifests []manifest
	holes     []*hole
	torn      int64 // bytes of the newest group that a crash cut short; that group was never acknowledged
}

// manifest is a list of the journal's segments, and the offset of the record that holds the list.
type manifest struct {
	off   int64
	next  uint64
	list  []uint64
	draft bool // written by a repair that had not finished
}

// hole is a damaged range of a file.
type hole struct {
	seg    *segment
	off    int64
	length int64
	what   string
	err    error
	slot   slot    // slot of the record that was there; valid only if known is true
	known  bool    // the index or the record's own head says which record was there
	mended *record // the corrected record, if one flipped bit explains the damage
	frame  bool    // the damage is in a frame (group head), header, index or footer, so no record is lost
	count  int     // if known is false: upper bound for the number of records that were there
	key    string  // key of the record, if known is true and the head is valid
	fate   Fate    // fate of a document or a deletion, set by judgeDocument
}

// inspect reads and checks a whole segment. Everything below the offset synced is known to have
// been written. inspect reads the file into buf; the result holds no reference to buf.
func inspect(s *segment, size, synced int64, buf []byte) (*inspection, error) {
	x := &inspection{seg: s, size: size, b: buf[:size], end: dataStart}
	have, err := s.file.Size()
	if err != nil {
		return nil, fmt.Errorf("size of %s: %w", s.name, err)
	}
	clear(x.b)
	if off, err := s.readable(x.b[:min(have, size)], 0); err != nil {
		x.structural(off, 0, "data", err)
	}
	if err := checkHeader(x.b, s.seed, s.number, size); err != nil {
		x.structural(0, headerSize, "segment header", err)
	}
	if have != size {
		x.structural(0, 0, "segment", fmt.Errorf("file is %d bytes, want %d", have, size))
	}
	x.walk(max(x.readIndex(), min(synced, size-footerSize)))
	if x.sealed {
		x.compareIndex()
	}
	x.b = nil
	return x, nil
}

// sector is the unit in which unreadable parts of a disk are skipped.
const sector = 4096

// readable fills b from off and replaces unreadable sectors with zeros. It returns the offset and
// error of the first unreadable sector.
func (s *segment) readable(b []byte, off int64) (int64, error) {
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

// unknown records that the file may have held more groups from x.end on, whose content is not
// known. Part of that space would have been used by the index, which room takes into account.
func (x *inspection) unknown(err error) {
	x.holes = append(x.holes, &hole{seg: x.seg, off: x.end, what: "group", err: err, count: room(x.size - x.end)})
}

// structural records damage to something other than a record.
func (x *inspection) structural(off, length int64, what string, err error) {
	x.holes = append(x.holes, &hole{seg: x.seg, off: off, length: length, what: what, err: err, frame: true})
}

// readIndex reads the footer and the index, and returns the end of the groups. Without a valid
// footer, the last valid frame (group head) determines the end: everything before that frame was
// synced, and the frame's own group counts if it is complete. The watermark may move the end
// further.
func (x *inspection) readIndex() (limit int64) {
	f, ok := decodeFooter(x.b[x.size-footerSize:], x.seg.seed)
	if ok && f.number == x.seg.number && f.index >= f.end && f.end >= dataStart &&
		x.size-footerSize-f.index == int64(f.slots)*slotSize {
		index := x.b[f.index : x.size-footerSize]
		if sum(x.seg.seed, index) == f.indexSum {
			x.sealed, x.index = true, index
		} else {
			x.structural(f.index, x.size-footerSize-f.index, "index", errChecksum)
		}
		x.proved = true
		return f.end
	}
	limit = dataStart
	all := x.b[:x.size]
	for i := nextFrame(all, dataStart); i >= 0; i = nextFrame(all, i+1) {
		off := int64(i)
		f, ok := decodeFrame(all[off:], x.seg.seed)
		if !ok || f.length <= frameSize || off+int64(f.length) > x.size-footerSize {
			continue
		}
		limit = off
		if _, err := checkGroup(all[off:off+int64(f.length)], f, x.seg.seed); err == nil {
			limit = off + int64(f.length)
		}
	}
	mark, final := decodeWatermark(x.b[watermarkOffset:], x.seg.seed)
	x.proved = final
	x.marked = mark > 0 && x.b[32] == headerVersion && checkHeader(x.b, x.seg.seed, x.seg.number, x.size) == nil
	return max(limit, min(mark, x.size-footerSize))
}

// walk goes from record to record up to limit. Beyond limit there can only be a group that a crash
// cut short.
func (x *inspection) walk(limit int64) {
	next := int64(0) // offset where the current group ends, according to its frame
	for x.end < limit {
		if f, ok := decodeFrame(x.b[x.end:], x.seg.seed); ok {
			if x.group > 0 && f.group != x.group+1 {
				x.structural(x.end, frameSize, "group", fmt.Errorf("group %d follows group %d", f.group, x.group))
			}
			if x.first == 0 {
				x.first = f.group
			}
			x.group, next = f.group, x.end+int64(f.length)
			x.end += frameSize
			continue
		}
		var r record
		if err := r.decode(x.b[x.end:limit], x.seg.seed); err == nil {
			x.take(&r)
			continue
		}
		if x.end >= next { // a frame is expected: if a record follows, only the frame is damaged
			if x.next(x.end+frameSize) && x.end+frameSize <= limit {
				x.structural(x.end, frameSize, "group", errChecksum)
				x.end += frameSize
				next = x.size // the end of the group is not known without the frame
				continue
			}
		}
		h := x.identify(limit)
		x.holes = append(x.holes, h)
		if h.mended != nil {
			x.noteManifest(h.off, h.mended)
		}
		x.end += h.length
	}
	if f, ok := decodeFrame(x.b[min(x.end, x.size-footerSize):], x.seg.seed); ok && !x.sealed {
		x.torn = min(int64(f.length), x.size-footerSize-x.end)
	}
}

// listed returns the slot of the record at off, if the index has one.
func (x *inspection) listed(off int64) (slot, bool) {
	n := len(x.index) / slotSize
	at := func(i int) uint32 { return binary.LittleEndian.Uint32(x.index[i*slotSize:]) }
	i := sort.Search(n, func(i int) bool { return int64(at(i)) >= off })
	if i == n || int64(at(i)) != off {
		return slot{}, false
	}
	return decodeSlot(x.index[i*slotSize:]), true
}

// next reports whether there is a record at off, according to the index or to the bytes there.
func (x *inspection) next(off int64) bool {
	if _, ok := x.listed(off); ok {
		return true
	}
	var r record
	return off < x.size && r.decodeHead(x.b[off:], x.seg.seed) == nil
}

// take adds a valid record.
func (x *inspection) take(r *record) {
	x.slots = appendSlot(x.slots, uint32(x.end), r)
	x.records++
	x.noteManifest(x.end, r)
	x.end += int64(r.size())
}

func (x *inspection) noteManifest(off int64, r *record) {
	if r.kind != kindManifest {
		return
	}
	m := manifest{off: off, next: r.seq, draft: r.count == draftManifest}
	for b := r.payload; len(b) >= 8; b = b[8:] {
		m.list = append(m.list, binary.LittleEndian.Uint64(b))
	}
	x.manifests = append(x.manifests, m)
}

// identify determines which record should be at x.end and how far the damage extends.
func (x *inspection) identify(limit int64) *hole {
	off := x.end
	h := &hole{seg: x.seg, off: off, what: "record", err: errChecksum}
	b := x.b[off:limit]
	sl, listed := x.listed(off)
	r, whole := mendRecord(b, x.seg.seed, int(sl.head))
	switch {
	case r != nil && (!listed || r.kind == sl.kind && r.log == sl.log && r.seq == sl.seq):
		h.known, h.slot, h.key = true, slotOf(uint32(off), r), r.key
		if whole {
			h.mended = r
		}
	case listed:
		h.known, h.slot = true, sl
	case x.sealed: // the index lists every record, so there was no record at x.end
		h.length, h.what, h.frame = x.resync(off, limit), "group", true
		return h
	default:
		h.length = x.resync(off, limit)
		h.err = errors.New("unrecognizable data")
		h.count = int((h.length + recordSize - 1) / recordSize)
		return h
	}
	h.length = min(int64(padded(int(h.slot.head)+int(h.slot.size))), limit-off)
	return h
}

// resync returns the distance from off to the next offset that has a valid frame or record head, or
// that the index lists.
func (x *inspection) resync(off, limit int64) int64 {
	for at := off + align; at < limit; at += align {
		if _, ok := x.listed(at); ok {
			return at - off
		}
		if _, ok := decodeFrame(x.b[at:], x.seg.seed); ok {
			return at - off
		}
		if at+recordSize > limit || x.b[at+14] == 0 || kind(x.b[at+14]) > kindManifest {
			continue
		}
		var r record
		if r.decodeHead(x.b[at:limit], x.seg.seed) == nil {
			return at - off
		}
	}
	return limit - off
}

// compareIndex verifies that the index matches the records. A segment with other damage is skipped,
// because there the index was used to identify the damaged records.
func (x *inspection) compareIndex() {
	if len(x.holes) == 0 && !bytes.Equal(x.slots, x.index) {
		x.structural(x.size-footerSize-int64(len(x.index)), int64(len(x.index)), "index", errors.New("does not match the records"))
	}
	x.index = nil
}

// unseal discards the damage of an invalid index in one of the two newest segments. A crash may have
// come before the index was synced, and the index contains nothing that the records do not.
func (x *inspection) unseal() {
	x.holes = slices.DeleteFunc(x.holes, func(h *hole) bool { return h.what == "index" && !x.sealed })
}

// slotOf returns the index slot of a record. The payload of the record may be missing.
func slotOf(off uint32, r *record) slot {
	return slot{
		off: off, size: r.length, head: uint16(r.headLen()), kind: r.kind, flags: r.flags & flagMask, count: r.count, log: r.log, seq: r.seq,
		time: r.time, keyed: r.key != "",
	}
}

// begun reports whether the segment holds a group or a record.
func (x *inspection) begun() bool { return x.group > 0 || x.records > 0 || x.end > dataStart }
