package journal

import (
	"weir/internal/engine"
)

const (
	// maxGroup is where a group is full, so that the first of many large appends need not wait for the last.
	maxGroup = 16 << 20
	// largePayload is written from where it lies; a smaller one is copied next to its head, which is cheaper.
	largePayload = 32 << 10
	// keepBuffer is how much of the buffer outlives a group.
	keepBuffer = 4 << 20
)

// group is what one write and one sync make durable.
type group struct {
	j   *Journal
	seg *segment

	off  int64    // where it goes in the segment
	seal *segment // full, and to be sealed first

	buf     []byte // the frame, heads and small payloads
	pieces  []piece
	length  int // bytes so far, the frame included
	records int
	live    int64 // bytes that are needed, counted while the group is settled

	ops     []op
	commits []commit             // logs with something admitted
	docs    map[string]*document // changed by ops of this group; nil: deleted
	before  *group               // the one before, whose changes of documents may not be in memory yet
}

// commit is what a judge is to hear of when the group is durable.
type commit struct {
	log     *log
	judge   engine.Judge
	entries int
}

// piece is a part of the group: a range of the buffer, or a payload that stays where it is.
type piece struct {
	from, to int
	large    []byte
}

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

// add puts a record into the group and its slot into the segment's index, and returns where it will be.
func (g *group) add(r *record) place {
	if g.records == 0 {
		g.off = g.seg.end
		g.seg.end += frameSize
	}
	off := uint32(g.seg.end)
	g.seg.end += int64(r.size())
	g.seg.slots = appendSlot(g.seg.slots, off, r)
	g.seg.count++
	g.records++
	g.length += r.size()
	from := len(g.buf)
	g.buf = r.appendHead(g.buf, g.seg.seed)
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

// piece notes a range of the buffer, joined to the one before it where they touch, and a large payload after it.
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

// buffers is the group as it goes to the file.
func (g *group) buffers(number uint64) [][]byte {
	encodeFrame(g.buf, g.seg.seed, g.length, g.records, number)
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

// document is what the key holds at this place in the order: as changed by the group so far, else as settled.
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

// admit asks the log's judge, and notes what it is to hear when the group is durable.
func (g *group) admit(l *log, e *engine.Entry) bool {
	if !l.judge.Admit(e) {
		return false
	}
	if l.commit >= len(g.commits) || g.commits[l.commit].log != l {
		l.commit = len(g.commits)
		g.commits = append(g.commits, commit{log: l, judge: l.judge})
	}
	g.commits[l.commit].entries++
	return true
}

// tell tells the judge, once.
func (c *commit) tell() {
	if c.entries > 0 {
		c.judge.Commit(c.entries)
		c.entries = 0
	}
}

// commitNow tells the judge of one log before the others.
func (g *group) commitNow(l *log) {
	for i := range g.commits {
		if g.commits[i].log == l {
			g.commits[i].tell()
		}
	}
}
