package journal

import (
	"encoding/binary"
	"math/bits"
)

// mendable is the longest text in which a wrong bit is looked for. Any damage at all passes for a single wrong bit once
// in 2^32/(8n): with 4 KiB less than once in a hundred thousand; in long payloads far too often.
const mendable = 4096

// wrongBit finds the one bit of b that, turned over, makes the checksum what it should be. diff is the exclusive or of the
// checksum that b has and the one that it should have. CRC is linear: what a bit does to the checksum depends on its
// distance from the end alone.
func wrongBit(b []byte, diff uint32) (off int, mask byte, ok bool) {
	var does [8]uint32
	for bit := range does {
		does[bit] = castagnoli[1<<bit]
	}
	for off = len(b) - 1; off >= 0; off-- {
		for bit, d := range does {
			if d == diff {
				return off, 1 << bit, true
			}
			does[bit] = castagnoli[byte(d)] ^ d>>8
		}
	}
	return 0, 0, false
}

// mendBytes returns b as it was before one bit of it, or of its checksum, was turned over.
func mendBytes(b []byte, has, should uint32) ([]byte, bool) {
	diff := has ^ should
	if bits.OnesCount32(diff) == 1 {
		return b, true // of the checksum itself
	}
	off, mask, ok := wrongBit(b, diff)
	if !ok {
		return nil, false
	}
	mended := append([]byte(nil), b...)
	mended[off] ^= mask
	return mended, true
}

// mendRecord returns the record at the start of b as it was before one bit of it was turned over. head is how long its
// head should be, 0 when nobody knows.
func mendRecord(b []byte, seed uint32, head int) (*record, bool) {
	var r record
	if err := r.decodeHead(b, seed); err != nil {
		mended, ok := mendHead(b, seed, head)
		if !ok {
			return nil, false
		}
		if err := r.decodeHead(mended, seed); err != nil {
			return nil, false
		}
	}
	if uint64(r.length) > uint64(len(b)-r.headLen()) {
		return nil, false
	}
	payload := b[r.headLen():][:r.length]
	if has := sum(0, payload); has != r.payloadSum {
		if len(payload) > mendable {
			return &r, false
		}
		mended, ok := mendBytes(payload, has, r.payloadSum)
		if !ok {
			return &r, false
		}
		payload, r.payloadSum = mended, sum(0, mended)
	}
	r.payload = append([]byte(nil), payload...)
	return &r, true
}

// mendHead finds the wrong bit in a head, its length and its checksum included.
func mendHead(b []byte, seed uint32, head int) ([]byte, bool) {
	if len(b) < recordSize {
		return nil, false
	}
	has := int(binary.LittleEndian.Uint16(b[12:]))
	lengths := []int{has}
	if head > 0 {
		lengths = []int{head}
	} else {
		for bit := range 16 {
			lengths = append(lengths, has^1<<bit)
		}
	}
	for _, n := range lengths {
		if n < recordSize || n > len(b) || n > mendable {
			continue
		}
		h := append([]byte(nil), b[:n]...)
		if n != has { // then that is the wrong bit
			binary.LittleEndian.PutUint16(h[12:], uint16(n))
			if binary.LittleEndian.Uint32(h) == sum(seed, h[4:]) {
				return h, true
			}
			continue
		}
		if mended, ok := mendBytes(h[4:], sum(seed, h[4:]), binary.LittleEndian.Uint32(h)); ok {
			copy(h[4:], mended)
			binary.LittleEndian.PutUint32(h, sum(seed, h[4:]))
			return h, true
		}
	}
	return nil, false
}
