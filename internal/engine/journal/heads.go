package journal

import (
	"context"
	"math"
	"sync"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
)

// headItems is the largest number of headers that one call of heads.read returns.
const headItems = 1024

// keptNote is the size of the longest note that stays in memory. Longer notes are read from the
// disk when their log is opened. Keeping them would take too much memory: a note has up to
// engine.MaxNote bytes, and every log may have one.
const keptNote = 256

// readNote returns the note of the last trim, from memory or from its record.
func (h *handle) readNote(ctx context.Context) ([]byte, error) {
	h.mu.RLock()
	m := h.mark
	if m == nil || m.note != nil {
		defer h.mu.RUnlock()
		return h.lastMark().note, nil
	}
	at, low := m.at, m.low
	s := h.spot(index.Item{Place: at.Place})
	h.mu.RUnlock()
	defer s.seg.release()
	if err := h.j.reads.begin(ctx); err != nil {
		return nil, err
	}
	defer h.j.reads.end()
	sl := segments.Slot{Off: at.Off, Size: uint32(at.Bytes - segments.SlotSize), Kind: segments.KindMark, Log: uint64(h.id), Seq: uint64(low)}
	r, err := (&segments.Window{Seg: &s.seg.Segment, Ahead: 1}).Record(sl)
	if err != nil {
		return nil, err
	}
	return r.Payload, nil
}

// restore passes the content of the log to a judge. It reads from the disk what the index does not
// hold: the ranges of closed gaps, the tags, and for each key the digest and the event count that
// the judge needs. It adds the sizes of the keys that it reads to the index, which then knows the
// size of every key.
func (h *handle) restore(ctx context.Context, note []byte, judge engine.Judge, since weir.Time) error {
	h.mu.RLock()
	empty := h.index.Len() == 0
	h.mu.RUnlock()
	if empty { // as most logs that an event loop opens
		return judge.Restore(note, func(func(*engine.Header) bool) {})
	}
	var fault error
	entries := func(yield func(*engine.Header) bool) {
		r := &heads{log: h, reader: index.HeadReader{Log: h.id, Since: since}}
		fault = r.pass(ctx, yield)
	}
	err := judge.Restore(note, entries)
	if fault != nil {
		return fault // the judge's own error may only be a consequence of this one
	}
	return err
}

// keysSince returns the time of the oldest keys that the judge needs.
func keysSince(judge engine.Judge) weir.Time {
	if f, ok := judge.(engine.Forgetful); ok {
		return f.KeysSince()
	}
	return math.MinInt64
}

// heads reads what a judge needs to know about a log's entries, in increasing order of sequence.
type heads struct {
	log    *handle
	next   weir.Seq   // sequence at which the next call of read begins
	held   []*segment // segments that hold the entries of the current call, in their order
	reader index.HeadReader
}

// batch is a result of heads.read.
type batch struct {
	heads []index.Head
	tags  map[weir.Seq]string
	err   error
}

// pass calls yield with all headers. While yield works on one batch of them, a goroutine reads the
// next. This pays off because reading a long log takes about as long as what yield does with it.
func (h *heads) pass(ctx context.Context, yield func(*engine.Header) bool) error {
	var header engine.Header
	each := func(b batch) (more bool, err error) {
		for i := range b.heads {
			b.heads[i].SetHeader(&header, b.tags)
			if !yield(&header) {
				return false, nil
			}
		}
		return len(b.heads) > 0, b.err
	}
	first := h.read(ctx, nil)
	if len(first.heads) < headItems || first.err != nil {
		_, err := each(first)
		return err
	}
	full, empty := make(chan batch, 1), make(chan []index.Head, 3)
	stop := make(chan struct{})
	var reader sync.WaitGroup
	defer reader.Wait()
	defer close(stop)
	reader.Go(func() {
		for more := true; more; {
			var into []index.Head
			select {
			case into = <-empty:
			default:
			}
			b := h.read(ctx, into)
			more = len(b.heads) > 0 && b.err == nil
			select {
			case full <- b:
			case <-stop:
				return
			}
		}
	})
	for b := first; ; b = <-full {
		if more, err := each(b); err != nil || !more {
			return err
		}
		select {
		case empty <- b.heads:
		default:
		}
	}
}

// read returns the next heads, or an error. If it returns neither, there are no more entries. It
// reuses the memory of the parameter into.
func (h *heads) read(ctx context.Context, into []index.Head) batch {
	if err := ctx.Err(); err != nil {
		return batch{err: err}
	}
	found, missing := h.look(into)
	defer h.release()
	if missing {
		if err := h.log.j.reads.begin(ctx); err != nil {
			return batch{err: err}
		}
		defer h.log.j.reads.end()
	}
	rest := h.held
	err := h.reader.Complete(found, func(uint32) *segments.Segment {
		seg := rest[0]
		rest = rest[1:]
		return &seg.Segment
	})
	if err != nil {
		return batch{err: err}
	}
	if len(h.reader.Sizes) > 0 {
		h.log.mu.Lock()
		h.log.index.Learn(h.reader.Sizes)
		h.log.mu.Unlock()
	}
	return batch{heads: found, tags: h.reader.Tags}
}

// look finds the next entries and keeps their segments from being recycled. It reports whether
// anything must be read from the disk.
func (h *heads) look(into []index.Head) (found []index.Head, missing bool) {
	h.held = h.held[:0]
	h.log.mu.RLock()
	defer h.log.mu.RUnlock()
	if cap(into) == 0 {
		into = make([]index.Head, 0, min(headItems, h.log.index.Len()))
	}
	found, missing = h.reader.Fill(&h.log.index, h.next, into[:0])
	number := uint32(0)
	for i := range found {
		if it := &found[i]; i == 0 || it.Place.Segment != number {
			number = it.Place.Segment
			seg := h.log.j.store.segment(number)
			seg.acquire()
			h.held = append(h.held, seg)
		}
	}
	if n := len(found); n > 0 {
		h.next = found[n-1].Seq + 1
	}
	return found, missing
}

func (h *heads) release() {
	for _, seg := range h.held {
		seg.release()
	}
}
