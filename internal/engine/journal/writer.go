package journal

import (
	"fmt"
	"time"
)

// writer is the goroutine that makes groups durable, applies them to memory and notifies the
// judges. A second goroutine (tell) wakes the waiting callers, because waking hundreds of
// goroutines takes as long as a sync.
type writer struct {
	j       *Journal
	active  *segment  // segment of the last group
	synced  int64     // everything in active below this offset is durable
	marked  int64     // value of synced when the last watermark was written
	proved  bool      // the last watermark and the file "end" are synced
	when    time.Time // time of the last watermark
	next    uint64    // number of the next group
	settled chan []op // ops whose effects are in memory and whose callers must be woken
	reuse   chan []op // emptied slices from settled, for reuse
}

func (w *writer) init(j *Journal) {
	w.j, w.next = j, 1
	w.settled, w.reuse = make(chan []op, 1), make(chan []op, 4)
}

// run writes groups until the committer ends. It records how far the log is synced every 100 ms
// under load, after a time without a group, and at the end.
func (w *writer) run() {
	defer close(w.settled)
	idling := time.NewTimer(idle)
	defer idling.Stop()
	for {
		select {
		case g, open := <-w.j.commit.full:
			if !open {
				w.prove(true)
				return
			}
			w.commit(g)
			if time.Since(w.when) >= idle {
				w.prove(false)
			}
			idling.Reset(idle)
		case <-idling.C:
			w.prove(true)
		}
	}
}

// prove records how far the log is synced, in the watermark of the active segment and in the file
// "end". Without the watermark, damage to the newest groups would look like a write that a crash
// cut short. Without "end", the loss of the whole segment would look like that too. Losing these
// records loses no data, so under load they are written without a sync.
func (w *writer) prove(sync bool) {
	if w.j.failed() != nil || w.active == nil {
		return
	}
	var err error
	if w.synced != w.marked {
		if err = w.active.mark(w.synced, w.next); err == nil {
			err = w.j.end.write(w.j, ending{w.active.number, w.synced, w.next})
		}
		if isShortage(err) {
			return // no space: a later call records the position
		}
		w.marked, w.proved, w.when = w.synced, false, time.Now()
	}
	if err == nil && sync && !w.proved {
		if err = w.active.file.SyncData(); err == nil {
			err = w.j.end.settle(w.j)
		}
		w.proved = true
	}
	if err != nil {
		w.j.fail(fmt.Errorf("prove the end of %s: %w", w.active.name, err))
	}
}

// begin records in the file "end" that the log continues in another segment, before that segment
// holds a group. A segment with a higher number than the one recorded in "end" has therefore never
// held a group.
func (w *writer) begin(s *segment) error {
	w.marked, w.proved = 0, false
	err := w.put(func() error { return w.j.end.write(w.j, ending{s.number, dataStart, w.next}) })
	if err != nil {
		return err
	}
	return w.j.end.sync()
}

// put runs a write, and repeats it while the disk has no space: a copy-on-write file system needs
// space to overwrite data. Repeating a write is safe as long as nothing after it was synced.
// Meanwhile the ops of the current group wait, and the committer refuses others. put gives up when
// the journal closes.
func (w *writer) put(write func() error) error {
	defer w.j.stalled.Store(nil)
	for {
		err := write()
		if !isShortage(err) {
			return err
		}
		full := errFull(err)
		w.j.stalled.Store(&full)
		select {
		case <-time.After(retry):
		case <-w.j.halt:
			return err
		}
	}
}

// commit makes a group durable, then updates memory, then notifies the judges, then has the callers
// woken. An acknowledgement relies on this order. If the group cannot be written, none of its ops
// changes memory.
func (w *writer) commit(g *group) {
	err := w.j.failed()
	if err == nil {
		err = w.write(g)
	}
	if err != nil {
		for _, o := range g.ops {
			o.finish(err)
		}
		w.j.commit.empty <- g
		return
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
	w.settled <- g.ops
	select {
	case g.ops = <-w.reuse:
	default:
		g.ops = nil
	}
	w.j.commit.empty <- g
}

// write writes and syncs a group. If the group starts a new segment, write first seals the previous
// segment and then records the new one in the file "end". Recovery reports a segment without a
// footer as damaged unless it is the tail, so the footer must be durable before the next segment
// holds a group.
func (w *writer) write(g *group) error {
	if g.records == 0 {
		return nil
	}
	if old := g.seal; old != nil {
		slots := old.slots
		if err := old.seal(w.j.size, w.next, w.put); err != nil {
			return w.j.fail(err)
		}
		w.j.slots.Store(&slots)
		w.j.reclaim.wake() // the sealed segment may already be mostly dead
	}
	if g.seg != w.active {
		if err := w.begin(g.seg); err != nil {
			return w.j.fail(err)
		}
	}
	start := time.Now()
	if err := w.put(func() error { return g.seg.file.WriteAt(g.off, g.buffers(w.next)...) }); err != nil {
		return w.j.fail(fmt.Errorf("write %s: %w", g.seg.name, err))
	}
	if err := g.seg.file.SyncData(); err != nil {
		return w.j.fail(fmt.Errorf("sync %s: %w", g.seg.name, err))
	}
	w.j.counts.group(g.records, g.length, time.Since(start))
	w.next++
	w.active, w.synced = g.seg, g.off+int64(g.length)
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
		clear(ops)
		select {
		case w.reuse <- ops[:0]:
		default:
		}
	}
}
