package stream

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// places is a hash table with linear probing. It maps the digest of an idempotency key to the key's
// position in the queue. It needs a third of the memory and a tenth of the time of a Go map.
//
// A slot holds 31 bits of the digest, a bit that marks the slot as used, and a position, which has
// 32 bits. The 31 bits determine the slot where a search starts, so the table can grow and shrink
// without reading the keys.
type places struct {
	slots []uint64 // the length is a power of two; at most three quarters of the slots are used
	used  int
	shift int // 64 minus the binary logarithm of len(slots)
}

// spread is a random odd number, different in each process, so that clients cannot choose keys
// whose searches all start at the same slot.
var spread = rand.Uint64() | 1

const (
	slotUsed    = 1 << 32
	fewestSlots = 8
)

// tagOf returns the upper half of a slot for a digest: 31 bits of the digest and the bit slotUsed.
func tagOf(d digest) uint64 {
	return uint64(binary.LittleEndian.Uint32(d[:]))<<32 | slotUsed
}

// home returns the index at which the search for a key starts. The parameter slot is the value of a
// slot for that key; home uses only the bits of the digest in it.
func (p *places) home(slot uint64) int { return int(slot >> 33 * spread >> p.shift) }

// find returns the slot of the key with digest d. It calls the function matches to ask whether the
// key at a position has this digest. If there is no such key, ok is false and slot is the free slot
// where the key belongs.
func (p *places) find(d digest, matches func(pos uint32) bool) (slot int, ok bool) {
	tag := tagOf(d)
	for i := p.home(tag); ; i = (i + 1) & (len(p.slots) - 1) {
		s := p.slots[i]
		if s == 0 {
			return i, false
		}
		if s&^(slotUsed-1) == tag && matches(uint32(s)) {
			return i, true
		}
	}
}

// set stores the position of a key in a slot that find returned.
func (p *places) set(slot int, d digest, pos uint32) {
	if p.slots[slot] == 0 {
		p.used++
	}
	p.slots[slot] = tagOf(d) | uint64(pos)
}

// reserve makes room for n more keys. Slots that find returned before are not valid afterwards.
func (p *places) reserve(n int) {
	if (p.used+n)*4 > len(p.slots)*3 {
		p.resize(1 << bits.Len(uint((p.used+n)*4/3)))
	}
}

// remove frees a slot. It moves keys in the following slots forward, so that searches, which stop
// at a free slot, still find them.
func (p *places) remove(slot int) {
	p.used--
	mask := len(p.slots) - 1
	for next := (slot + 1) & mask; p.slots[next] != 0; next = (next + 1) & mask {
		if away := (next - p.home(p.slots[next])) & mask; away >= (next-slot)&mask {
			p.slots[slot], slot = p.slots[next], next
		}
	}
	p.slots[slot] = 0
	if len(p.slots) > fewestSlots && p.used*8 < len(p.slots) {
		p.resize(len(p.slots) / 4)
	}
}

// fill adds many slots. The function same reports whether two positions hold the same key. Of
// several slots for the same key, the one with the newest position remains.
//
// A large table does not fit into the processor's cache. If fill added the slots in the order of
// the keys, it would wait for main memory at each key. So it sorts the slots by the part of the
// table where they belong, and fills one part after another.
func (p *places) fill(slots []uint64, same func(pos, other uint32) bool) {
	p.reserve(len(slots))
	const parts = 256
	shift := max(64-p.shift-bits.Len(parts-1), 0) // an index of the table, shifted right by this number, gives the part
	var ends [parts]int
	for _, s := range slots {
		ends[p.home(s)>>shift]++
	}
	sum := 0
	for i, count := range ends {
		ends[i], sum = sum, sum+count
	}
	sorted := make([]uint64, len(slots))
	for _, s := range slots {
		end := &ends[p.home(s)>>shift]
		sorted[*end] = s
		*end++
	}
	mask := len(p.slots) - 1
	for _, s := range sorted {
		i := p.home(s)
		for p.slots[i] != 0 && (p.slots[i]>>32 != s>>32 || !same(uint32(p.slots[i]), uint32(s))) {
			i = (i + 1) & mask
		}
		if p.slots[i] == 0 {
			p.used++
		} else if int32(uint32(p.slots[i])-uint32(s)) > 0 {
			continue
		}
		p.slots[i] = s
	}
}

func (p *places) resize(n int) {
	old := p.slots
	p.slots = make([]uint64, max(n, fewestSlots))
	p.shift = 64 - bits.TrailingZeros(uint(len(p.slots)))
	mask := len(p.slots) - 1
	for _, s := range old {
		if s != 0 {
			i := p.home(s)
			for p.slots[i] != 0 {
				i = (i + 1) & mask
			}
			p.slots[i] = s
		}
	}
}
