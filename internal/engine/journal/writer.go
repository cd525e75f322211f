package journal

import (
	"fmt"
	"time"
)

// writer is the goroutine that makes groups durable, lets memory catch up, and tells the judges. Whoever waits for an
// append is told by a goroutine of its own (teller): waking hundreds takes as long as a sync.
type writer struct {
	j       *Journal
	active  *segment  // where the last group went
	synced  int64     // up to where that one is durable
	marked  int64     // synced at the last watermark
	next    uint64    // number of the next group
	settled chan []op // groups to tell of
	told    chan []op // and their slices, to be used again
	done    chan struct{}
}

func (w *writer) init(j *Journal) {
	w.j, w.next = j, 1
	w.settled, w.told = make(chan []op, 1), make(chan []op, 4)
	w.done = make(chan struct{})
}

func (w *writer) run() {
	defer close(w.done)
	defer close(w.settled)
	idling := time.NewTimer(idle)
	defer idling.Stop()
	for {
		select {
		case g, open := <-w.j.commit.full:
			if !open {
				w.watermark(true)
				return
			}
			w.commit(g)
			idling.Reset(idle)
		case <-idling.C:
			w.watermark(false)
		}
	}
}

// watermark notes how far the active segment is synced, so that damage to the newest records cannot pass for a write
// that a crash cut short. It is itself synced only when the journal is closed: a lost one costs evidence, not data.
func (w *writer) watermark(sync bool) {
	if w.j.failed() != nil || w.active == nil || (w.synced == w.marked && !sync) {
		return
	}
	err := w.active.file.WriteAt(watermarkOffset, encodeWatermark(w.active.seed, w.synced, w.next))
	if err == nil && sync {
		err = w.active.file.SyncData()
	}
	if err != nil {
		w.j.fail(fmt.Errorf("mark %s: %w", w.active.name, err))
	}
	w.marked = w.synced
}

// commit makes a group durable and everybody know.
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
	for i := range g.commits {
		g.commits[i].tell()
	}
	w.settled <- g.ops
	select {
	case g.ops = <-w.told:
	default:
		g.ops = nil
	}
	w.j.commit.empty <- g
}

func (w *writer) write(g *group) error {
	if g.records == 0 {
		return nil
	}
	if old := g.seal; old != nil {
		slots := old.slots
		if err := old.seal(w.j.size, w.next); err != nil {
			return w.j.fail(err)
		}
		w.j.slots.Store(&slots)
		w.j.reclaim.wake() // it may be sparse already
	}
	start := time.Now()
	if err := g.seg.file.WriteAt(g.off, g.buffers(w.next)...); err != nil {
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

// tell wakes those who wait, while the disk works on the next group and they make the one after it.
func (w *writer) tell() {
	for ops := range w.settled {
		for _, o := range ops {
			o.finish(nil)
		}
		clear(ops)
		select {
		case w.told <- ops[:0]:
		default:
		}
	}
}
