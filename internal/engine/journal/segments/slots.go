package segments

import (
	"cmp"
	"encoding/binary"
	"slices"

	"weir/internal/engine"
)

// Slot is the index entry of one record in a sealed segment.
type Slot struct {
	Off   uint32
	Size  uint32 // size of the payload
	Head  uint16 // size of the head
	Kind  Kind
	Flags engine.Flags
	count uint32
	Log   uint64
	Seq   uint64
	Time  int64
	Keyed bool // the record has a key
	Tag   bool // the record has a tag
}

// The bits of a slot's flags byte that mark a record with a key and one with a tag. Engine flags use
// only lower bits.
const (
	slotKeyed  = 0x80
	slotTagged = 0x40
)

func appendSlot(b []byte, off uint32, r *Record) []byte {
	var s [SlotSize]byte
	binary.LittleEndian.PutUint32(s[0:], off)
	binary.LittleEndian.PutUint32(s[4:], uint32(len(r.Payload)))
	binary.LittleEndian.PutUint16(s[8:], uint16(r.HeadLen()))
	s[10], s[11] = byte(r.Kind), byte(r.Flags)
	if r.Key != "" {
		s[11] |= slotKeyed
	}
	if r.Tag != "" {
		s[11] |= slotTagged
	}
	binary.LittleEndian.PutUint32(s[12:], r.Count)
	binary.LittleEndian.PutUint64(s[16:], r.Log)
	binary.LittleEndian.PutUint64(s[24:], r.Seq)
	binary.LittleEndian.PutUint64(s[32:], uint64(r.Time))
	return append(b, s[:]...)
}

// DecodeSlot decodes the slot at the start of b.
func DecodeSlot(b []byte) Slot {
	return Slot{
		Off: binary.LittleEndian.Uint32(b), Size: binary.LittleEndian.Uint32(b[4:]), Head: binary.LittleEndian.Uint16(b[8:]),
		Kind: Kind(b[10]), Flags: engine.Flags(b[11] &^ (slotKeyed | slotTagged)), Keyed: b[11]&slotKeyed != 0, Tag: b[11]&slotTagged != 0,
		count: binary.LittleEndian.Uint32(b[12:]),
		Log:   binary.LittleEndian.Uint64(b[16:]), Seq: binary.LittleEndian.Uint64(b[24:]),
		Time: int64(binary.LittleEndian.Uint64(b[32:])),
	}
}

// SortByLog returns slots in an order in which the entries of a log follow each other. Other records
// come first, in their old order.
func SortByLog(slots []byte) []byte {
	all := make([]Slot, 0, len(slots)/SlotSize)
	order := make([]int, 0, cap(all))
	for i := 0; i*SlotSize < len(slots); i++ {
		all, order = append(all, DecodeSlot(slots[i*SlotSize:])), append(order, i)
	}
	slices.SortFunc(order, func(i, k int) int {
		a, b := &all[i], &all[k]
		if a.Kind.Entry() && b.Kind.Entry() {
			return cmp.Or(cmp.Compare(a.Log, b.Log), cmp.Compare(a.Seq, b.Seq), i-k)
		}
		if a.Kind.Entry() != b.Kind.Entry() && a.Kind.Entry() {
			return 1
		} else if a.Kind.Entry() != b.Kind.Entry() {
			return -1
		}
		return i - k
	})
	sorted := make([]byte, 0, len(slots))
	for _, i := range order {
		sorted = append(sorted, slots[i*SlotSize:][:SlotSize]...)
	}
	return sorted
}
