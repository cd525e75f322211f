package journal

import (
	"weir/internal/engine"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
)

const (
	// maxGroup is the size at which a group is full. Without this limit, the first of many large
	// appends would wait until the last one was written.
	maxGroup = 16 << 20
	// mostOps is the number of ops at which a group is full.
	mostOps = 4096
)

// group is a list of ops whose records are made durable by one write and one sync.
type group struct {
	j   *Journal
	seg *segment

	full *segment // the segment before seg, if this group is the first one in seg

	segments.GroupBuffer
	live int64 // bytes of the records of this group (entries and trims) that are still needed when the group is applied to memory

	ops     []op
	commits []commit                   // one for each log with admitted entries
	docs    map[string]*index.Document // documents changed by this group; a nil value means deleted
	before  *group                     // the previous group; its document changes may not be in memory yet
}

// commit is the number of admitted entries to report to a judge once the group is durable.
type commit struct {
	of      *handle
	judge   engine.Judge
	entries int // at least 1
}

// begin empties the group and keeps its buffers for reuse.
func (g *group) begin(seg *segment) {
	g.GroupBuffer.Begin()
	clear(g.ops)
	clear(g.commits)
	if len(g.docs) > 0 {
		clear(g.docs)
	}
	*g = group{j: g.j, seg: seg, GroupBuffer: g.GroupBuffer, ops: g.ops[:0], commits: g.commits[:0], docs: g.docs}
}

// add appends a record to the group. It returns the position that the record will have.
func (g *group) add(r *segments.Record) index.Place {
	return index.Place{Segment: uint32(g.seg.Number), Off: g.GroupBuffer.Add(&g.seg.Segment, r)}
}

// document returns the state of a document after all ops that were staged so far: the state left by
// this group or by the previous one if either changed the document, otherwise the state in memory.
func (g *group) document(key string) *index.Document {
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

func (g *group) setDocument(key string, d *index.Document) {
	if g.docs == nil {
		g.docs = make(map[string]*index.Document)
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
