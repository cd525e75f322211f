package journal

const (
	// largePayload is the size from which a payload is written directly from the caller's slice. A
	// smaller payload is copied next to the head of its record (the part before the payload), which
	// is cheaper than one more buffer in the write.
	largePayload = 32 << 10
	// keepBuffer is the largest buffer that is kept for the next group.
	keepBuffer = 4 << 20
)

// groupBuffer collects the records of a group and encodes them for one write.
type groupBuffer struct {
	off     int64  // offset in the segment
	buf     []byte // the frame, heads and small payloads
	pieces  []piece
	length  int // bytes so far, including the frame (the head of the group)
	records int
	bond    uint32 // checksum over the checksums of all records so far
}

// piece is a part of the group's content: a range of the buffer, or a large payload that was not
// copied.
type piece struct {
	from, to int
	large    []byte
}

// begin empties the group and keeps its buffers for reuse.
func (g *groupBuffer) begin() {
	if cap(g.buf) > keepBuffer {
		g.buf = nil
	}
	clear(g.pieces)
	*g = groupBuffer{length: frameSize, buf: append(g.buf[:0], make([]byte, frameSize)...), pieces: g.pieces[:0]}
}

// add appends a record to the group and adds the record's slot to the index of the segment. It
// returns the offset that the record will have in the segment. A payload of largePayload bytes or more must not change
// until the group was written.
func (g *groupBuffer) add(s *storedSegment, r *record) (off uint32) {
	if g.records == 0 {
		g.off = s.end
		s.end += frameSize
	}
	off = uint32(s.end)
	s.end += int64(r.size())
	s.slots = appendSlot(s.slots, off, r)
	s.keys.add(off, r)
	s.count++
	g.records++
	g.length += r.size()
	from := len(g.buf)
	g.buf = r.appendHead(g.buf, s.seed)
	g.bond = bind(g.bond, g.buf[from:])
	if len(r.payload) >= largePayload {
		g.piece(from, len(g.buf), r.payload)
		from = len(g.buf)
	} else {
		g.buf = append(g.buf, r.payload...)
	}
	var zeros [align]byte
	unpadded := r.headLen() + len(r.payload)
	g.buf = append(g.buf, zeros[:r.size()-unpadded]...)
	g.piece(from, len(g.buf), nil)
	return off
}

// piece adds a range of the buffer, followed by a large payload if there is one. Adjacent ranges
// are merged.
func (g *groupBuffer) piece(from, to int, large []byte) {
	if n := len(g.pieces); n > 0 && g.pieces[n-1].large == nil && g.pieces[n-1].to == from {
		g.pieces[n-1].to = to
	} else if n == 0 && from == frameSize {
		g.pieces = append(g.pieces, piece{from: 0, to: to})
	} else if to > from {
		g.pieces = append(g.pieces, piece{from: from, to: to})
	}
	if large != nil {
		g.pieces = append(g.pieces, piece{large: large})
	}
}

// buffers completes the frame with the group number, and returns the content of the group, ready to
// be written.
func (g *groupBuffer) buffers(seed uint32, number uint64) [][]byte {
	encodeFrame(g.buf, seed, frame{length: g.length, group: number, bond: g.bond})
	bufs := make([][]byte, 0, len(g.pieces))
	for _, p := range g.pieces {
		if p.large != nil {
			bufs = append(bufs, p.large)
		} else {
			bufs = append(bufs, g.buf[p.from:p.to])
		}
	}
	return bufs
}
