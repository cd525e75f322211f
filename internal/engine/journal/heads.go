package journal

import (
	"context"
	"encoding/binary"
	"iter"
	"math"
	"sync"

	"weir"
	"weir/internal/engine"
)

const (
	// headItems is how many entries are passed to a judge at a time, while the next are read.
	headItems = 1024
	// headRun is the longest single read of heads, and the size of the buffer for it.
	headRun = 256 << 10
	// headBridge is the longest stretch between two heads that is read over. A read of this length
	// takes about as long as a second read.
	headBridge = 4 << 10
)

// restore passes the content of the log to a judge. Keys and closed gaps are read from disk, because
// the index holds neither keys nor the first sequence of a gap.
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
		return fault // the judge may only complain about what is missing because of it
	}
	return err
}

// heads reads the headers of a log's entries from the lowest up.
type heads struct {
	l     *log
	since weir.Time // keys of older entries are not read
	next  weir.Seq

	items []item
	held  []*segment // those of items, in the order of items, each followed by another one
	ends  []int      // for each of held, the index after its last item
	keys  []byte
	spans []span
}

// span is the key of the entry at an index, as a range of heads.keys.
type span struct{ at, from, to int }

// batch is a result of heads.read.
type batch struct {
	headers []engine.Header
	err     error
}

// pass calls yield with all headers. While yield works on one batch of them, a goroutine reads the
// next: reading and folding a long log take about as long as each other.
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

// read returns the next headers, or an error. There are no more if it returns neither.
func (h *heads) read(ctx context.Context, into []engine.Header) batch {
	if err := ctx.Err(); err != nil {
		return batch{nil, err}
	}
	h.look()
	defer h.release()
	out, err := into[:0], error(nil)
	for i := range h.items {
		out = append(out, h.items[i].header())
	}
	h.keys, h.spans = h.keys[:0], h.spans[:0]
	start := 0
	for k, seg := range h.held {
		if err = h.fill(out, seg, start, h.ends[k]); err != nil {
			break
		}
		start = h.ends[k]
	}
	keys := string(h.keys) // one allocation for all of them
	for _, s := range h.spans {
		out[s.at].Key = keys[s.from:s.to]
	}
	if err != nil {
		return batch{nil, err}
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

// unknown tells whether the header of an item must be read.
func (h *heads) unknown(it *item) bool {
	return it.kind == kindGapClosed || it.keyed && it.time >= h.since
}

var headBuffers = sync.Pool{New: func() any { b := make([]byte, headRun); return &b }}

// fill completes the headers of the items from start to end, which lie in one segment. It reads
// nearby heads together.
func (h *heads) fill(out []engine.Header, seg *segment, start, end int) error {
	var shared *[]byte
	for i := start; i < end; {
		if !h.unknown(&h.items[i]) {
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
			it := &h.items[i]
			if !h.unknown(it) {
				continue
			}
			n--
			if err := h.complete(&out[i], i, seg, buf[it.place.off-off:][:need(it)]); err != nil {
				return err
			}
		}
	}
	return nil
}

// need returns how many bytes of a record are needed. A closed gap is read whole: its payload holds
// the first sequence.
func need(it *item) int {
	if it.kind == kindGapClosed {
		return it.length()
	}
	return int(it.head)
}

// near returns how many of the unknown items one read can cover, starting with the item at i, and
// the length of that read.
func (h *heads) near(i, end int) (n, length int) {
	first := int64(h.items[i].place.off)
	n, length = 1, need(&h.items[i])
	for k := i + 1; k < end; k++ {
		it := &h.items[k]
		if !h.unknown(it) {
			continue
		}
		gap := int64(it.place.off) - first - int64(length)
		total := int64(it.place.off) + int64(need(it)) - first
		if gap < 0 || gap > headBridge || total > headRun {
			break
		}
		n, length = n+1, int(total)
	}
	return n, length
}

// complete adds to a header what only its record has: the key, or the first sequence of a closed gap.
func (h *heads) complete(out *engine.Header, i int, seg *segment, b []byte) error {
	it := &h.items[i]
	if it.kind == kindGapClosed {
		r, err := h.l.decode(spot{*it, seg}, b)
		if err == nil {
			out.First = r.header().First
		}
		return err
	}
	ct, key, _, err := checkHead(b, seg.seed)
	if err == nil && (kind(b[14]) != it.kind || binary.LittleEndian.Uint64(b[16:]) != uint64(h.l.id) ||
		binary.LittleEndian.Uint64(b[24:]) != uint64(it.seq) || binary.LittleEndian.Uint32(b[8:]) != it.size) {
		err = errChecksum
	}
	if err != nil {
		return h.l.verify(spot{*it, seg}, nil, err)
	}
	h.spans = append(h.spans, span{i, len(h.keys), len(h.keys) + key - ct})
	h.keys = append(h.keys, b[ct:key]...)
	return nil
}
