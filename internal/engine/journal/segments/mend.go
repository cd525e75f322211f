package segments

import (
	"encoding/binary"
	"slices"
)

// mendable is the largest number of bytes in which a check searches for a flipped bit. The search
// gives a wrong result if arbitrary damage happens to look like a single flipped bit. For n bytes,
// the probability of this is 8n/2^32: less than 1 in 100,000 for 4 KiB, but too high for long
// payloads.
const mendable = 4096

// flip flips the bits of the first n bytes of b, one at a time. As soon as the function valid
// returns true, flip returns true and leaves that bit flipped. Otherwise flip returns false and b
// is unchanged.
func flip(b []byte, n int, valid func() bool) bool {
	for bit := range 8 * min(n, len(b)) {
		b[bit/8] ^= 1 << (bit % 8)
		if valid() {
			return true
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	return false
}

// mendRecord decodes the record at the start of b. It corrects up to one flipped bit in the
// record's head (the part before the payload) and up to one in its payload. The result is (nil,
// false) if the head is beyond repair, and (record, false) if the head is usable but the payload is
// beyond repair.
func mendRecord(b []byte, seed uint32) (*Record, bool) {
	var r Record
	if r.DecodeHead(b, seed) != nil {
		if len(b) < RecordSize {
			return nil, false
		}
		h := slices.Clone(b[:min(len(b), mendable)])
		n := max(RecordSize, int(binary.LittleEndian.Uint16(h[12:]))) // the flipped bit may be in this length
		if !flip(h, n, func() bool { return r.DecodeHead(h, seed) == nil }) {
			return nil, false
		}
	}
	if uint64(r.Length) > uint64(len(b)-r.HeadLen()) {
		return nil, false
	}
	r.Payload = slices.Clone(b[r.HeadLen():][:r.Length])
	whole := func() bool { return Sum(0, r.Payload) == r.PayloadSum }
	return &r, whole() || len(r.Payload) <= mendable && flip(r.Payload, len(r.Payload), whole)
}
