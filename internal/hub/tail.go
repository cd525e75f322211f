package hub

import (
	"slices"
	"sort"
	"sync"

	"weir"
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
}

// encoded is the frame's bytes. The first who asks makes them, outside any lock of the feed.
func (r *frame) encoded(h *Hub, mode weir.Mode) []byte {
	r.once.Do(func() {
		r.bytes = h.opts.Frame(nil, mode, &r.batch)
		r.batch = weir.Batch{}
	})
	return r.bytes
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
	size := len(a.batch.Payload) + 128
	if a.batch.Payload == nil && a.header.Size > 0 || f.hub.tail.Load()+int64(size) > f.hub.opts.TailTotal {
		t.pass(f, seq) // it was on its way before anybody subscribed, or there is no room
		return
	}
	r := &frame{seq: seq, size: size, at: a.at, batch: a.batch}
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
