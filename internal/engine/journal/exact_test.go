package journal

import (
	"fmt"

	"weir/internal/engine"
	"weir/internal/engine/journal/index"
)

// exact checks that each segment counts its live bytes (the bytes of records that are still needed)
// correctly. It computes them again from the state in memory.
func (j *Journal) exact() error {
	o := &exactOp{j: j, done: make(chan error, 1)}
	j.do(o)
	if err := <-o.done; err != nil {
		return err
	}
	return o.err
}

// exactOp makes the comparison for the method exact. It does so in settle, which runs in the
// writer's goroutine, so that no other op changes the state in memory during the comparison.
type exactOp struct {
	j    *Journal
	err  error
	done chan error
}

func (o *exactOp) bound() (int, int) { return 0, 0 }
func (o *exactOp) class() class      { return freeing }
func (o *exactOp) stage(*group)      {}
func (o *exactOp) finish(err error)  { o.done <- err }

func (o *exactOp) settle(g *group) {
	r := &o.j.reclaim
	r.counting.Lock()
	defer r.counting.Unlock()
	r.mu.Lock()
	waiting := r.forgotten
	r.mu.Unlock()
	want := map[uint32]int64{}
	count := func(x *index.Entries, mark index.Extent) {
		x.Ascend(0, func(it index.Item) bool { want[it.Place.Segment] += it.Bytes(); return true })
		if mark.Bytes > 0 {
			want[mark.Segment] += mark.Bytes
		}
	}
	for i := range waiting {
		count(&waiting[i].items, waiting[i].mark)
	}
	s := &o.j.store
	s.mu.RLock() // needed even here: the committer may add segments at any time
	defer s.mu.RUnlock()
	s.docs.Scan(func(_ string, d *index.Document) bool {
		want[d.At.Segment] += d.At.Bytes
		if l := s.logs.Get(engine.LogID(d.Created)); l != nil {
			l.mu.RLock()
			at := l.lastMark().at
			l.mu.RUnlock()
			count(&l.index, at)
		}
		return true
	})
	s.deleted.Scan(func(_ string, t *tombstone) bool {
		want[t.at.Segment] += t.at.Bytes
		return true
	})
	if g.seg != nil {
		// The bytes of this group are not counted yet. The writer adds them to the count after all
		// ops of the group are settled.
		want[uint32(g.seg.Number)] -= g.live
	}
	for n, bytes := range want {
		seg := s.segments[n]
		if seg == nil && bytes != 0 {
			o.err = fmt.Errorf("segment %d was freed, but %d of its bytes are still needed", n, bytes)
		} else if seg != nil && seg.live.Load() != bytes {
			o.err = fmt.Errorf("segment %d counts %d live bytes, want %d", n, seg.live.Load(), bytes)
		}
	}
	for n, seg := range s.segments {
		if _, ok := want[n]; !ok && seg.live.Load() != 0 {
			o.err = fmt.Errorf("segment %d counts %d live bytes, want 0", n, seg.live.Load())
		}
	}
}
