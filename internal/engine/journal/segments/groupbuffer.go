package segments

const (
	// largePayload is the size from which a payload is written directly from the caller's slice. A
	// smaller payload is copied next to the head of its record (the part before the payload), which
	// is cheaper than one more buffer in the write.
	largePayload = 32 << 10
	// keepBuffer is the largest buffer that is kept for the next group.
	keepBuffer = 4 << 20
)

// GroupBuffer collects the records of a group and encodes them for one write.
type GroupBuffer struct {
	Off     int64  // offset in the segment
	buf     []byte // the frame, heads and small payloads
	pieces  []piece
	Length  int // bytes so far, including the frame (the head of the group)
	Records int
	bond    uint32 // checksum over the checksums of all records so far
}

// piece is a part of the group's content: a range of the buffer, or a large payload that was not
// copied.
type piece struct {
	from, to int
	large    []byte
}

// Begin empties the group and keeps its buffers for reuse.
func (g *GroupBuffer) Begin() {
	if cap(g.buf) > keepBuffer {
		g.buf = nil
	}
	clear(g.pieces)
	*g = GroupBuffer{Length: FrameSize, buf: append(g.buf[:0], make([]byte, FrameSize)...), pieces: g.pieces[:0]}
}

// Add appends a record to the group and adds the record's slot to the index of the segment. It
// returns the offset that the record will have in the segment. A payload of largePayload bytes or
// more must not change until the group has been written.
func (g *GroupBuffer) Add(s *Segment, r *Record) (off uint32) {
	if g.Records == 0 {
		g.Off = s.End
		s.End += FrameSize
	}
	off = uint32(s.End)
	s.End += int64(r.Size())
	s.Slots = appendSlot(s.Slots, off, r)
	s.keys.add(off, r)
	s.Count++
	g.Records++
	g.Length += r.Size()
	from := len(g.buf)
	g.buf = r.appendHead(g.buf, s.Seed)
	g.bond = bind(g.bond, g.buf[from:])
	if len(r.Payload) >= largePayload {
		g.piece(from, len(g.buf), r.Payload)
		from = len(g.buf)
	} else {
		g.buf = append(g.buf, r.Payload...)
	}
	var zeros [align]byte
	unpadded := r.HeadLen() + len(r.Payload)
	g.buf = append(g.buf, zeros[:r.Size()-unpadded]...)
	g.piece(from, len(g.buf), nil)
	return off
}

// piece adds a range of the buffer, followed by a large payload if there is one. Adjacent ranges
// are merged.
func (g *GroupBuffer) piece(from, to int, large []byte) {
	if n := len(g.pieces); n > 0 && g.pieces[n-1].large == nil && g.pieces[n-1].to == from {
		g.pieces[n-1].to = to
	} else if n == 0 && from == FrameSize {
		g.pieces = append(g.pieces, piece{from: 0, to: to})
	} else if to > from {
		g.pieces = append(g.pieces, piece{from: from, to: to})
	}
	if large != nil {
		g.pieces = append(g.pieces, piece{large: large})
	}
}

// Buffers completes the frame with the group number, and returns the content of the group, ready to
// be written.
func (g *GroupBuffer) Buffers(seed uint32, number uint64) [][]byte {
	encodeFrame(g.buf, seed, frame{length: g.Length, group: number, bond: g.bond})
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
