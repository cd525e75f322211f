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

// tail is the recent batches of a stream that somebody subscribes to, each encoded once for all subscribers. It holds
// every batch from low on, up to a bound of bytes; older ones are read from the log.
type tail struct {
	subscribers int
	low         weir.Seq
	frames      []*frame // in increasing sequence
	bytes       int
}

// frame is an encoded batch, or one that nobody asked for yet.
type frame struct {
	seq   weir.Seq
	size  int
	at    int64 // when it was admitted, by the meter
	once  sync.Once
	batch weir.Batch
	bytes []byte

	foreign bool        // another node's: who first asks reads it from the log
	read    atomic.Bool // of it: bytes is set
}

// encoded is the frame's bytes; nil: it could not be read any more. The first who asks makes them, outside any lock of the feed.
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

// fetch reads those of some frames that other nodes published, in one go and once for all subscribers.
func (f *feed) fetch(ctx context.Context, frames []*frame) error {
	unread := func(r *frame) bool { return r.foreign && !r.read.Load() }
	if !slices.ContainsFunc(frames, unread) {
		return nil
	}
	f.fetching.Lock()
	defer f.fetching.Unlock()
	first, size := slices.IndexFunc(frames, unread), 0
	if first < 0 {
		return nil // somebody did meanwhile
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

// join begins the tail with the first subscriber: at what is neither durable nor on its way.
func (t *tail) join(f *feed) {
	if t.subscribers++; t.subscribers == 1 {
		t.low = f.ahead.Cursor().Cursor + 1
	}
}

func (t *tail) leave(f *feed) {
	if t.subscribers--; t.subscribers == 0 {
		t.clear(f)
	}
}

func (t *tail) clear(f *feed) {
	f.hub.tail.Add(-int64(t.bytes))
	t.frames, t.bytes = nil, 0
}

// add takes a batch that became durable. A late one below the tail is left to the log.
func (t *tail) add(f *feed, a *admitted) {
	seq := a.header.Seq
	if !t.wanted() || seq < t.low {
		return
	}
	size := int(a.header.Size) + 128
	if a.unknown || f.hub.tail.Load()+int64(size) > f.hub.opts.TailTotal {
		t.pass(f, seq) // it was on its way before anybody subscribed, or there is no room
		return
	}
	r := &frame{seq: seq, size: size, at: a.at, batch: a.batch, foreign: a.foreign}
	i := len(t.frames)
	if i > 0 && t.frames[i-1].seq > seq {
		i = t.find(seq)
	}
	t.frames = slices.Insert(t.frames, i, r)
	t.bytes += size
	f.hub.tail.Add(int64(size))
	n := 0
	for bytes := t.bytes; bytes > f.hub.opts.TailBytes && n < len(t.frames)-1; n++ {
		bytes -= t.frames[n].size
	}
	t.shift(f, n)
}

// pass leaves a batch to the log: the tail begins anew above it.
func (t *tail) pass(f *feed, seq weir.Seq) {
	if t.wanted() && seq >= t.low {
		t.clear(f)
		t.low = max(f.ahead.Cursor().Cursor, seq) + 1
	}
}

// find is the place of the first frame at or above seq.
func (t *tail) find(seq weir.Seq) int {
	return sort.Search(len(t.frames), func(i int) bool { return t.frames[i].seq >= seq })
}

// shift gives up the lowest n frames.
func (t *tail) shift(f *feed, n int) {
	if n == 0 {
		return
	}
	for _, r := range t.frames[:n] {
		t.bytes -= r.size
		f.hub.tail.Add(-int64(r.size))
		t.low = r.seq + 1
	}
	clear(t.frames[:n])
	t.frames = t.frames[n:]
}

// raise gives up what was evicted.
func (t *tail) raise(f *feed, low weir.Seq) {
	if len(t.frames) > 0 && t.frames[0].seq < low {
		t.shift(f, t.find(low))
	}
}
