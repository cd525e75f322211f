package journal

import (
	"weir/internal/engine"
)

const (
	// maxGroup is the size at which a group is full. Without this limit, the first of many large
	// appends would wait until the last one was written.
	maxGroup = 16 << 20
	// mostOps is the number of ops at which a group is full.
	mostOps = 4096
	// largePayload is the size from which a payload is written directly from the caller's slice. A
	// smaller payload is copied next to the head of its record (the part before the payload), which
	// is cheaper than one more buffer in the write.
	largePayload = 32 << 10
	// keepBuffer is the largest buffer that is kept for the next group.
	keepBuffer = 4 << 20
)

// group is a list of ops whose records are made durable by one write and one sync.
type group struct {
	j   *Journal
	seg *segment

	off  int64    // offset in the segment
	full *segment // the segment before seg, if this group is the first one in seg

	buf     []byte // the frame, heads and small payloads
	pieces  []piece
	length  int // bytes so far, including the frame (the head of the group)
	records int
	bond    uint32 // checksum over the checksums of all records so far
	live    int64  // bytes of the appended entries and trims that are still needed; counted while the group is settled (applied to memory)

	ops     []op
	commits []commit             // one for each log with admitted entries
	docs    map[string]*document // documents changed by this group; a nil value means deleted
	before  *group               // the previous group; its document changes may not be in memory yet
}

// commit is the number of admitted entries to report to a judge once the group is durable.
type commit struct {
	of      *handle
	judge   engine.Judge
	entries int // at least 1
}

// piece is a part of the group's content: a range of the buffer, or a large payload that was not
// copied.
type piece struct {
	from, to int
	large    []byte
}

// begin empties the group and keeps its buffers for reuse.
func (g *group) begin(seg *segment) {
	if cap(g.buf) > keepBuffer {
		g.buf = nil
	}
	clear(g.pieces)
	clear(g.ops)
	clear(g.commits)
	*g = group{
		j: g.j, seg: seg, length: frameSize, buf: append(g.buf[:0], make([]byte, frameSize)...),
		pieces: g.pieces[:0], ops: g.ops[:0], commits: g.commits[:0],
	}
}

// add appends a record to the group and adds the record's slot to the segment's index. It returns
// the position that the record will have. A payload of largePayload bytes or more must not change
// until the group was written.
func (g *group) add(r *record) place {
	if g.records == 0 {
		g.off = g.seg.end
		g.seg.end += frameSize
	}
	off := uint32(g.seg.end)
	g.seg.end += int64(r.size())
	g.seg.slots = appendSlot(g.seg.slots, off, r)
	g.seg.keys.add(off, r)
	g.seg.count++
	g.records++
	g.length += r.size()
	from := len(g.buf)
	g.buf = r.appendHead(g.buf, g.seg.seed)
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
	return place{uint32(g.seg.number), off}
}

// piece adds a range of the buffer, followed by a large payload if there is one. Adjacent ranges
// are merged.
func (g *group) piece(from, to int, large []byte) {
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
func (g *group) buffers(number uint64) [][]byte {
	encodeFrame(g.buf, g.seg.seed, frame{length: g.length, group: number, bond: g.bond})
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

// document returns the state of a document after all ops that were staged so far: the state left by
// this group or by the previous one if either changed the document, otherwise the state in memory.
func (g *group) document(key string) *document {
	if d, ok := g.docs[key]; ok {
		return d
	}
	if g.before != nil {
		if d, ok := g.before.docs[key]; ok {
			return d
		}
	}
	return g.j.store.document(key)
}

func (g *group) setDocument(key string, d *document) {
	if g.docs == nil {
		g.docs = make(map[string]*document)
	}
	g.docs[key] = d
}

// admit asks the log's judge about an entry. It counts each admitted entry, so that the judge gets
// its Commit call once the group is durable.
func (g *group) admit(h *handle, e *engine.Entry) bool {
	if !h.judge.Admit(e) {
		return false
	}
	if h.commit >= len(g.commits) || g.commits[h.commit].of != h {
		h.commit = len(g.commits)
		g.commits = append(g.commits, commit{of: h, judge: h.judge})
	}
	g.commits[h.commit].entries++
	return true
}
