package journal

import (
	"slices"
	"sort"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/journal/segments"
)

// place is the position of a record: segment number and offset.
type place struct {
	segment uint32
	off     uint32
}

// before reports whether p precedes o in the journal.
func (p place) before(o place) bool {
	return p.segment < o.segment || p.segment == o.segment && p.off < o.off
}

// item is what the in-memory index knows about an entry.
type item struct {
	seq   weir.Seq
	time  weir.Time
	place place
	size  uint32 // size of the payload
	head  uint16 // size of the record without its payload
	kind  segments.Kind
	flags engine.Flags
	keyed bool   // the entry has a key
	key   uint16 // size of the key; 0 if there is no key or if its size is not known yet
	tag   bool   // the record has a tag
}

func (it *item) length() int { return int(it.head) + int(it.size) }

// bytes returns the space that the record takes in its segment, including its slot in the index.
func (it *item) bytes() int64 { return int64(segments.Padded(it.length()) + segments.SlotSize) }

// packed is an item in 24 bytes: sequence and time are relative to the base of the chunk that holds
// the item, and the payload size takes 24 bits.
type packed struct {
	seq     uint32
	time    uint32
	segment uint32
	off     uint32
	size    uint32 // low 24 bits: size of the payload; higher bits: kind (2 bits), keyed (1), flags (4), tag (1)
	head    uint16
	key     uint16 // size of the key; 0 if there is no key or if its size is not known yet
}

const (
	sizeBits   = 24
	kindShift  = 24
	keyedBit   = 1 << 26
	flagShift  = 27
	flagMask   = 0xf
	tagBit     = 1 << 31
	maxPayload = 1<<sizeBits - 1
)

// chunk is a run of entries in increasing order of sequence.
type chunk struct {
	seq   weir.Seq  // base: packed items store how far their sequence is above it
	time  weir.Time // base: packed items store how much later their time is
	items []packed
}

const (
	firstChunk = 8
	maxChunk   = 512
)

// pack returns the packed form of an item. It returns false if the item's sequence or time is below
// the base of the chunk, or too far above the base.
func (c *chunk) pack(it item) (packed, bool) {
	ds, dt := uint64(it.seq-c.seq), uint64(it.time-c.time)
	if it.seq < c.seq || it.time < c.time || ds > 1<<32-1 || dt > 1<<32-1 {
		return packed{}, false
	}
	p := packed{seq: uint32(ds), time: uint32(dt), segment: it.place.segment, off: it.place.off, head: it.head, key: it.key,
		size: it.size | uint32(it.kind)<<kindShift | uint32(it.flags&flagMask)<<flagShift}
	if it.keyed {
		p.size |= keyedBit
	}
	if it.tag {
		p.size |= tagBit
	}
	return p, true
}

func (c *chunk) item(i int) (it item) {
	c.unpack(i, &it)
	return it
}

// unpack copies the i-th item to *it.
func (c *chunk) unpack(i int, it *item) {
	p := &c.items[i]
	it.seq, it.time = c.seq+weir.Seq(p.seq), c.time+weir.Time(p.time)
	it.place.segment, it.place.off = p.segment, p.off
	it.head, it.key, it.size = p.head, p.key, p.size&maxPayload
	it.kind, it.flags = segments.Kind(p.size>>kindShift&3), engine.Flags(p.size>>flagShift&flagMask)
	it.keyed, it.tag = p.size&keyedBit != 0, p.size&tagBit != 0
}

func (c *chunk) last() weir.Seq { return c.seq + weir.Seq(c.items[len(c.items)-1].seq) }

// index finds the entries of one log by sequence. The first chunk grows from one entry to
// firstChunk entries. Each further chunk is twice as large as the one before it, up to maxChunk
// entries. So a log with one entry takes 72 bytes, and a large log takes 24 bytes per entry.
// Entries arrive nearly in order, so an insert is almost always an append.
type index struct {
	chunks []chunk
}

// len returns the number of items.
func (x *index) len() int {
	n := 0
	for i := range x.chunks {
		n += len(x.chunks[i].items)
	}
	return n
}

// search returns the number of the chunk that holds the first item at or above seq, and the
// position of the item in that chunk. It returns (len(chunks), 0) if there is no such item.
func (x *index) search(seq weir.Seq) (int, int) {
	n := sort.Search(len(x.chunks), func(i int) bool { return x.chunks[i].last() >= seq })
	if n == len(x.chunks) {
		return n, 0
	}
	c := &x.chunks[n]
	return n, sort.Search(len(c.items), func(i int) bool { return c.seq+weir.Seq(c.items[i].seq) >= seq })
}

func (x *index) find(seq weir.Seq) (item, bool) {
	n, i := x.search(seq)
	if n == len(x.chunks) {
		return item{}, false
	}
	it := x.chunks[n].item(i)
	return it, it.seq == seq
}

// insert adds an item. If the index has an item with the same sequence, insert replaces that item
// and returns it. Both items are copies of the same entry, so if one of them knows the size of the
// key, the index knows it afterwards.
func (x *index) insert(it item) (old item, replaced bool) {
	if n := len(x.chunks); n == 0 || x.chunks[n-1].last() < it.seq {
		x.push(it)
		return item{}, false
	}
	n, i := x.search(it.seq)
	c := &x.chunks[n]
	old = c.item(i)
	if replaced = old.seq == it.seq; replaced {
		it.key = max(it.key, old.key)
	}
	p, ok := c.pack(it)
	switch {
	case ok && replaced:
		c.items[i] = p
	case ok && c.hasRoom():
		c.items = slices.Insert(c.items, i, p)
	default:
		x.rebuild(n, i, it, replaced)
	}
	return old, replaced
}

// keySize is the size of the key of one entry.
type keySize struct {
	seq  weir.Seq
	size uint16
}

// learn stores sizes of keys that were read from disk. The slice sizes must be sorted by sequence.
// Entries that were removed in the meantime are skipped.
func (x *index) learn(sizes []keySize) {
	if len(sizes) == 0 {
		return
	}
	n, i := x.search(sizes[0].seq)
	for ; n < len(x.chunks); n, i = n+1, 0 {
		for c := &x.chunks[n]; i < len(c.items); i++ {
			at := c.seq + weir.Seq(c.items[i].seq)
			for len(sizes) > 0 && sizes[0].seq < at {
				sizes = sizes[1:]
			}
			if len(sizes) == 0 {
				return
			}
			if sizes[0].seq == at {
				c.items[i].key = sizes[0].size
			}
		}
	}
}

// push appends an item whose sequence is higher than all others.
func (x *index) push(it item) {
	if n := len(x.chunks); n > 0 {
		c := &x.chunks[n-1]
		if p, ok := c.pack(it); ok && c.hasRoom() {
			c.items = append(c.items, p)
			return
		}
	}
	x.chunks = append(x.chunks, newChunk(x.room(), it))
}

// hasRoom reports whether the chunk can take one more item. If the chunk is full but smaller than
// firstChunk, hasRoom first doubles its capacity.
func (c *chunk) hasRoom() bool {
	if n := cap(c.items); len(c.items) == n && n < firstChunk {
		c.items = append(make([]packed, 0, min(2*n, firstChunk)), c.items...)
	}
	return len(c.items) < cap(c.items)
}

// room returns the capacity of the next chunk: twice that of the last one, up to maxChunk.
func (x *index) room() int {
	if len(x.chunks) == 0 {
		return 1
	}
	return min(2*cap(x.chunks[len(x.chunks)-1].items), maxChunk)
}

func newChunk(room int, it item) chunk {
	c := chunk{seq: it.seq, time: it.time, items: make([]packed, 0, room)}
	p, _ := c.pack(it)
	c.items = append(c.items, p)
	return c
}

// rebuild inserts an item at position i of chunk n, or replaces the item there if the parameter
// replace is true. It is called when the chunk is full, or when the item is too far from the base
// of the chunk. It replaces the chunk by one or more new chunks.
func (x *index) rebuild(n, i int, it item, replace bool) {
	c := &x.chunks[n]
	all := make([]item, 0, len(c.items)+1)
	for k := range c.items {
		if k == i {
			all = append(all, it)
			if replace {
				continue
			}
		}
		all = append(all, c.item(k))
	}
	parts := layOut(all)
	x.chunks = append(x.chunks[:n], append(parts, x.chunks[n+1:]...)...)
}

// layOut distributes items over new chunks and leaves free space in them for later inserts.
func layOut(all []item) []chunk {
	var parts []chunk
	room := max(firstChunk, len(all))
	if len(all) > maxChunk {
		room = maxChunk/2 + 1
	} else if spare := len(all) + len(all)/4; spare <= maxChunk {
		room = max(room, spare)
	}
	for len(all) > 0 {
		n := min(room, len(all))
		base := all[0]
		for _, it := range all[1:n] {
			base.time = min(base.time, it.time)
		}
		c := chunk{seq: base.seq, time: base.time, items: make([]packed, 0, room)}
		k := 0
		for ; k < n; k++ {
			p, ok := c.pack(all[k])
			if !ok {
				break
			}
			c.items = append(c.items, p)
		}
		if k == 0 { // the first item is more than 49 days (2^32 ms) newer than a later one, so the first item gets its own chunk
			c, k = newChunk(1, all[0]), 1
		}
		parts, all = append(parts, c), all[k:]
	}
	return parts
}

// ascend visits the items from seq upwards until visit returns false.
func (x *index) ascend(seq weir.Seq, visit func(item) bool) {
	n, i := x.search(seq)
	for ; n < len(x.chunks); n, i = n+1, 0 {
		for c := &x.chunks[n]; i < len(c.items); i++ {
			if !visit(c.item(i)) {
				return
			}
		}
	}
}

// take appends the items from seq upwards to the slice into, until that slice has n items.
func (x *index) take(seq weir.Seq, into []head, n int) []head {
	c, i := x.search(seq)
	for ; c < len(x.chunks); c, i = c+1, 0 {
		chunk := &x.chunks[c]
		for ; i < len(chunk.items); i++ {
			if len(into) == n {
				return into
			}
			into = append(into, head{})
			chunk.unpack(i, &into[len(into)-1].item)
		}
	}
	return into
}

// cut removes the items below low and returns them as a separate index. Later inserts into x do not
// change the returned index.
func (x *index) cut(low weir.Seq) index {
	n, i := x.search(low)
	if n == 0 && i == 0 {
		return index{}
	}
	out := index{chunks: append([]chunk(nil), x.chunks[:n]...)}
	rest := x.chunks[n:]
	if i > 0 {
		c := rest[0]
		out.chunks = append(out.chunks, chunk{c.seq, c.time, c.items[:i:i]})
		kept := chunk{c.seq, c.time, make([]packed, len(c.items)-i, cap(c.items)-i)}
		copy(kept.items, c.items[i:])
		rest = append([]chunk{kept}, rest[1:]...)
	} else {
		rest = append([]chunk(nil), rest...)
	}
	x.chunks = rest
	return out
}
