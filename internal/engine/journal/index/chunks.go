// Package index is what a journal keeps in memory to find its records: the entries of a log by
// sequence, and the documents by key. Both take little memory, because a journal may have many
// millions of them.
package index

import (
	"slices"
	"sort"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/journal/segments"
)

// Place is the position of a record: segment number and offset.
type Place struct {
	Segment uint32
	Off     uint32
}

// Before reports whether p precedes o in the journal.
func (p Place) Before(o Place) bool {
	return p.Segment < o.Segment || p.Segment == o.Segment && p.Off < o.Off
}

// Extent is the place of a record (its segment and offset) and the number of bytes that the record
// takes in the segment, including its slot in the segment's index.
type Extent struct {
	Place
	Bytes int64
}

// Item is what the in-memory index knows about an entry.
type Item struct {
	Seq   weir.Seq
	Time  weir.Time
	Place Place
	Size  uint32 // size of the payload
	Head  uint16 // size of the record without its payload
	Kind  segments.Kind
	Flags engine.Flags
	Keyed bool   // the entry has a key
	Key   uint16 // size of the key; 0 if there is no key or if its size is not known yet
	Tag   bool   // the record has a tag
}

// Length returns the size of the record without its padding.
func (it *Item) Length() int { return int(it.Head) + int(it.Size) }

// Bytes returns the space that the record takes in its segment, including its slot in the index.
func (it *Item) Bytes() int64 { return int64(segments.Padded(it.Length()) + segments.SlotSize) }

// Header returns those fields of a header that the index holds.
func (it *Item) Header() (h engine.Header) {
	it.SetHeader(&h)
	return h
}

// SetHeader sets those fields of a header that the index holds. Count, ContentType, Key and First are
// not in the index. KeySize is in the index once the log has been opened since the start.
func (it *Item) SetHeader(h *engine.Header) {
	h.Kind, h.Flags, h.Seq, h.Time = engine.Kind(it.Kind), it.Flags, it.Seq, it.Time
	h.Size, h.KeySize = it.Size, it.Key
	if it.Kind == segments.KindGapClosed {
		h.Size = 0
	}
}

// packed is an item in 24 bytes: sequence and time are relative to the base of the chunk that holds
// the item, and the payload size takes 24 bits.
type packed struct {
	seq  uint32
	time uint32
	fact
}

// fact is an item without its sequence and time, in 16 bytes.
type fact struct {
	segment uint32
	off     uint32
	size    uint32 // low 24 bits: size of the payload; higher bits: kind (2 bits), keyed (1), flags (4), tag (1)
	head    uint16
	key     uint16 // size of the key; 0 if there is no key or if its size is not known yet
}

// FlagMask selects the flags that an item keeps. MaxPayload is the maximum size of a payload.
const (
	sizeBits   = 24
	kindShift  = 24
	keyedBit   = 1 << 26
	flagShift  = 27
	FlagMask   = 0xf
	tagBit     = 1 << 31
	MaxPayload = 1<<sizeBits - 1
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
func (c *chunk) pack(it *Item) (packed, bool) {
	ds, dt := uint64(it.Seq-c.seq), uint64(it.Time-c.time)
	if it.Seq < c.seq || it.Time < c.time || ds > 1<<32-1 || dt > 1<<32-1 {
		return packed{}, false
	}
	return packed{uint32(ds), uint32(dt), pack(it)}, true
}

func pack(it *Item) fact {
	f := fact{segment: it.Place.Segment, off: it.Place.Off, head: it.Head, key: it.Key,
		size: it.Size | uint32(it.Kind)<<kindShift | uint32(it.Flags&FlagMask)<<flagShift}
	if it.Keyed {
		f.size |= keyedBit
	}
	if it.Tag {
		f.size |= tagBit
	}
	return f
}

// unpack sets all fields of an item except its sequence and time.
func (f *fact) unpack(it *Item) {
	it.Place.Segment, it.Place.Off = f.segment, f.off
	it.Head, it.Key, it.Size = f.head, f.key, f.size&MaxPayload
	it.Kind, it.Flags = segments.Kind(f.size>>kindShift&3), engine.Flags(f.size>>flagShift&FlagMask)
	it.Keyed, it.Tag = f.size&keyedBit != 0, f.size&tagBit != 0
}

func (c *chunk) item(i int) (it Item) {
	c.unpack(i, &it)
	return it
}

// unpack copies the i-th item to *it.
func (c *chunk) unpack(i int, it *Item) {
	p := &c.items[i]
	it.Seq, it.Time = c.seq+weir.Seq(p.seq), c.time+weir.Time(p.time)
	p.unpack(it)
}

func (c *chunk) last() weir.Seq { return c.seq + weir.Seq(c.items[len(c.items)-1].seq) }

// chunks holds the entries of a log with more than one entry. The first chunk grows to firstChunk
// entries. Each further chunk is twice as large as the one before it, up to maxChunk entries. So a
// large log takes 24 bytes per entry. Entries arrive nearly in order, so an insert is almost always
// an append.
type chunks struct {
	list []chunk
}

// len returns the number of items.
func (x *chunks) len() int {
	n := 0
	for i := range x.list {
		n += len(x.list[i].items)
	}
	return n
}

// search returns the number of the chunk that holds the first item at or above seq, and the
// position of the item in that chunk. It returns (len(chunks), 0) if there is no such item.
func (x *chunks) search(seq weir.Seq) (int, int) {
	n := sort.Search(len(x.list), func(i int) bool { return x.list[i].last() >= seq })
	if n == len(x.list) {
		return n, 0
	}
	c := &x.list[n]
	return n, sort.Search(len(c.items), func(i int) bool { return c.seq+weir.Seq(c.items[i].seq) >= seq })
}

// find returns the item with this sequence, if there is one.
func (x *chunks) find(seq weir.Seq) (Item, bool) {
	n, i := x.search(seq)
	if n == len(x.list) {
		return Item{}, false
	}
	it := x.list[n].item(i)
	return it, it.Seq == seq
}

// insert adds an item. If the index has an item with the same sequence, insert replaces that item
// and returns it. Both items are copies of the same entry, so if one of them knows the size of the
// key, the index knows it afterwards.
func (x *chunks) insert(it Item) (old Item, replaced bool) {
	if n := len(x.list); n == 0 || x.list[n-1].last() < it.Seq {
		x.push(it)
		return Item{}, false
	}
	n, i := x.search(it.Seq)
	c := &x.list[n]
	old = c.item(i)
	if replaced = old.Seq == it.Seq; replaced {
		it.Key = max(it.Key, old.Key)
	}
	p, ok := c.pack(&it)
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

// KeySize is the size of the key of one entry.
type KeySize struct {
	Seq  weir.Seq
	Size uint16
}

// learn stores sizes of keys that were read from disk. The slice sizes must be sorted by sequence.
// Entries that were removed in the meantime are skipped.
func (x *chunks) learn(sizes []KeySize) {
	if len(sizes) == 0 {
		return
	}
	n, i := x.search(sizes[0].Seq)
	for ; n < len(x.list); n, i = n+1, 0 {
		for c := &x.list[n]; i < len(c.items); i++ {
			at := c.seq + weir.Seq(c.items[i].seq)
			for len(sizes) > 0 && sizes[0].Seq < at {
				sizes = sizes[1:]
			}
			if len(sizes) == 0 {
				return
			}
			if sizes[0].Seq == at {
				c.items[i].key = sizes[0].Size
			}
		}
	}
}

// push appends an item whose sequence is higher than all others.
func (x *chunks) push(it Item) {
	if n := len(x.list); n > 0 {
		c := &x.list[n-1]
		if p, ok := c.pack(&it); ok && c.hasRoom() {
			c.items = append(c.items, p)
			return
		}
	}
	x.list = append(x.list, newChunk(x.room(), it))
}

// append appends an item whose sequence is higher than all others, if the last chunk has room for
// it. Otherwise it returns false.
func (x *chunks) append(it *Item) bool {
	c := &x.list[len(x.list)-1]
	if len(c.items) == cap(c.items) || c.last() >= it.Seq {
		return false
	}
	p, ok := c.pack(it)
	if ok {
		c.items = append(c.items, p)
	}
	return ok
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
func (x *chunks) room() int {
	if len(x.list) == 0 {
		return 1
	}
	return min(2*cap(x.list[len(x.list)-1].items), maxChunk)
}

func newChunk(room int, it Item) chunk {
	c := chunk{seq: it.Seq, time: it.Time, items: make([]packed, 0, room)}
	p, _ := c.pack(&it)
	c.items = append(c.items, p)
	return c
}

// rebuild inserts an item at position i of chunk n, or replaces the item there if the parameter
// replace is true. It is called when the chunk is full, or when the item is too far from the base
// of the chunk. It replaces the chunk by one or more new chunks.
func (x *chunks) rebuild(n, i int, it Item, replace bool) {
	c := &x.list[n]
	all := make([]Item, 0, len(c.items)+1)
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
	x.list = append(x.list[:n], append(parts, x.list[n+1:]...)...)
}

// layOut distributes items over new chunks and leaves free space in them for later inserts.
func layOut(all []Item) []chunk {
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
			base.Time = min(base.Time, it.Time)
		}
		c := chunk{seq: base.Seq, time: base.Time, items: make([]packed, 0, room)}
		k := 0
		for ; k < n; k++ {
			p, ok := c.pack(&all[k])
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
func (x *chunks) ascend(seq weir.Seq, visit func(Item) bool) {
	n, i := x.search(seq)
	for ; n < len(x.list); n, i = n+1, 0 {
		for c := &x.list[n]; i < len(c.items); i++ {
			if !visit(c.item(i)) {
				return
			}
		}
	}
}

// fill visits the items from seq upwards and copies each into the item that next returns. It stops
// when next returns nil.
func (x *chunks) fill(seq weir.Seq, next func() *Item) {
	n, i := x.search(seq)
	for ; n < len(x.list); n, i = n+1, 0 {
		for c := &x.list[n]; i < len(c.items); i++ {
			it := next()
			if it == nil {
				return
			}
			c.unpack(i, it)
		}
	}
}

// cut removes the items below low and returns them as a separate index. Later inserts into x do not
// change the returned index.
func (x *chunks) cut(low weir.Seq) chunks {
	n, i := x.search(low)
	if n == 0 && i == 0 {
		return chunks{}
	}
	out := chunks{list: append([]chunk(nil), x.list[:n]...)}
	rest := x.list[n:]
	if i > 0 {
		c := rest[0]
		out.list = append(out.list, chunk{c.seq, c.time, c.items[:i:i]})
		kept := chunk{c.seq, c.time, make([]packed, len(c.items)-i, cap(c.items)-i)}
		copy(kept.items, c.items[i:])
		rest = append([]chunk{kept}, rest[1:]...)
	} else {
		rest = append([]chunk(nil), rest...)
	}
	x.list = rest
	return out
}
