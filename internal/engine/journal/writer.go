package journal

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"weir/internal/disk"
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/segments"
	"weir/internal/shrink"
)

// writer is the goroutine that makes groups durable, applies them to memory and notifies the
// judges. A group is the set of records that one write and one sync make durable. A second
// goroutine (tell) wakes the waiting callers, because waking hundreds of goroutines takes as long
// as a sync.
type writer struct {
	j       *Journal
	active  *segment      // segment of the last group
	synced  int64         // everything in active below this offset is durable
	marked  int64         // value of synced in the last watermark (see prove)
	proved  bool          // the last watermark and the file "end" are synced
	when    time.Time     // time of the last watermark
	next    uint64        // number of the next group
	sealing chan struct{} // closed when the segment before active is sealed; nil until the writer has filled a segment
	average int           // moving average of the bytes per group
	bulky   atomic.Bool   // groups are so large on average that filling segments with zeros is not worthwhile
	took    time.Duration // moving average of the time that a write and its sync take
	idling  *time.Timer   // fires when no group was written for a while
	settled chan []op     // ops whose effects are in memory and whose callers must be woken
	reuse   chan []op     // emptied slices from settled, for reuse
}

func (w *writer) init(j *Journal) {
	w.j, w.next, w.took = j, 1, j.opts.QuickDisk
	w.settled, w.reuse = make(chan []op, 1), make(chan []op, 4)
}

// run writes groups until the committer ends. It records how far the journal is synced: every 100
// ms under load, after 100 ms without a group, and at the end.
func (w *writer) run() {
	defer close(w.settled)
	defer w.idling.Stop()
	for {
		select {
		case g, open := <-w.j.commit.full:
			if !open {
				w.prove(true)
				w.awaitSeal()
				return
			}
			w.j.queue.count() // Flush must not begin before proveSome has returned
			w.commit(g)
			w.proveSome()
			w.idling.Reset(idle)
			w.j.queue.finished()
		case <-w.idling.C:
			if w.j.queue.begin() { // otherwise Flush is at work, and sets the timer again
				w.prove(true)
				w.j.queue.finished()
			}
		}
	}
}

// proveSome calls prove under load, if the last watermark is old.
func (w *writer) proveSome() {
	if time.Since(w.when) >= idle {
		w.prove(false)
	}
}

// prove records how far the log is synced, in the watermark of the active segment and in the file
// "end". Without the watermark, damage to the newest groups would look like a write that a crash
// cut short. Without "end", a journal that has lost the whole segment would look undamaged. Losing
// these records loses no data, so under load they are written without a sync.
func (w *writer) prove(sync bool) {
	if w.j.failed() != nil || w.active == nil {
		return
	}
	var err error
	if w.synced != w.marked {
		if err = w.active.Mark(w.synced, w.next); err == nil {
			err = w.j.dir.WriteEnd(directory.Ending{Segment: w.active.Number, Offset: w.synced, Group: w.next})
		}
		if disk.IsShortage(err) {
			return // no space: a later call records the position
		}
		w.marked, w.proved, w.when = w.synced, false, time.Now()
	}
	if err == nil && sync && !w.proved {
		if err = w.active.File.SyncData(); err == nil {
			err = w.settleEnd()
		}
		w.proved = true
	}
	if err != nil {
		w.j.fail(fmt.Errorf("record how far %s is synced: %w", w.active.Name, err))
	}
}

// settleEnd syncs the file "end". It then writes the position to the other slot too and syncs again,
// so that one damaged slot does not hide the loss of the newest groups. If there is no space, the
// other slot stays as it is.
func (w *writer) settleEnd() error {
	d := &w.j.dir
	if err := d.SyncEnd(); err != nil {
		return err
	}
	if err := d.WriteEnd(d.End.Latest); disk.IsShortage(err) {
		return nil
	} else if err != nil {
		return err
	}
	return d.SyncEnd()
}

// Segments are filled with zeros in advance, because a sync takes longer on blocks that were never
// written. For large groups the difference is small, so segments are not filled if the average group
// has at least bulk bytes.
const bulk = 256 << 10

// turn moves on from a full segment to the next one. Before the next segment gets its first group,
// turn writes the final watermark of the full segment, names the next segment in the file "end",
// and syncs both. A segment with a higher number than the one in "end" has therefore never held a
// group. Another goroutine seals the full segment: its index takes tens of milliseconds to write,
// and no group has to wait for that. At most two segments are unsealed, so a start after a crash
// reads the groups of at most two segments.
func (w *writer) turn(full, next *segment) error {
	w.awaitSeal()
	if err := w.j.failed(); err != nil {
		return err
	}
	if full != nil {
		full.claim(w.j.dir.Size)() // the preparer must not write where the index will be
	}
	w.marked, w.proved = 0, false
	err := w.put(func() error {
		if full != nil {
			if err := full.Mark(full.End, w.next|segments.FinalMark); err != nil {
				return err
			}
		}
		return w.j.dir.WriteEnd(directory.Ending{Segment: next.Number, Offset: segments.DataStart, Group: w.next})
	})
	if err != nil {
		return err
	}
	if full == nil {
		return w.j.dir.SyncEnd()
	}
	synced := make(chan error, 1)
	go func() { synced <- full.File.SyncData() }() // the two syncs run at the same time, and so take as long as one
	if err := errors.Join(w.j.dir.SyncEnd(), <-synced); err != nil {
		return fmt.Errorf("finish %s: %w", full.Name, err)
	}
	full.next, w.sealing = w.next, make(chan struct{})
	w.j.start(func() { w.seal(full) })
	return nil
}

// seal seals a full segment while the writer already writes to the next one.
func (w *writer) seal(full *segment) {
	defer close(w.sealing)
	slots := full.Slots
	if err := full.Seal(full.next, w.put); err != nil {
		w.j.fail(err)
		return
	}
	slots = shrink.Slice(slots)
	w.j.slots.Store(&slots)
	w.j.reclaim.signal.wake() // most records of the sealed segment may already be unneeded
}

// awaitSeal waits until the segment before the active one is sealed, or its sealing failed.
func (w *writer) awaitSeal() {
	if w.sealing != nil {
		<-w.sealing
	}
}

// put runs the function write, and repeats it while the disk has no space. The segments are
// allocated in advance, but a copy-on-write file system needs space even to overwrite data.
// Repeating a write is safe as long as nothing after it was synced. Meanwhile the ops of the
// current group wait, and the committer refuses other ops that write. put gives up when the journal
// closes.
func (w *writer) put(write func() error) error {
	var full *error
	defer func() {
		if full != nil {
			w.j.stalled.CompareAndSwap(full, nil) // only if no other write has reported a shortage since
		}
	}()
	for {
		err := write()
		if !disk.IsShortage(err) {
			return err
		}
		short := errFull(err)
		full = &short
		w.j.stalled.Store(full)
		if !pause(retry, w.j.halt) {
			return err
		}
	}
}

// commit makes a group durable, then updates memory, then notifies the judges, and then passes the
// ops to tell(), which wakes the callers. An acknowledgement relies on this order. If the group
// cannot be written, none of its ops changes memory.
func (w *writer) commit(g *group) {
	start := time.Now()
	err := w.j.failed()
	if err == nil {
		err = w.write(g, true)
	}
	if w.apply(g, err, start) {
		w.settled <- g.ops
		select {
		case g.ops = <-w.reuse:
		default:
			g.ops = nil
		}
	}
	w.j.commit.empty <- g
}

// apply updates memory after a group was written, and notifies the judges. If the group could not be
// written, apply reports the error to the callers and returns false. The group is then finished.
func (w *writer) apply(g *group, err error, start time.Time) bool {
	if err != nil {
		for _, o := range g.ops {
			o.finish(err)
		}
		w.j.queue.finished()
		return false
	}
	for _, o := range g.ops {
		o.settle(g)
	}
	if g.live > 0 {
		g.seg.live.Add(g.live)
	}
	for _, c := range g.commits {
		c.judge.Commit(c.entries)
	}
	if g.Records > 0 {
		w.j.counts.group(g.Records, g.Length, time.Since(start))
	}
	return true
}

// write writes and syncs a group. If the disk has no space, write waits for space if the parameter
// patient is true. Otherwise it returns the error, and the caller must write the group again.
func (w *writer) write(g *group, patient bool) error {
	if g.Records == 0 {
		return nil
	}
	if g.seg != w.active {
		if err := w.turn(g.full, g.seg); err != nil {
			return w.j.fail(err)
		}
	}
	start := time.Now() // before claim, which may wait for the preparer
	defer g.seg.claim(g.Off + int64(g.Length))()
	w.average += (g.Length - w.average) / 8
	w.bulky.Store(w.average >= bulk)
	store := func() error { return g.seg.File.WriteAt(g.Off, g.Buffers(g.seg.Seed, w.next)...) }
	err := store()
	if disk.IsShortage(err) {
		if !patient {
			return err
		}
		err = w.put(store)
	}
	if err != nil {
		return w.j.fail(fmt.Errorf("write %s: %w", g.seg.Name, err))
	}
	if err := g.seg.File.SyncData(); err != nil {
		return w.j.fail(fmt.Errorf("sync %s: %w", g.seg.Name, err))
	}
	w.took += (time.Since(start) - w.took) / 8
	w.next++
	w.active, w.synced = g.seg, g.Off+int64(g.Length)
	return nil
}

// tell wakes the callers of settled ops while the writer already works on the next group. It hands
// document changes to the announcer, in the order of the changes.
func (w *writer) tell() {
	defer w.j.announce.close()
	for ops := range w.settled {
		for _, o := range ops {
			o.finish(nil)
		}
		w.j.queue.finished()
		clear(ops)
		select {
		case w.reuse <- ops[:0]:
		default:
		}
	}
}
