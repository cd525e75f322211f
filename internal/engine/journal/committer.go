package journal

import (
	"encoding/binary"
	"errors"
	"fmt"

	"weir/internal/engine"
	"weir/internal/engine/journal/segments"
)

// committer is the goroutine that decides the order of all operations. It takes ops from the queue,
// stages them one after another (adds their records to a group), and hands groups to the writer. It
// stages the next group while the disk works on the current one, so a group holds everything that
// arrived in the meantime.
type committer struct {
	j       *Journal
	active  *segment
	group   *group
	reserve int64  // bytes of a segment that new entries and copies leave free, for deletions on a full disk
	room    int64  // bytes of a segment that are kept free for two manifests (lists of the segments); freeing a segment writes one
	next    uint64 // revision of the next document change or mark (the record of a trim)

	full    chan *group // to the writer
	empty   chan *group // back from the writer
	odd     bool        // the method offer was called an odd number of times
	pending *group      // the group that the writer received last; its changes may not be in memory yet
}

func (c *committer) init(j *Journal) {
	c.j = j
	c.next = 1
	c.full, c.empty = make(chan *group), make(chan *group, 2)
	c.empty <- &group{j: j}
	c.empty <- &group{j: j}
}

// run collects ops into the current group until the writer takes it. While the writer is busy, new
// ops join the group. run ends when the queue is closed and empty.
func (c *committer) run() {
	defer close(c.full)
	for {
		if len(c.group.ops) == 0 {
			if !c.j.queue.wait() {
				return
			}
		} else if c.offer() {
			continue
		}
		ops := c.j.queue.grab()
		for rest := ops; len(rest) > 0; {
			if rest = c.stage(rest, true); len(rest) > 0 {
				c.hand()
			}
		}
		c.j.queue.give(ops)
	}
}

// offer hands the group to the writer, and returns false if new ops came first. If the writer is
// ready and new ops are waiting too, each of them comes first in turn. A plain select would leave
// that to chance, and no simulation could be repeated.
func (c *committer) offer() bool {
	if c.odd = !c.odd; c.odd {
		select {
		case <-c.j.queue.signal:
			return false
		default:
		}
	} else {
		select {
		case c.full <- c.group:
			c.handed()
			return true
		default:
		}
	}
	select {
	case c.full <- c.group:
		c.handed()
		return true
	case <-c.j.queue.signal: // the writer is still busy
		return false
	}
}

// begin waits until the writer has returned a group, empties it and makes it the current group.
func (c *committer) begin() {
	g := <-c.empty
	g.begin(c.active)
	g.before = c.pending
	c.group, c.room = g, int64(2*(segments.FrameSize+c.manifestSize()+segments.SlotSize))
}

// hand waits until the writer is free and hands it the group.
func (c *committer) hand() {
	c.full <- c.group
	c.handed()
}

func (c *committer) handed() {
	c.pending = c.group
	c.begin()
}

// stage stages ops until the group or the segment is full, and returns the remaining ops. If the
// segment is full, the group is empty and the parameter rotate is true, stage begins the next
// segment. An op that finds no space on the disk is finished here with an error. If the journal is
// read-only or the writer is waiting for space, every op that writes is finished with an error.
func (c *committer) stage(ops []op, rotate bool) []op {
	for len(ops) > 0 {
		o, g := ops[0], c.group
		if bytes, records := o.bound(); records > 0 {
			if err := c.j.refusing(); err != nil {
				o.finish(err)
				ops = ops[1:]
				continue
			}
			if g.seg == nil || !g.seg.Fits(bytes, records, c.spare(o.class())) {
				if g.Records > 0 || !rotate {
					return ops
				}
				err := c.rotate()
				if err == nil && !g.seg.Fits(bytes, records, 0) {
					err = fmt.Errorf("%d bytes do not fit in a segment", bytes)
				}
				if err != nil {
					o.finish(err)
					ops = ops[1:]
				}
				continue
			}
		}
		o.stage(g)
		if g.ops, ops = append(g.ops, o), ops[1:]; len(g.ops) == 1 {
			c.j.queue.count()
		}
		if g.Length >= maxGroup || len(g.ops) >= mostOps {
			break
		}
	}
	return ops
}

// rotate continues in the next segment, which begins with a manifest.
func (c *committer) rotate() error {
	next, err := c.j.prepare.take()
	if err != nil {
		return err
	}
	c.group.full = c.active
	c.j.store.addSegment(next)
	used := 0
	if c.active != nil {
		used = len(c.active.Slots)
	}
	next.End, next.Slots, next.Count = segments.DataStart, c.j.spareSlots(used), 0
	c.active, c.group.seg = next, next
	c.manifest(c.group)
	return nil
}

// spare returns how many bytes of a segment an op of this class must leave free. Freeing a segment
// writes a manifest: without space for one, the journal could never free anything on a full disk.
// While the disk has no space for another segment, new entries and documents must leave half of the
// current segment free. The reclaimer needs that half for copies of the few needed records of other
// segments, so that it can free these segments.
func (c *committer) spare(of class) int64 {
	if of == freeing {
		return 0
	}
	room := c.room
	switch {
	case of == deleting:
	case of == growing && c.j.prepare.tight.Load():
		room += c.j.dir.Size / 2
	default:
		room += c.reserve
	}
	return room
}

func (c *committer) manifestSize() int {
	return segments.Padded(segments.RecordSize + 8*(c.j.store.segmentCount()+1))
}

// manifest adds the list of the journal's segments to the group.
func (c *committer) manifest(g *group) {
	var payload []byte
	for _, s := range c.j.store.allSegments() {
		if !s.leaving {
			payload = binary.LittleEndian.AppendUint64(payload, s.Number)
		}
	}
	g.add(&segments.Record{Kind: segments.KindManifest, Seq: c.next, Payload: payload, PayloadSum: segments.Sum(0, payload)})
}

// freeOp frees a segment without live records. The segment is no longer part of the journal once a
// manifest without it is durable.
type freeOp struct {
	c    *committer
	seg  *segment
	done chan error
}

func (o *freeOp) bound() (int, int) { return o.c.manifestSize(), 1 }
func (o *freeOp) class() class      { return freeing }

// stage leaves the segment out of this manifest and all later ones.
func (o *freeOp) stage(g *group) {
	o.seg.leaving = true
	o.c.manifest(g)
}

func (o *freeOp) finish(err error) { o.done <- err }

// settle removes the segment from memory, because the manifest without the segment is now durable.
// The file is recycled or removed once its last reader has released it.
func (o *freeOp) settle(*group) {
	o.c.j.store.removeSegment(o.seg)
	o.c.j.counts.freed.Add(1)
}

// errFull wraps the error of a full disk in engine.ErrFull.
func errFull(err error) error {
	if errors.Is(err, engine.ErrFull) {
		return err
	}
	return fmt.Errorf("%w: %w", engine.ErrFull, err)
}
