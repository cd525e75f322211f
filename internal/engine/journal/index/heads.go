package index

import (
	"encoding/binary"
	"fmt"
	"sort"
	"sync"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/journal/segments"
)

const (
	// headRun is the longest single read of a HeadReader, and the size of the buffer for it.
	headRun = 256 << 10
	// headBridge is a number of bytes. If the heads of two records (the parts before the payload)
	// are not farther apart than this, one read covers both. Reading the bytes between them takes
	// at most about as long as starting a second read.
	headBridge = 4 << 10
)

// Head is an item with those fields of its record that a judge needs. A head is half as large as an
// engine.Header, so less data moves from the CPU core of the reader to that of the judge.
type Head struct {
	Item
	known  bool // the other fields are complete
	count  uint32
	digest weir.KeyDigest
	first  weir.Seq // for a closed gap: its first sequence
}

// HeadReader reads those facts about the entries of a log that a judge needs and that are not in
// the index: the ranges of closed gaps, the tags, and for each key the digest and the event count.
type HeadReader struct {
	Log   engine.LogID
	Since weir.Time           // keys of older entries are read only if their sizes are unknown
	Sizes []KeySize           // sizes of keys that the index does not know yet, as the last call of Complete found them
	Tags  map[weir.Seq]string // tags that the last call of Complete found, by sequence; nil if there are none
	keys  segments.KeyReader
}

// Fill appends the items of x from seq upwards to heads, until heads has reached its capacity. It
// reports whether anything must be read from the disk to complete them.
func (r *HeadReader) Fill(x *Entries, seq weir.Seq, heads []Head) (_ []Head, missing bool) {
	x.Fill(seq, func() *Item {
		if len(heads) == cap(heads) {
			return nil
		}
		heads = append(heads, Head{})
		return &heads[len(heads)-1].Item
	})
	for i := range heads {
		it := &heads[i]
		it.known = it.Kind != segments.KindGapClosed && !it.Tag && (!it.Keyed || it.Key > 0 && it.Time < r.Since)
		missing = missing || !it.known
	}
	return heads, missing
}

// Complete reads what the heads lack. It calls the function segment with the number of a segment,
// once for each run of heads in the same segment.
func (r *HeadReader) Complete(heads []Head, segment func(uint32) *segments.Segment) error {
	r.Sizes, r.Tags = r.Sizes[:0], nil
	for len(heads) > 0 {
		n, number := 1, heads[0].Place.Segment
		for n < len(heads) && heads[n].Place.Segment == number {
			n++
		}
		seg := segment(number)
		r.takeKeys(seg, heads[:n])
		if err := r.read(seg, heads[:n]); err != nil {
			return err
		}
		heads = heads[n:]
	}
	return nil
}

// SetHeader sets those fields of h that Judge.Restore expects. The other fields of h must be empty.
func (d *Head) SetHeader(h *engine.Header, tags map[weir.Seq]string) {
	d.Item.SetHeader(h)
	h.Count, h.KeyDigest, h.First, h.Tag = d.count, d.digest, d.first, ""
	if tags != nil {
		h.Tag = tags[d.Seq]
	}
}

var headBuffers = sync.Pool{New: func() any { b := make([]byte, headRun); return &b }}

// read completes heads, which all lie in segment seg. One read covers heads that lie close together.
func (r *HeadReader) read(seg *segments.Segment, heads []Head) error {
	var shared *[]byte
	for i := 0; i < len(heads); {
		if heads[i].known {
			i++
			continue
		}
		if shared == nil {
			shared = headBuffers.Get().(*[]byte)
			defer headBuffers.Put(shared)
		}
		n, length := near(heads[i:])
		off := heads[i].Place.Off
		buf := (*shared)[:length]
		if err := seg.Read(buf, int64(off)); err != nil {
			return err
		}
		for ; n > 0; i++ {
			if heads[i].known {
				continue
			}
			n--
			it := &heads[i]
			if err := r.complete(it, seg, buf[it.Place.Off-off:][:need(&it.Item)]); err != nil {
				return err
			}
		}
	}
	return nil
}

// need returns how many bytes of a record must be read. A closed gap is read whole, because its
// payload holds the first sequence of the gap.
func need(it *Item) int {
	if it.Kind == segments.KindGapClosed {
		return it.Length()
	}
	return int(it.Head)
}

// near returns how many incomplete heads one read can cover, beginning with the first. It also
// returns the length of that read.
func near(heads []Head) (n, length int) {
	first := int64(heads[0].Place.Off)
	n, length = 1, need(&heads[0].Item)
	for k := range heads[1:] {
		it := &heads[1+k]
		if it.known {
			continue
		}
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
func (r *HeadReader) complete(it *Head, seg *segments.Segment, b []byte) error {
	if it.Kind == segments.KindGapClosed {
		var rec segments.Record
		err := it.Decode(b, seg, r.Log, &rec)
		if err == nil {
			it.first = rec.Header().First
			r.setTag(it, rec.Tag)
		}
		return err
	}
	ct, key, head, err := segments.CheckHead(b, seg.Seed)
	if err == nil && (segments.Kind(b[14]) != it.Kind || binary.LittleEndian.Uint64(b[16:]) != uint64(r.Log) ||
		binary.LittleEndian.Uint64(b[24:]) != uint64(it.Seq) || binary.LittleEndian.Uint32(b[8:]) != it.Size) {
		err = segments.ErrChecksum
	}
	if err != nil {
		return it.Verify(seg, r.Log, nil, err)
	}
	if it.Tag {
		_, tag := segments.TagOf(b, key, head)
		r.setTag(it, string(tag))
	}
	if !it.Keyed {
		it.known = true
		return nil
	}
	r.completeFromSlot(it, segments.KeySlot{Size: uint16(key - ct), Count: binary.LittleEndian.Uint32(b[40:]), Digest: weir.DigestKey(b[ct:key])})
	return nil
}

// setTag keeps the tag of an entry. Few entries have a tag, so the type Head has no field for it.
func (r *HeadReader) setTag(it *Head, tag string) {
	if tag == "" {
		return
	}
	if r.Tags == nil {
		r.Tags = make(map[weir.Seq]string)
	}
	r.Tags[it.Seq] = tag
}

// completeFromSlot completes the head of a batch from the key slot k.
func (r *HeadReader) completeFromSlot(it *Head, k segments.KeySlot) {
	it.known, it.count, it.digest = true, k.Count, k.Digest
	if it.Key == 0 {
		it.Key = k.Size
		r.Sizes = append(r.Sizes, KeySize{Seq: it.Seq, Size: k.Size})
	}
}

// fewKeys is a number of keys. For this many or fewer, reading the records is as fast as reading
// the key slots.
const fewKeys = 4

// takeKeys completes heads, which all lie in segment seg, with the key slots of that segment. A
// head without a usable key slot stays incomplete.
func (r *HeadReader) takeKeys(seg *segments.Segment, heads []Head) {
	n, from, to := 0, uint32(0), uint32(0)
	for i := range heads {
		if it := &heads[i]; it.Kind == segments.KindBatch && !it.known && !it.Tag {
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
	slots := r.keys.SlotsOf(seg, from, to, n*headBridge)
	count := len(slots) / segments.KeySlotSize
	at := func(i int) uint32 { return binary.LittleEndian.Uint32(slots[i*segments.KeySlotSize:]) }
	next := sort.Search(count, func(i int) bool { return at(i) >= from })
	for i := range heads {
		it := &heads[i]
		if it.Kind != segments.KindBatch || it.known || it.Tag {
			continue
		}
		if next >= count || at(next) != it.Place.Off {
			next = sort.Search(count, func(i int) bool { return at(i) >= it.Place.Off })
			if next == count || at(next) != it.Place.Off {
				continue
			}
		}
		r.completeFromSlot(it, segments.DecodeKeySlot(slots[next*segments.KeySlotSize:]))
		next++
	}
}

// Decode decodes the record of the item into *r. It returns engine.ErrDamaged if the bytes are not
// the record of this entry of this log.
func (it *Item) Decode(b []byte, seg *segments.Segment, log engine.LogID, r *segments.Record) error {
	return it.Verify(seg, log, r, r.Decode(b, seg.Seed))
}

// Verify returns engine.ErrDamaged if decoding returned an error, or if the record is not this entry
// of this log.
func (it *Item) Verify(seg *segments.Segment, log engine.LogID, r *segments.Record, err error) error {
	if err == nil && (r.Kind != it.Kind || r.Log != uint64(log) || r.Seq != uint64(it.Seq) || r.Length != it.Size) {
		err = segments.ErrChecksum
	}
	if err != nil {
		return seg.Damage(int64(it.Place.Off), fmt.Sprintf("entry %d of log %d", it.Seq, log), err)
	}
	return nil
}
