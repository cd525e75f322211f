package journal

import (
	"context"
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"sync"

	"weir"
	"weir/internal/engine"
)

const (
	// headItems is the number of entries passed to a judge at a time. The next entries are read
	// meanwhile.
	headItems = 1024
	// headRun is the longest single read of heads, and the size of the buffer for it.
	headRun = 256 << 10
	// headBridge is the longest stretch of unneeded bytes between two heads that is read along with
	// them. Reading that many bytes takes about as long as starting a second read.
	headBridge = 4 << 10
)

// restore passes the content of the log to a judge. The ranges of closed gaps, the tags, and the digest and
// event count that the judge needs for each key, are read from disk, because the index does not
// hold them. From then on the index knows the size of every key.
func (l *log) restore(ctx context.Context, note []byte, judge engine.Judge) error {
	since := weir.Time(math.MinInt64)
	if f, ok := judge.(engine.Forgetful); ok {
		since = f.KeysSince()
	}
	var fault error
	entries := func(yield func(engine.Header) bool) {
		h := &heads{l: l, since: since}
		fault = h.pass(ctx, yield)
	}
	err := judge.Restore(note, iter.Seq[engine.Header](entries))
	if fault != nil {
		return fault // the judge's own error may only be a consequence of this one
	}
	return err
}

// heads reads the headers of a log's entries in increasing order of sequence.
type heads struct {
	l     *log
	since weir.Time // keys of older entries are not read
	next  weir.Seq

	items  []item
	known  []bool     // for each of items, whether its header is complete
	held   []*segment // segments of items, in the order of items; equal neighbours are listed once
	ends   []int      // for each segment in held, the index after its last item
	sizes  []keySize  // sizes of keys that the index does not know yet
	reader keyReader
}

// batch is a result of heads.read.
type batch struct {
	headers []engine.Header
	err     error
}

// pass calls yield with all headers. While yield works on one batch of headers, a goroutine reads
// the next. This pays off because reading a long log takes about as long as what yield does with
// it.
func (h *heads) pass(ctx context.Context, yield func(engine.Header) bool) error {
	each := func(b batch) (more bool, err error) {
		for i := range b.headers {
			if !yield(b.headers[i]) {
				return false, nil
			}
		}
		return len(b.headers) > 0, b.err
	}
	first := h.read(ctx, nil)
	if len(first.headers) < headItems || first.err != nil {
		_, err := each(first)
		return err
	}
	full, empty := make(chan batch, 1), make(chan []engine.Header, 3)
	stop := make(chan struct{})
	var reader sync.WaitGroup
	defer reader.Wait()
	defer close(stop)
	reader.Go(func() {
		for more := true; more; {
			var into []engine.Header
			select {
			case into = <-empty:
			default:
			}
			b := h.read(ctx, into)
			more = len(b.headers) > 0 && b.err == nil
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
		case empty <- b.headers[:0]:
		default:
		}
	}
}

// read returns the next headers, or an error. If it returns neither, there are no more headers.
func (h *heads) read(ctx context.Context, into []engine.Header) batch {
	if err := ctx.Err(); err != nil {
		return batch{nil, err}
	}
	h.look()
	defer h.release()
	out := slices.Grow(into[:0], len(h.items))[:len(h.items)]
	h.known, h.sizes = slices.Grow(h.known[:0], len(h.items))[:len(h.items)], h.sizes[:0]
	for i := range h.items {
		it := &h.items[i]
		it.fill(&out[i])
		h.known[i] = it.kind != kindGapClosed && !it.tag && (!it.keyed || it.key > 0 && it.time < h.since)
	}
	start := 0
	for k, seg := range h.held {
		h.takeKeys(out, seg, start, h.ends[k])
		if err := h.fill(out, seg, start, h.ends[k]); err != nil {
			return batch{nil, err}
		}
		start = h.ends[k]
	}
	if len(h.sizes) > 0 {
		h.l.mu.Lock()
		h.l.index.learn(h.sizes)
		h.l.mu.Unlock()
	}
	return batch{out, nil}
}

// look finds the next items and holds their segments.
func (h *heads) look() {
	h.items, h.held, h.ends = h.items[:0], h.held[:0], h.ends[:0]
	h.l.mu.RLock()
	defer h.l.mu.RUnlock()
	number := uint32(0)
	h.l.index.ascend(h.next, func(it item) bool {
		if n := len(h.held); n == 0 || it.place.segment != number {
			number = it.place.segment
			seg := h.l.j.store.segment(number)
			seg.acquire()
			h.held, h.ends = append(h.held, seg), append(h.ends, 0)
		}
		h.items = append(h.items, it)
		h.ends[len(h.ends)-1] = len(h.items)
		return len(h.items) < headItems
	})
	if n := len(h.items); n > 0 {
		h.next = h.items[n-1].seq + 1
	}
}

func (h *heads) release() {
	for _, seg := range h.held {
		seg.release()
	}
}

var headBuffers = sync.Pool{New: func() any { b := make([]byte, headRun); return &b }}

// fill completes the headers of the items from start to end, which lie in one segment. It reads
// nearby heads together.
func (h *heads) fill(out []engine.Header, seg *segment, start, end int) error {
	var shared *[]byte
	for i := start; i < end; {
		if h.known[i] {
			i++
			continue
		}
		if shared == nil {
			shared = headBuffers.Get().(*[]byte)
			defer headBuffers.Put(shared)
		}
		n, length := h.near(i, end)
		off := h.items[i].place.off
		buf := (*shared)[:length]
		if err := seg.read(buf, int64(off)); err != nil {
			return err
		}
		for ; n > 0; i++ {
			if h.known[i] {
				continue
			}
			n--
			it := &h.items[i]
			if err := h.complete(&out[i], i, seg, buf[it.place.off-off:][:need(it)]); err != nil {
				return err
			}
		}
	}
	return nil
}

// need returns how many bytes of a record must be read. A closed gap is read whole, because its
// payload holds the first sequence of the gap.
func need(it *item) int {
	if it.kind == kindGapClosed {
		return it.length()
	}
	return int(it.head)
}

// near returns how many of the incomplete items one read can cover, starting with the item at i,
// and the length of that read.
func (h *heads) near(i, end int) (n, length int) {
	first := int64(h.items[i].place.off)
	n, length = 1, need(&h.items[i])
	for k := i + 1; k < end; k++ {
		if h.known[k] {
			continue
		}
		it := &h.items[k]
		gap := int64(it.place.off) - first - int64(length)
		total := int64(it.place.off) + int64(need(it)) - first
		if gap < 0 || gap > headBridge || total > headRun {
			break
		}
		n, length = n+1, int(total)
	}
	return n, length
}

// complete adds the fields to a header that only the record holds: the key and the number of events
// of a batch, or the first sequence of a closed gap.
func (h *heads) complete(out *engine.Header, i int, seg *segment, b []byte) error {
	it := &h.items[i]
	if it.kind == kindGapClosed {
		r, err := h.l.decode(spot{*it, seg}, b)
		if err == nil {
			out.First, out.Tag = r.header().First, r.tag
		}
		return err
	}
	ct, key, head, err := checkHead(b, seg.seed)
	if err == nil && (kind(b[14]) != it.kind || binary.LittleEndian.Uint64(b[16:]) != uint64(h.l.id) ||
		binary.LittleEndian.Uint64(b[24:]) != uint64(it.seq) || binary.LittleEndian.Uint32(b[8:]) != it.size) {
		err = errChecksum
	}
	if err != nil {
		return h.l.verify(spot{*it, seg}, nil, err)
	}
	if it.tag {
		_, tag := tagOf(b, key, head)
		out.Tag = string(tag)
	}
	if !it.keyed {
		h.known[i] = true
		return nil
	}
	h.know(out, i, keySlot{size: uint16(key - ct), count: binary.LittleEndian.Uint32(b[40:]), digest: weir.DigestKey(b[ct:key])})
	return nil
}

// know completes the header of the batch at index i from the key slot k.
func (h *heads) know(out *engine.Header, i int, k keySlot) {
	h.known[i] = true
	out.KeySize, out.Count, out.KeyDigest = k.size, k.count, k.digest
	if it := &h.items[i]; it.key == 0 {
		h.sizes = append(h.sizes, keySize{it.seq, k.size})
	}
}
