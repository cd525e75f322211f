package hub

import (
	"context"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"weir"
	"weir/internal/deflate"
	"weir/internal/engine"
)

// tail keeps the recent batches of a stream in memory while the stream has subscribers. Thanks to
// the tail, a batch is encoded once for all subscribers, and is not read back from the log.
//
// The invariant of a tail: it has a frame for every durable batch whose sequence is t.low or
// higher. A subscription whose next sequence is t.low or higher can therefore read from the tail
// alone. A subscription below t.low reads from the log. If the tail cannot hold a batch, it must
// raise t.low above that batch. The tail drops the lowest batches first, when it exceeds
// Options.TailBytes or when the batches are evicted. A stream without subscribers has no frames in
// its tail.
//
// Subscriptions read frames through a view (an immutable copy of the feed's fields), without a
// lock. So the tail never overwrites an element of the array behind t.frames: it only appends to
// the array, and makes a new array in order to insert or to free elements.
type tail struct {
	subscribers int
	low         weir.Seq
	frames      []*frame // in increasing order of sequence
	bytes       int      // sum of the sizes of frames
	packs       bool     // a subscriber wants compressed frames
	dropped     int      // sum of the sizes of dropped frames that the array behind frames still holds
}

// frame is a batch in the tail. The batch is encoded when the first subscriber needs it.
//
// A batch published on this node arrives with its payload, and the method encoded sets the field
// bytes. A batch published on another node (foreign) arrives as a header only. The method fetch
// reads such a batch from the log and sets the field bytes, then the field read.
type frame struct {
	seq   weir.Seq
	size  int   // estimated memory of the frame in bytes
	at    int64 // when the batch was admitted, by the clock of package meter; 0 if foreign
	once  sync.Once
	batch weir.Batch // the batch, until it is encoded
	bytes []byte     // the encoded batch

	packing sync.Once
	part    deflate.Part // the compressed batch, once a subscriber needs it

	foreign bool
	read    atomic.Bool // for foreign frames only: the field bytes is set

	pins pins // only used if the frame is large
}

// encoded returns the frame's bytes. The first call encodes the batch. Callers must not hold the
// feed's lock, because encoding takes time. For another node's batch, encoded returns nil if fetch
// could not read the batch, because it had been evicted or because reading failed.
func (r *frame) encoded(h *Hub, mode weir.Mode) []byte {
	if r.foreign {
		if !r.read.Load() {
			return nil
		}
		return r.bytes
	}
	r.once.Do(func() {
		r.bytes = h.opts.Frame(nil, mode, &r.batch)
		r.batch = weir.Batch{}
	})
	return r.bytes
}

// packed returns the compressed form of the frame. The parameter b must be the result of encoded.
// The first call compresses it, and all subscribers share the result. Callers must not hold the
// feed's lock.
func (r *frame) packed(b []byte) *deflate.Part {
	r.packing.Do(func() { r.part = deflate.Compress(nil, b) })
	return &r.part
}

// fetch reads the batches of the given frames if other nodes published them and they have not been
// read yet. It needs one scan of the log. Only one goroutine fetches at a time, so that each batch
// is read once for all subscribers. When the turn of the other goroutines comes, the batch has
// already been read. A goroutine whose ctx ends does not wait for its turn.
func (f *feed) fetch(ctx context.Context, frames []*frame) error {
	unread := func(r *frame) bool { return r.foreign && !r.read.Load() }
	if !slices.ContainsFunc(frames, unread) {
		return nil
	}
	if err := enterAlone(ctx, f.fetching); err != nil {
		return err
	}
	defer func() { <-f.fetching }()
	first, size := slices.IndexFunc(frames, unread), 0
	if first < 0 {
		return nil // another subscription has read the batches in the meantime
	}
	frames = frames[first:]
	for _, r := range frames {
		size += r.size
	}
	return f.log.Scan(ctx, frames[0].seq, size, func(e *engine.Entry) bool {
		for len(frames) > 0 && frames[0].seq < e.Seq {
			frames = frames[1:]
		}
		if len(frames) > 0 && frames[0].seq == e.Seq && unread(frames[0]) {
			b := batch(e)
			frames[0].bytes = f.hub.opts.Frame(nil, f.s.Mode, &b)
			frames[0].read.Store(true)
		}
		return len(frames) > 1 || len(frames) == 1 && frames[0].seq > e.Seq
	})
}

// Callers of all methods below hold the feed's lock.

func (t *tail) wanted() bool { return t.watchers() > 0 }

// watchers returns the number of subscribers.
func (t *tail) watchers() int {
	if t == nil {
		return 0
	}
	return t.subscribers
}

// joinTail adds a subscriber. The first subscriber starts the tail above all admitted batches. Batches
// that are in flight at that time cannot be part of the tail, because their payloads were not kept
// when they were admitted (see admitted.unknown).
func joinTail(f *feed) {
	if f.tail == nil {
		f.tail = new(tail)
	}
	if f.tail.subscribers++; f.tail.subscribers == 1 {
		f.tail.low = f.ahead.Cursor().Cursor + 1
	}
}

func (t *tail) leave(f *feed) {
	if t.subscribers--; t.subscribers == 0 {
		t.clear(f)
		t.packs = false
		f.view.Store(nil) // otherwise the view would keep the frames in memory
	}
}

func (t *tail) clear(f *feed) {
	if t != nil {
		f.hub.tail.Add(-int64(t.bytes + t.dropped))
		t.frames, t.bytes, t.dropped = nil, 0, 0
	}
}

// add adds a batch that became durable. A batch below t.low, which arrived late, is not added; the
// subscriptions that need it are below t.low too and read it from the log.
func (t *tail) add(f *feed, a *admitted) {
	seq := a.header.Seq
	if !t.wanted() || seq < t.low {
		return
	}
	size := EncodedSize(f.s.Mode, int(a.header.Size)) + 128 // 128 is an estimate of the overhead
	if t.packs {
		size += size / 2 // an estimate of the compressed bytes, which the frame holds as well
	}
	if a.unknown || f.hub.tail.Load()+int64(size) > f.hub.opts.TailTotal {
		// The batch was admitted before the first subscriber joined, or all tails together are
		// full.
		t.skip(f, seq)
		return
	}
	r := &frame{pins: newPins(size), seq: seq, size: size, at: a.at, batch: a.batch, foreign: a.foreign}
	if i := seek(t.frames, seq); i == len(t.frames) {
		t.frames = append(t.frames, r)
	} else {
		t.free(f)
		t.frames = slices.Insert(t.frames, i, r)
	}
	t.bytes += size
	f.hub.tail.Add(int64(size))
	n := 0
	for bytes := t.bytes; bytes > f.hub.opts.TailBytes && n < len(t.frames)-1; n++ {
		bytes -= t.frames[n].size
	}
	t.shift(f, n)
}

// skip leaves a batch out of the tail. To keep the invariant, the tail drops its frames and raises
// t.low above this batch and above all admitted batches.
func (t *tail) skip(f *feed, seq weir.Seq) {
	if t.wanted() && seq >= t.low {
		t.clear(f)
		t.low = max(f.ahead.Cursor().Cursor, seq) + 1
	}
}

// seek returns the index of the first frame whose sequence is seq or higher.
func seek(frames []*frame, seq weir.Seq) int {
	if n := len(frames); n == 0 || frames[n-1].seq < seq {
		return n // the common case: subscriptions wait for the next batch, and publishers append it
	}
	return sort.Search(len(frames), func(i int) bool { return frames[i].seq >= seq })
}

// shift drops the lowest n frames and raises t.low above them.
func (t *tail) shift(f *feed, n int) {
	if n == 0 {
		return
	}
	for _, r := range t.frames[:n] {
		t.bytes -= r.size
		t.dropped += r.size
		t.low = r.seq + 1
	}
	t.frames = t.frames[n:]
	if t.dropped > f.hub.opts.TailBytes/4 || len(t.frames) == 0 {
		t.free(f)
	}
}

// free copies t.frames to a new array. The old array also held the dropped frames; their memory is
// freed as soon as no view refers to the old array.
func (t *tail) free(f *feed) {
	t.frames = slices.Clone(t.frames)
	f.hub.tail.Add(-int64(t.dropped))
	t.dropped = 0
}

// raise drops the frames of evicted batches, which are those below low.
func (t *tail) raise(f *feed, low weir.Seq) {
	if t != nil && len(t.frames) > 0 && t.frames[0].seq < low {
		t.shift(f, seek(t.frames, low))
	}
}
