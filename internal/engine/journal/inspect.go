package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
)

// inspection is one segment, read from its first byte to its last, whatever state it is in. A record that checks out
// counts wherever it stands: its checksum knows the journal and the segment.
type inspection struct {
	seg       *segment
	size      int64
	b         []byte // the whole file
	slots     []byte // of the records that are whole, in order of offset
	records   int
	index     []byte // what the index says, in a segment that has a whole one
	sealed    bool   // footer and index are whole
	end       int64  // where the groups end
	group     uint64 // number of the last group; 0: none
	first     uint64 // number of the first group
	manifests []manifest
	holes     []*hole
	torn      int64 // bytes of a newest group that a crash cut short, which nobody was told of
}

// manifest is a list of segments, and where it was found.
type manifest struct {
	off   int64
	next  uint64
	list  []uint64
	draft bool // of a repair that is not done yet
}

// hole is a place that does not hold what it should.
type hole struct {
	seg    *segment
	off    int64
	length int64
	what   string
	err    error
	slot   slot    // what was there, when known says so
	known  bool    // by the index or by the record's own head
	mended *record // the record as it was, when one wrong bit explains the damage
	frame  bool    // a frame, the header, the index or the footer: no record is gone
	count  int     // of a hole that is not known: how many records may have been there
	key    string  // of a known record whose head is whole
	fate   Fate    // of a document or a deletion, once it is judged
}

// inspect reads a segment. The buffer is used again for the next one: what is kept of it is copied.
func inspect(s *segment, size int64, buf []byte) (*inspection, error) {
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
		x.structural(0, 0, "segment", fmt.Errorf("the file has %d bytes, not %d", have, size))
	}
	limit := x.readIndex()
	x.walk(limit)
	if x.sealed {
		x.compareIndex()
	}
	x.b = nil
	return x, nil
}

// sector is how much is given up where a disk cannot be read.
const sector = 4096

// readable fills b from off as far as the disk gives it: what cannot be read is zeros. It returns where that begins.
func (s *segment) readable(b []byte, off int64) (int64, error) {
	if s.read(b, off) == nil {
		return 0, nil
	}
	at, fault := int64(0), error(nil)
	for len(b) > 0 {
		piece := b[:min(sector-int(off%sector), len(b))] // never of two sectors: one may be good
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

func (x *inspection) structural(off, length int64, what string, err error) {
	x.holes = append(x.holes, &hole{seg: x.seg, off: off, length: length, what: what, err: err, frame: true})
}

// readIndex reads footer and index, and returns how far the groups go for sure. Without them it is how far groups can
// be found, or the watermark says.
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
	return max(limit, min(decodeWatermark(x.b[watermarkOffset:], x.seg.seed), x.size-footerSize))
}

// walk goes from record to record up to limit, beyond which only a group can lie that a crash cut short.
func (x *inspection) walk(limit int64) {
	left := 0 // records that the frame promises and that were not seen yet
	for x.end < limit {
		if f, ok := decodeFrame(x.b[x.end:], x.seg.seed); ok {
			if x.group > 0 && f.group != x.group+1 {
				x.structural(x.end, frameSize, "group", fmt.Errorf("number %d follows %d", f.group, x.group))
			}
			if x.first == 0 {
				x.first = f.group
			}
			x.group, left = f.group, f.count
			x.end += frameSize
			continue
		}
		var r record
		if err := r.decode(x.b[x.end:limit], x.seg.seed); err == nil {
			x.take(&r)
			left--
			continue
		}
		if x.group == 0 || left <= 0 { // a frame should be here
			if x.next(x.end+frameSize) && x.end+frameSize <= limit {
				x.structural(x.end, frameSize, "group", errChecksum)
				x.end += frameSize
				left = 1 << 30
				continue
			}
		}
		h := x.identify(limit, left)
		x.holes = append(x.holes, h)
		if left -= max(h.count, 1); h.mended != nil {
			x.noteManifest(h.off, h.mended)
		}
		x.end += h.length
	}
	if f, ok := decodeFrame(x.b[min(x.end, x.size-footerSize):], x.seg.seed); ok && !x.sealed {
		x.torn = min(int64(f.length), x.size-footerSize-x.end)
	}
}

// listed returns what the index says of the record at off.
func (x *inspection) listed(off int64) (slot, bool) {
	n := len(x.index) / slotSize
	at := func(i int) uint32 { return binary.LittleEndian.Uint32(x.index[i*slotSize:]) }
	i := sort.Search(n, func(i int) bool { return int64(at(i)) >= off })
	if i == n || int64(at(i)) != off {
		return slot{}, false
	}
	return decodeSlot(x.index[i*slotSize:]), true
}

// next tells whether a record stands at off, or should by the index.
func (x *inspection) next(off int64) bool {
	if _, ok := x.listed(off); ok {
		return true
	}
	var r record
	return off < x.size && r.decodeHead(x.b[off:], x.seg.seed) == nil
}

// take notes a whole record.
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

// identify says what should be at the end of what was read so far, and how far the damage goes.
func (x *inspection) identify(limit int64, left int) *hole {
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
	case x.sealed: // every record is in the index: this is none
		h.length, h.what, h.frame = x.resync(off, limit), "group", true
		return h
	default:
		h.length = x.resync(off, limit)
		h.err = errors.New("nothing here checks out")
		h.count = int((h.length + recordSize - 1) / recordSize)
		if left > 0 {
			h.count = max(1, min(h.count, left))
		}
		return h
	}
	h.length = min(int64(padded(int(h.slot.head)+int(h.slot.size))), limit-off)
	return h
}

// resync finds the next place that checks out, or that the index knows.
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

// compareIndex holds the index against the records. In a segment with other damage it was used to find that.
func (x *inspection) compareIndex() {
	if len(x.holes) == 0 && !bytes.Equal(x.slots, x.index) {
		x.structural(x.size-footerSize-int64(len(x.index)), int64(len(x.index)), "index", errors.New("it does not tell what is there"))
	}
	x.index = nil
}

// unseal forgives the tail an index that is not whole: a crash may have come before it was synced, and it says nothing
// that the records do not.
func (x *inspection) unseal() {
	x.holes = slices.DeleteFunc(x.holes, func(h *hole) bool { return h.what == "index" && !x.sealed })
}

// slotOf is the slot of a record whose payload is perhaps not there.
func slotOf(off uint32, r *record) slot {
	return slot{
		off: off, size: r.length, head: uint16(r.headLen()), kind: r.kind, flags: r.flags & flagMask, count: r.count, log: r.log, seq: r.seq,
		time: r.time, keyed: r.key != "",
	}
}

// begun tells whether anything was ever written to the segment.
func (x *inspection) begun() bool { return x.group > 0 || x.records > 0 || x.end > dataStart }
