package sim

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"weir"
	"weir/internal/api"
	"weir/internal/disk/faulty"
	"weir/internal/engine/journal"
	"weir/internal/engine/journal/repair"
	"weir/internal/hub"
)

// backup takes a snapshot of the running server, restores it and reads it. The copy must hold every
// batch that was acknowledged before the snapshot, except batches that may be evicted.
func (c *client) backup(g *server) {
	if c.rng.IntN(4) > 0 {
		return
	}
	var before []seen
	for _, s := range c.w.model.streams {
		before = append(before, s.seen())
	}
	ctx, x := g.opened(c)
	defer g.closed(x)
	snap, err := g.journal.Snapshot(ctx)
	if err != nil {
		return
	}
	defer snap.Close()
	copied := faulty.New()
	err = restore(snap, copied)
	if x.gone || g.dead.Load() || g.hurt.Load() {
		return
	}
	if err == nil {
		err = c.compare(copied, before)
	}
	c.last = " after a backup"
	if err != nil {
		c.w.violation("backup: %v", err)
	}
}

func restore(snap *journal.Snapshot, fs *faulty.FS) error {
	r, err := repair.NewRestore(fs)
	if err != nil {
		return err
	}
	for i, f := range snap.Files() {
		var b bytes.Buffer
		if err = snap.Copy(&b, i); err == nil {
			err = r.Add(f.Name, &b)
		}
		if err != nil {
			r.Abort()
			return err
		}
	}
	report, err := r.Finish(repair.CheckOptions{})
	if err == nil && (len(report.Damages) > 0 || len(snap.Damages()) > 0) {
		err = fmt.Errorf("the copy or the snapshot is damaged: %+v, %v", report.Damages, snap.Damages())
	}
	return err
}

// compare reads the restored journal through a separate hub.
func (c *client) compare(fs *faulty.FS, before []seen) error {
	j, err := journal.Open(fs, journal.Options{SegmentSize: segmentSize, Compress: true})
	if err != nil {
		return err
	}
	defer j.Close()
	h, err := hub.Open(context.Background(), j, hub.Options{Now: c.w.tick, Frame: api.Frame})
	if err != nil {
		return err
	}
	defer h.Close()
	for i, s := range c.w.model.streams {
		copied, err := h.Stream(s.id)
		if err != nil {
			return err
		}
		if object, err := copied.Object(context.Background()); err != nil || before[i].closed && !object.Closed {
			return fmt.Errorf("stream %s: %+v, %v", s.id, object, err)
		}
		s.mu.Lock()
		acked := before[i].acked.all()
		s.mu.Unlock()
		for _, seq := range acked {
			b, err := copied.Batch(context.Background(), seq)
			s.mu.Lock()
			switch payload := string(b.Payload); {
			case err != nil && evictedInCopy(s, seq, before[i].time):
				err = nil
			case err != nil:
				err = fmt.Errorf("batch %d of %s: %w", seq, s.id, err)
			case s.mode == weir.JSON:
				s.learn(seq, payload[len(`["`):len(payload)-len(`"]`)])
			default:
				s.learn(seq, payload)
			}
			s.mu.Unlock()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// evictedInCopy reports whether a batch may be evicted in a copy that was taken after the given
// time. In the copy, limits of that time may still be in effect, although they were replaced later.
func evictedInCopy(s *stream, seq weir.Seq, since time.Time) bool {
	return s.evictable(seq) || slices.ContainsFunc(s.limits, func(l *limits) bool {
		lasting := limits{maxBytes: l.maxBytes, retention: l.retention}
		return !l.until.Before(since) && lasting.exceeded(s, seq)
	})
}
