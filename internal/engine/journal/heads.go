package journal

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sort"
	"sync"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
)

const (
	// headItems is the largest number of headers that one call of heads.read returns.
	headItems = 1024
	// headRun is the longest single read of heads, and the size of the buffer for it.
	headRun = 256 << 10
	// headBridge is a number of bytes. If the heads of two records (the parts before the payload)
	// are not farther apart than this, one read covers both. Reading the bytes between them takes
	// at most about as long as starting a second read.
	headBridge = 4 << 10
)

// keptNote is the size of the longest note that stays in memory. Longer notes are read from the
// disk when their log is opened. Keeping them would take too much memory: a note has up to
// engine.MaxNote bytes, and every log may have one.
const keptNote = 256

// readNote returns the note of the last trim, from memory or from its record.
func (l *log) readNote(ctx context.Context) ([]byte, error) {
	l.mu.RLock()
	note, mark := l.note, l.mark
	if note != nil || mark.Bytes == 0 {
		l.mu.RUnlock()
		return note, nil
	}
	s := l.spot(index.Item{Place: mark.Place})
	l.mu.RUnlock()
	defer s.seg.release()
	if err := l.j.reads.begin(ctx); err != nil {
		return nil, err
	}
	defer l.j.reads.end()
	buf := make([]byte, mark.Bytes-segments.SlotSize)
	if err := s.seg.Read(buf, int64(mark.Off)); err != nil {
		return nil, err
	}
	var r segments.Record
	err := r.Decode(buf, s.seg.Seed)
	if err == nil && (r.Kind != segments.KindMark || r.Log != uint64(l.id)) {
		err = segments.ErrChecksum
	}
	if err != nil {
		return nil, s.seg.Damage(int64(mark.Off), fmt.Sprintf("mark of log %d", l.id), err)
	}
	return r.Payload, nil
}

// restore passes the content of the log to a judge. It reads from the disk what the index does not
// hold: the ranges of closed gaps, the tags, and for each key the digest and the event count that
// the judge needs. It adds the sizes of the keys that it reads to the index, which then knows the
// size of every key.
func (l *log) restore(ctx context.Context, note []byte, judge engine.Judge) error {
	since := weir.Time(math.MinInt64)
	if f, ok := judge.(engine.Forgetful); ok {
		since = f.KeysSince()
	}
	var fault error
	entries := func(yield func(*engine.Header) bool) {
		h := &heads{l: l, since: since}
		fault = h.pass(ctx, yield)
	}
	err := judge.Restore(note, entries)
	if fault != nil {
		return fault // the judge's own error may only be a consequence of this one
	}
	return err
}

// heads reads what a judge needs to know about a log's entries, in increasing order of sequence.
type heads struct {
	l     *log
	since weir.Time // keys of older entries are read only if their sizes are unknown
	next  weir.Seq  // sequence at which the next call of read begins

	items  []head
	held   []*segment          // segments that hold the items, in the order of the items; consecutive items in one segment share an element
	ends   []int               // for each segment in held, the index after its last item
	sizes  []index.KeySize     // sizes of keys that the index does not know yet
	tags   map[weir.Seq]string // tags of items, by sequence; nil if there are none
	reader segments.KeyReader
}

// head is an item with those fields of its record that a judge needs. A head is half as large as an
// engine.Header, so less data moves from the CPU core of the reader to that of the judge.
type head struct {
	index.Item
	known  bool // the other fields are complete
	count  uint32
	digest weir.KeyDigest
	first  weir.Seq // for a closed gap: its first sequence
}

// header sets those fields of h that Judge.Restore expects. The other fields of h must be empty.
func (d *head) header(h *engine.Header) {
	d.SetHeader(h)
	h.Count, h.KeyDigest, h.First, h.Tag = d.count, d.digest, d.first, ""
}

// batch is a result of heads.read.
type batch struct {
	heads []head
	tags  map[weir.Seq]string
	err   error
}

// pass calls yield with all headers. While yield works on one batch of them, a goroutine reads the
// next. This pays off because reading a long log takes about as long as what yield does with it.
func (h *heads) pass(ctx context.Context, yield func(*engine.Header) bool) error {
	var header engine.Header
	each := func(b batch) (more bool, err error) {
		for i := range b.heads {
			b.heads[i].header(&header)
			if b.tags != nil {
				header.Tag = b.tags[header.Seq]
			}
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
	full, empty := make(chan batch, 1), make(chan []head, 3)
	stop := make(chan struct{})
	var reader sync.WaitGroup
	defer reader.Wait()
	defer close(stop)
	reader.Go(func() {
		for more := true; more; {
			var into []head
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
func (h *heads) read(ctx context.Context, into []head) batch {
	if err := ctx.Err(); err != nil {
		return batch{err: err}
	}
	h.items = into[:0]
	missing := h.look()
	defer h.release()
	if missing {
		if err := h.l.j.reads.begin(ctx); err != nil {
			return batch{err: err}
		}
		defer h.l.j.reads.end()
	}
	h.sizes = h.sizes[:0]
	h.tags = nil
	start := 0
	for k, seg := range h.held {
		h.takeKeys(seg, start, h.ends[k])
		if err := h.fill(seg, start, h.ends[k]); err != nil {
			return batch{err: err}
		}
		start = h.ends[k]
	}
	if len(h.sizes) > 0 {
		h.l.mu.Lock()
		h.l.index.Learn(h.sizes)
		h.l.mu.Unlock()
	}
	return batch{heads: h.items, tags: h.tags}
}

// look finds the next items and keeps their segments from being recycled. It reports whether
// anything must be read from the disk.
func (h *heads) look() (missing bool) {
	h.held, h.ends = h.held[:0], h.ends[:0]
	h.l.mu.RLock()
	defer h.l.mu.RUnlock()
	h.l.index.Fill(h.next, func() *index.Item {
		if len(h.items) == headItems {
			return nil
		}
		h.items = append(h.items, head{})
		return &h.items[len(h.items)-1].Item
	})
	number := uint32(0)
	for i := range h.items {
		it := &h.items[i]
		it.known = it.Kind != segments.KindGapClosed && !it.Tag && (!it.Keyed || it.Key > 0 && it.Time < h.since)
		if len(h.held) == 0 || it.Place.Segment != number {
			number = it.Place.Segment
			seg := h.l.j.store.segment(number)
			seg.acquire()
			h.held, h.ends = append(h.held, seg), append(h.ends, 0)
		}
		missing = missing || !it.known
		h.ends[len(h.ends)-1] = i + 1
	}
	if n := len(h.items); n > 0 {
		h.next = h.items[n-1].Seq + 1
	}
	return missing
}

func (h *heads) release() {
	for _, seg := range h.held {
		seg.release()
	}
}

var headBuffers = sync.Pool{New: func() any { b := make([]byte, headRun); return &b }}

// fill completes h.items[start:end], which all lie in segment seg. One read covers
// heads that lie close together.
func (h *heads) fill(seg *segment, start, end int) error {
	var shared *[]byte
	for i := start; i < end; {
		if h.items[i].known {
			i++
			continue
		}
		if shared == nil {
			shared = headBuffers.Get().(*[]byte)
			defer headBuffers.Put(shared)
		}
		n, length := h.near(i, end)
		off := h.items[i].Place.Off
		buf := (*shared)[:length]
		if err := seg.Read(buf, int64(off)); err != nil {
			return err
		}
		for ; n > 0; i++ {
			if h.items[i].known {
				continue
			}
			n--
			it := &h.items[i]
			if err := h.complete(it, seg, buf[it.Place.Off-off:][:need(&it.Item)]); err != nil {
				return err
			}
		}
	}
	return nil
}

// need returns how many bytes of a record must be read. A closed gap is read whole, because its
// payload holds the first sequence of the gap.
func need(it *index.Item) int {
	if it.Kind == segments.KindGapClosed {
		return it.Length()
	}
	return int(it.Head)
}

// near returns how many incomplete items one read can cover, beginning with item i and ending
// before item end. It also returns the length of that read.
func (h *heads) near(i, end int) (n, length int) {
	first := int64(h.items[i].Place.Off)
	n, length = 1, need(&h.items[i].Item)
	for k := i + 1; k < end; k++ {
		if h.items[k].known {
			continue
		}
		it := &h.items[k]
		gap := int64(it.Place.Off) - first - int64(length)
		total := int64(it.Place.Off) + int64(need(&it.Item)) - first
		if gap < 0 || gap > headBridge || total > headRun {
			break
		}
		n, length = n+1, int(total)
	}
	return n, length
}

// complete adds to a head what only the record holds: the key and the number of events of a batch,
// or the first sequence of a closed gap.
func (h *heads) complete(it *head, seg *segment, b []byte) error {
	if it.Kind == segments.KindGapClosed {
		var r segments.Record
		err := h.l.decode(&spot{it.Item, seg}, b, &r)
		if err == nil {
			it.first = r.Header().First
			h.setTag(it, r.Tag)
		}
		return err
	}
	ct, key, head, err := segments.CheckHead(b, seg.Seed)
	if err == nil && (segments.Kind(b[14]) != it.Kind || binary.LittleEndian.Uint64(b[16:]) != uint64(h.l.id) ||
		binary.LittleEndian.Uint64(b[24:]) != uint64(it.Seq) || binary.LittleEndian.Uint32(b[8:]) != it.Size) {
		err = segments.ErrChecksum
	}
	if err != nil {
		return h.l.verify(&spot{it.Item, seg}, nil, err)
	}
	if it.Tag {
		_, tag := segments.TagOf(b, key, head)
		h.setTag(it, string(tag))
	}
	if !it.Keyed {
		it.known = true
		return nil
	}
	h.completeFromSlot(it, segments.KeySlot{Size: uint16(key - ct), Count: binary.LittleEndian.Uint32(b[40:]), Digest: weir.DigestKey(b[ct:key])})
	return nil
}

// setTag keeps the tag of an item. Few entries have a tag, so the type head has no field for it.
func (h *heads) setTag(it *head, tag string) {
	if tag == "" {
		return
	}
	if h.tags == nil {
		h.tags = make(map[weir.Seq]string)
	}
	h.tags[it.Seq] = tag
}

// completeFromSlot completes the head of a batch from the key slot k.
func (h *heads) completeFromSlot(it *head, k segments.KeySlot) {
	it.known, it.count, it.digest = true, k.Count, k.Digest
	if it.Key == 0 {
		it.Key = k.Size
		h.sizes = append(h.sizes, index.KeySize{Seq: it.Seq, Size: k.Size})
	}
}

// fewKeys is a number of keys. For this many or fewer, reading the records is as fast as reading
// the key slots.
const fewKeys = 4

// takeKeys completes h.items[start:end] with the key slots of segment seg, in which
// all these items lie. An item without a usable key slot stays incomplete.
func (h *heads) takeKeys(seg *segment, start, end int) {
	n, from, to := 0, uint32(0), uint32(0)
	for i := start; i < end; i++ {
		if it := &h.items[i]; it.Kind == segments.KindBatch && !it.known && !it.Tag {
			if off := it.Place.Off; n == 0 {
				from, to = off, off
			} else {
				from, to = min(from, off), max(to, off)
			}
			n++
		}
	}
	if n <= fewKeys {
		return
	}
	slots := h.reader.SlotsOf(&seg.Segment, from, to, n*headBridge)
	count := len(slots) / segments.KeySlotSize
	at := func(i int) uint32 { return binary.LittleEndian.Uint32(slots[i*segments.KeySlotSize:]) }
	next := sort.Search(count, func(i int) bool { return at(i) >= from })
	for i := start; i < end; i++ {
		it := &h.items[i]
		if it.Kind != segments.KindBatch || it.known || it.Tag {
			continue
		}
		if next >= count || at(next) != it.Place.Off {
			next = sort.Search(count, func(i int) bool { return at(i) >= it.Place.Off })
			if next == count || at(next) != it.Place.Off {
				continue
			}
		}
		h.completeFromSlot(it, segments.DecodeKeySlot(slots[next*segments.KeySlotSize:]))
		next++
	}
}
