package journal

import (
	"encoding/binary"
	"math/bits"
)

// mendable is the largest number of bytes in which repair searches for a flipped bit. The search
// gives a wrong result if arbitrary damage happens to look like a single flipped bit. For n bytes,
// the probability of this is 8n/2^32: less than 1 in 100,000 for 4 KiB, but too high for long
// payloads.
const mendable = 4096

// flippedBit finds the bit of b that must be flipped back so that b has the expected checksum. diff
// is the XOR of the actual and the expected checksum. CRC is linear: flipping a bit changes the
// checksum by a value that depends only on the distance of the bit from the end of b.
func flippedBit(b []byte, diff uint32) (off int, mask byte, ok bool) {
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

// mendBytes undoes a single flipped bit, either in b or in its stored checksum. has is the checksum
// that b has now, and should is the stored one. The result is the corrected copy of b, or b itself
// if the flipped bit is in the checksum.
func mendBytes(b []byte, has, should uint32) ([]byte, bool) {
	diff := has ^ should
	if bits.OnesCount32(diff) == 1 {
		return b, true // the flipped bit is in the checksum itself
	}
	off, mask, ok := flippedBit(b, diff)
	if !ok {
		return nil, false
	}
	mended := append([]byte(nil), b...)
	mended[off] ^= mask
	return mended, true
}

// mendRecord decodes the record at the start of b. It corrects up to one flipped bit in the
// record's head and up to one in its payload. The parameter head is the expected length of the
// head, or 0 if the length is not known. The result is (nil, false) if the head is beyond repair,
// and (record, false) if the head is usable but the payload is beyond repair.
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

// mendHead corrects a flipped bit in the head of a record. The bit may also be in the head's length
// field or in the head's checksum.
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
		if n != has { // a length other than the stored one: the flipped bit is in the length field
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
