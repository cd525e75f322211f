package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"weir/internal/engine"
)

// committer is the one goroutine that writes to the journal.
type committer struct {
	j       *Journal
	active  *segment
	number  uint64 // of the next group
	group   group
	slots   []byte // of the segment before, to be used again
	marked  int64  // end of the active segment at the last watermark
	reserve int64  // of a segment, kept for deleting on a full disk
	next    uint64 // revision of the next change of a document
	done    chan struct{}
	settled chan []op // groups to tell of
	told    chan []op // and their slices, to be used again
}

func (c *committer) init(j *Journal) {
	c.j, c.group.j = j, j
	c.reserve = min(256<<10, j.size/16)
	c.number, c.next = 1, 1
	c.done = make(chan struct{})
	c.settled, c.told = make(chan []op, 1), make(chan []op, 2)
	c.told <- nil
}

func (c *committer) run() {
	defer close(c.done)
	defer close(c.settled)
	for {
		quiet := idle
		if c.active == nil || c.active.end == c.marked {
			quiet = 0 // nothing to mark: wait as long as it takes
		}
		ops, open := c.j.queue.take(quiet)
		if !open {
			c.watermark(true)
			return
		}
		if len(ops) == 0 {
			c.watermark(false)
			continue
		}
		c.process(ops)
		c.j.queue.give(ops)
	}
}

// watermark notes how far the active segment is synced, so that damage to the newest records cannot pass for a write
// that a crash cut short. It is itself synced only when the journal is closed: a lost one costs evidence, not data.
func (c *committer) watermark(sync bool) {
	if c.j.failed() != nil || c.active == nil {
		return
	}
	err := c.active.file.WriteAt(watermarkOffset, encodeWatermark(c.active.seed, c.active.end, c.number))
	if err == nil && sync {
		err = c.active.file.SyncData()
	}
	if err != nil {
		c.j.fail(fmt.Errorf("mark %s: %w", c.active.name, err))
	}
	c.marked = c.active.end
}

// process commits ops in as many groups as they need.
func (c *committer) process(ops []op) {
	for len(ops) > 0 {
		err := c.j.failed()
		if err == nil {
			c.group.begin(c.active)
			ops = c.fill(ops)
			err = c.write()
		}
		if err != nil {
			for _, o := range c.group.ops {
				o.finish(err)
			}
			for _, o := range ops {
				o.finish(err)
			}
			c.group.ops = c.group.ops[:0]
			return
		}
		c.settle()
	}
}

// fill stages ops until the group or the segment is full, and returns the rest. An op for which there is no space on
// the disk is finished here.
func (c *committer) fill(ops []op) []op {
	g := &c.group
	for len(ops) > 0 {
		o := ops[0]
		bytes, records := o.bound()
		reserve := c.reserve
		if o.deletes() {
			reserve = 0
		}
		if g.seg == nil || !g.seg.fits(c.j.size, g.length+bytes, records, reserve) {
			if g.records > 0 {
				return ops
			}
			if err := c.rotate(); err != nil {
				if c.j.failed() != nil {
					return ops
				}
				o.finish(err)
				ops = ops[1:]
			}
			continue
		}
		o.stage(g)
		g.ops, ops = append(g.ops, o), ops[1:]
		if g.length >= maxGroup {
			break
		}
	}
	return ops
}

// rotate seals the active segment and goes on in the next one, which begins with the manifest.
func (c *committer) rotate() error {
	next, err := c.j.prepare.take()
	if err != nil {
		return err
	}
	if c.active != nil && !c.active.sealed.Load() {
		c.slots = c.active.slots
		if err := c.active.seal(c.j.size, c.number); err != nil {
			return c.j.fail(err)
		}
	}
	c.j.store.addSegment(next)
	next.end, next.slots, next.count = dataStart, c.slots[:0], 0
	c.active, c.marked = next, 0
	ops := c.group.ops // refused so far: they have no records
	c.group.ops = nil
	c.group.begin(next)
	c.group.ops = ops
	c.manifest(&c.group, 0)
	c.j.reclaim.wake() // the sealed segment may be sparse already
	return nil
}

// manifest adds the list of the journal's segments, but for one that is to be given up.
func (c *committer) manifest(g *group, without uint64) {
	var payload []byte
	for _, n := range c.j.store.segmentNumbers() {
		if n != without {
			payload = binary.LittleEndian.AppendUint64(payload, n)
		}
	}
	g.add(&record{kind: kindManifest, seq: c.next, payload: payload, payloadSum: sum(0, payload)})
}

// manifestBound is the most that a manifest takes.
func (c *committer) manifestBound() int { return padded(recordSize + 8*(c.j.store.segmentCount()+1)) }

func (c *committer) write() error {
	g := &c.group
	if g.records == 0 {
		return c.j.failed()
	}
	start := time.Now()
	if err := g.seg.file.WriteAt(g.seg.end, g.buffers(c.number)...); err != nil {
		return c.j.fail(fmt.Errorf("write %s: %w", g.seg.name, err))
	}
	if err := g.seg.file.SyncData(); err != nil {
		return c.j.fail(fmt.Errorf("sync %s: %w", g.seg.name, err))
	}
	c.j.counts.group(g.records, g.length, time.Since(start))
	g.seg.end += int64(g.length)
	c.number++
	return nil
}

// settle lets memory catch up with the disk, tells the judges, then those who wait.
func (c *committer) settle() {
	g := &c.group
	for _, o := range g.ops {
		o.settle()
	}
	if g.live > 0 {
		g.seg.live.Add(g.live)
	}
	for _, l := range g.logs {
		l.admitted = false
		if l.judge != nil { // else its document was deleted in this very group
			l.judge.Commit()
		}
	}
	c.tell(g.ops)
	g.ops = <-c.told
}

// tell wakes whoever waits for ops, beside the committer: while the disk works on the next group, those who are woken
// make the one after it.
func (c *committer) tell(ops []op) { c.settled <- ops }

func (c *committer) teller() {
	for ops := range c.settled {
		for _, o := range ops {
			o.finish(nil)
		}
		clear(ops)
		c.told <- ops[:0]
	}
}

// freeOp gives up a segment that holds nothing any more: it is gone once a manifest without it is durable.
type freeOp struct {
	c    *committer
	seg  *segment
	done chan error
}

func (o *freeOp) bound() (int, int) { return o.c.manifestBound(), 1 }
func (o *freeOp) deletes() bool     { return true }
func (o *freeOp) stage(g *group)    { o.c.manifest(g, o.seg.number) }
func (o *freeOp) settle()           { o.c.j.store.removeSegment(o.seg) }
func (o *freeOp) finish(err error)  { o.done <- err }

// errFull makes a shortage the engine's error.
func errFull(err error) error {
	if errors.Is(err, engine.ErrFull) {
		return err
	}
	return fmt.Errorf("%w: %w", engine.ErrFull, err)
}
