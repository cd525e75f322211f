package hub

import (
	"context"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"weir"
	"weir/internal/engine"
)

// tail keeps in memory the recent batches of a stream that has subscribers, so that a batch is encoded
// once however many subscribers there are, and not read back from the log.
//
// Its invariant: the tail has a frame for every durable batch at or above low. A subscription at or
// above low can therefore read from the tail alone, and one below low reads from the log. When the
// tail cannot hold a batch, it must raise low above it. Batches leave the tail from the lowest up,
// when it exceeds Options.TailBytes, or when they are evicted. A stream without subscribers has no
// tail.
//
// Subscriptions read frames through a view, without a lock. So the tail never writes to an element
// of frames, but only appends; to insert or to free elements it makes a copy.
type tail struct {
	subscribers int
	low         weir.Seq
	frames      []*frame // in increasing order of sequence
	bytes       int      // sum of the sizes of frames
	dropped     int      // sum of the sizes of frames that were dropped and that the array still holds
}

// frame is a batch in the tail. It is encoded when the first subscriber needs it.
//
// A batch of this node arrives with its payload, and encoded sets bytes. A batch of another node
// (foreign) arrives as a header only; fetch reads it from the log and sets the field bytes, then the
// flag read.
type frame struct {
	seq   weir.Seq
	size  int   // estimated memory
	at    int64 // when it was admitted, in meter time; 0 for another node's batch
	once  sync.Once
	batch weir.Batch // until it is encoded
	bytes []byte     // the encoded batch

	foreign bool
	read    atomic.Bool // foreign only: bytes is set

	pins pins // only used if the frame is large
}

// encoded returns the frame's bytes. The first caller encodes the batch. Callers must not hold the
// feed's lock, because encoding takes time. It returns nil for another node's batch that fetch did not
// read, because the batch was evicted in the meantime or reading failed.
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

// fetch reads the batches among frames that other nodes published and that have not been read yet,
// with one scan of the log. Only one goroutine fetches at a time, so that a batch is read once for
// all subscribers; the others find it read when they get the lock.
func (f *feed) fetch(ctx context.Context, frames []*frame) error {
	unread := func(r *frame) bool { return r.foreign && !r.read.Load() }
	if !slices.ContainsFunc(frames, unread) {
		return nil
	}
	f.fetching.Lock()
	defer f.fetching.Unlock()
	first, size := slices.IndexFunc(frames, unread), 0
	if first < 0 {
		return nil // another subscription has read them in the meantime
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

// All methods below are called with the feed's lock held.

func (t *tail) wanted() bool { return t.subscribers > 0 }

// join adds a subscriber. The first one starts the tail, above all admitted batches: those that are
// in flight were admitted without keeping their payload (see admitted.unknown).
func (t *tail) join(f *feed) {
	if t.subscribers++; t.subscribers == 1 {
		t.low = f.ahead.Cursor().Cursor + 1
	}
}

func (t *tail) leave(f *feed) {
	if t.subscribers--; t.subscribers == 0 {
		t.clear(f)
		f.view.Store(nil) // it would keep the frames in memory
	}
}

func (t *tail) clear(f *feed) {
	f.hub.tail.Add(-int64(t.bytes + t.dropped))
	t.frames, t.bytes, t.dropped = nil, 0, 0
}

// add adds a batch that became durable. A late batch below the tail is not added; subscribers below
// low read it from the log.
func (t *tail) add(f *feed, a *admitted) {
	seq := a.header.Seq
	if !t.wanted() || seq < t.low {
		return
	}
	size := encodedSize(f.s.Mode, int(a.header.Size)) + 128 // and an estimate of the overhead
	if a.unknown || f.hub.tail.Load()+int64(size) > f.hub.opts.TailTotal {
		t.skip(f, seq) // it was admitted before the first subscriber joined, or all tails are full
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

// skip leaves a batch out of the tail. To keep the invariant, the tail drops its frames and starts
// over above this batch and all admitted ones.
func (t *tail) skip(f *feed, seq weir.Seq) {
	if t.wanted() && seq >= t.low {
		t.clear(f)
		t.low = max(f.ahead.Cursor().Cursor, seq) + 1
	}
}

// seek returns the index of the first frame at or above seq.
func seek(frames []*frame, seq weir.Seq) int {
	if n := len(frames); n == 0 || frames[n-1].seq < seq {
		return n // the common case: subscriptions and publishers are at the end
	}
	return sort.Search(len(frames), func(i int) bool { return frames[i].seq >= seq })
}

// shift drops the lowest n frames and raises low accordingly.
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

// free moves the frames to an array of their own, so that the memory of dropped ones is freed as
// soon as no view has them.
func (t *tail) free(f *feed) {
	t.frames = slices.Clone(t.frames)
	f.hub.tail.Add(-int64(t.dropped))
	t.dropped = 0
}

// raise drops the frames of evicted batches.
func (t *tail) raise(f *feed, low weir.Seq) {
	if len(t.frames) > 0 && t.frames[0].seq < low {
		t.shift(f, seek(t.frames, low))
	}
}
