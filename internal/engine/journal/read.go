package journal

import (
	"context"
	"sync"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
)

const (
	// mostReads is the number of client reads that may wait for the disk at once. Each read
	// occupies a thread and a buffer, and Go aborts a program with 10,000 threads. 256 reads are
	// enough to keep any disk busy.
	mostReads = 256
	// runItems is the largest number of entries that a scan looks up at once.
	runItems = 1024
	// bridge is the largest number of unneeded bytes between two entries that a scan reads along
	// with them, instead of starting a second read.
	bridge = 8 << 10
)

// spot is an entry to be read, together with its segment. The segment cannot be recycled until the
// spot is released.
type spot struct {
	index.Item
	seg *segment
}

// Read implements engine.Log.
func (h *handle) Read(ctx context.Context, seq weir.Seq) (engine.Entry, error) {
	r, err := h.fetch(ctx, seq, true)
	if err != nil {
		return engine.Entry{}, err
	}
	e := engine.Entry{Header: r.Header()}
	if r.Kind == segments.KindBatch {
		e.Payload = r.Payload
	}
	return e, nil
}

// Header implements engine.Log.
func (h *handle) Header(ctx context.Context, seq weir.Seq) (engine.Header, error) {
	r, err := h.fetch(ctx, seq, false)
	if err != nil {
		return engine.Header{}, err
	}
	return r.Header(), nil
}

// fetch looks up an entry and reads its record. The segment cannot be recycled during the read.
func (h *handle) fetch(ctx context.Context, seq weir.Seq, payload bool) (segments.Record, error) {
	if err := h.usable(); err != nil {
		return segments.Record{}, err
	}
	h.mu.RLock()
	it, ok := h.index.Find(seq)
	dropped := h.dropped
	var s spot
	if ok {
		s = h.spot(it)
	}
	h.mu.RUnlock()
	if dropped {
		return segments.Record{}, engine.ErrDropped
	}
	if !ok {
		return segments.Record{}, engine.ErrNotFound
	}
	defer s.seg.release()
	return h.load(ctx, s, payload)
}

// spot returns the spot of an item and keeps its segment from being recycled. The caller must hold
// the log's lock, because the segment is certain to exist only while the index points to it.
func (h *handle) spot(it index.Item) spot {
	seg := h.j.store.segment(it.Place.Segment)
	seg.acquire()
	return spot{it, seg}
}

// load reads the record at a spot, either whole or only the part before its payload. A closed gap
// is always read whole: it is short, and its payload holds the first sequence of the gap.
func (h *handle) load(ctx context.Context, s spot, payload bool) (segments.Record, error) {
	payload = payload || s.Kind == segments.KindGapClosed
	n := int(s.Head)
	if payload {
		n = s.Length()
	}
	if err := h.j.reads.begin(ctx); err != nil {
		return segments.Record{}, err
	}
	buf := make([]byte, n)
	err := s.seg.Read(buf, int64(s.Place.Off))
	h.j.reads.end()
	if err != nil {
		return segments.Record{}, err
	}
	var r segments.Record
	if payload {
		err = s.Decode(buf, &s.seg.Segment, h.id, &r)
	} else {
		err = s.Verify(&s.seg.Segment, h.id, &r, r.DecodeHead(buf, s.seg.Seed))
	}
	return r, err
}

// Headers implements engine.Log.
func (h *handle) Headers(from weir.Seq, visit func(engine.Header) bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	h.index.Ascend(from, func(it index.Item) bool { return visit(it.Header()) })
}

// Scan implements engine.Log.
func (h *handle) Scan(ctx context.Context, from weir.Seq, run int, visit func(*engine.Entry) bool) error {
	if err := h.usable(); err != nil {
		return err
	}
	if run == 0 {
		run = segments.LongRun
	}
	w := walks.Get().(*walk)
	defer w.end()
	for {
		clear(w.spots)
		spots, dropped := h.ahead(from, run, w.spots[:0])
		w.spots = spots
		if dropped {
			release(spots)
			return engine.ErrDropped
		}
		if len(spots) == 0 {
			return nil
		}
		from = spots[len(spots)-1].Seq + 1
		more, err := h.visit(ctx, spots, run, &w.record, func(r *segments.Record) bool {
			if ctx.Err() != nil {
				return false
			}
			if h.trimmed(weir.Seq(r.Seq)) {
				return true
			}
			e := &w.entry
			e.Header, e.Payload = r.Header(), nil
			if r.Kind == segments.KindBatch {
				e.Payload = r.Payload
			}
			return visit(e)
		})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || !more {
			return err
		}
	}
}

// walk is the memory of a scan. It comes from a pool, because a subscriber that catches up scans
// thousands of times per second.
type walk struct {
	spots  []spot
	record segments.Record
	entry  engine.Entry
}

var walks = sync.Pool{New: func() any { return new(walk) }}

// end returns the walk to its pool, without references to segments and buffers. It keeps the strings
// of the last record: most records of a journal have the same content type (see record.decodeHead).
func (w *walk) end() {
	clear(w.spots)
	if cap(w.spots) > keptSpots {
		w.spots = nil
	}
	w.record.Payload, w.entry = nil, engine.Entry{}
	walks.Put(w)
}

// keptSpots is the largest number of spots for which a walk keeps its memory.
const keptSpots = 256

// trimmed reports whether an entry was trimmed after the scan looked it up.
func (l *log) trimmed(seq weir.Seq) bool {
	l.mu.RLock()
	low := l.lastMark().low
	l.mu.RUnlock()
	return seq < low
}

// ahead looks up the entries from sequence start on, until they have about as many bytes as the
// parameter budget says, and appends them to spots, which must be empty. It keeps their segments
// from being recycled until the function release is called with all of these spots.
func (h *handle) ahead(start weir.Seq, budget int, spots []spot) (_ []spot, dropped bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var seg *segment
	h.index.Ascend(start, func(it index.Item) bool {
		if seg == nil || uint32(seg.Number) != it.Place.Segment {
			seg = h.spot(it).seg
		}
		spots = append(spots, spot{it, seg})
		budget -= it.Length()
		return budget > 0 && len(spots) < runItems
	})
	return spots, h.dropped
}

// reads limits how many client reads are in progress at once.
type reads chan struct{}

// begin waits until a read may start. The caller must call the method end when the read is done.
func (r reads) begin(ctx context.Context) error {
	select {
	case r <- struct{}{}:
		return nil
	default:
	}
	select {
	case r <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r reads) end() { <-r }

// visit reads the records at the spots and releases the spots. It reads neighbouring records
// together, and at most about as many bytes at a time as the parameter run says. It decodes all
// records into *r. It returns false if the visitor wants no more.
func (h *handle) visit(ctx context.Context, spots []spot, run int, r *segments.Record, visit func(*segments.Record) bool) (more bool, err error) {
	defer release(spots)
	for len(spots) > 0 {
		n, length := near(spots, min(max(run, segments.ShortRun), segments.LongRun))
		if more, err := h.visitNear(ctx, spots[:n], length, r, visit); err != nil || !more {
			return false, err
		}
		spots = spots[n:]
	}
	return true, nil
}

// visitNear reads the records at the spots in one read. length is the number of bytes from the
// first record to the end of the last.
func (h *handle) visitNear(ctx context.Context, spots []spot, length int, r *segments.Record, visit func(*segments.Record) bool) (more bool, err error) {
	if err := h.j.reads.begin(ctx); err != nil {
		return false, err
	}
	buf, done := segments.Buffer(length)
	defer done()
	start := spots[0].Place.Off
	err = spots[0].seg.Read(buf, int64(start))
	h.j.reads.end()
	if err != nil {
		return false, err
	}
	for i := range spots {
		s := &spots[i]
		if err := s.Decode(buf[s.Place.Off-start:][:s.Length()], &s.seg.Segment, h.id, r); err != nil {
			return false, err
		}
		if !visit(r) {
			return false, nil
		}
	}
	return true, nil
}

// near returns how many spots one read of at most limit bytes can cover, starting with the first,
// and the length of that read. The read is longer than limit if the first entry alone is longer.
func near(spots []spot, limit int) (n, length int) {
	first := spots[0]
	length = first.Length()
	for n = 1; n < len(spots); n++ {
		s, end := spots[n], int64(first.Place.Off)+int64(length)
		gap := int64(s.Place.Off) - end
		total := int64(s.Place.Off) + int64(s.Length()) - int64(first.Place.Off)
		if s.seg != first.seg || gap < 0 || gap > bridge || total > int64(limit) {
			break
		}
		length = int(total)
	}
	return n, length
}

// release undoes ahead. Spots that follow each other in one segment hold it together.
func release(spots []spot) {
	for i := range spots {
		if i == 0 || spots[i].seg != spots[i-1].seg {
			spots[i].seg.release()
		}
	}
}
