package journal

import (
	"sync/atomic"

	"weir/internal/engine/journal/segments"
)

// segment is a segment that is part of the journal, or is being prepared for it.
type segment struct {
	segments.Segment

	live      atomic.Int64   // bytes of records that are still needed
	refs      atomic.Int32   // number of readers, plus one for the journal itself
	onRelease func(*segment) // called when refs reaches 0

	next    uint64 // number of the group after the last one, once the segment is full
	leaving bool   // used by the committer only: later manifests (lists of the journal's segments) leave this segment out

	blank   atomic.Int64  // offset from which the preparer still has to fill the file with zeros; 0 if nothing is left to fill
	filling chan struct{} // a lock that keeps the preparer and the writer from writing to a blank file at once; a channel, because a mutex is not fair

	stuck  bool // used by the reclaimer only: a record is damaged, so the segment is not emptied
	moving bool // used by the reclaimer only: entries were copied to a cold segment that is not adopted yet (see cold.go)
}

// newSegment returns a segment that the journal holds. The caller sets its file.
func (j *Journal) newSegment(number uint64) *segment {
	s := &segment{onRelease: j.prepare.give}
	s.Init(nil, j.dir.Salt, number, j.dir.Size)
	s.refs.Store(1)
	return s
}

// acquire keeps the file from being recycled or removed until the method release is called. The
// segment must be reachable through an index, or already be held.
func (s *segment) acquire() { s.refs.Add(1) }

// release undoes one acquire.
func (s *segment) release() {
	if s.refs.Add(-1) == 0 {
		s.onRelease(s)
	}
}
