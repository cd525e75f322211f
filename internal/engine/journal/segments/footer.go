package segments

import "encoding/binary"

// footer is the last part of a sealed segment, and says where the other parts are. A full segment
// is sealed when its index and its footer are written.
type footer struct {
	number    uint64
	nextGroup uint64
	end       int64 // offset of the end of the groups
	slots     int
	index     int64 // offset of the index
	indexSum  uint32
	keys      keyTable
}

// keyTable says where a sealed segment stores the digests of its idempotency keys. A segment of an
// older build stores no digests, and all fields are 0.
type keyTable struct {
	at    int64  // offset of the keys; their directory follows them, and the index follows the directory
	count int    // number of keys
	sum   uint32 // checksum of the directory
}

func (f footer) encode(seed uint32) []byte {
	b := make([]byte, footerSize)
	binary.LittleEndian.PutUint32(b[4:], footerMagic)
	binary.LittleEndian.PutUint64(b[8:], f.number)
	binary.LittleEndian.PutUint64(b[16:], f.nextGroup)
	binary.LittleEndian.PutUint32(b[24:], uint32(f.end))
	binary.LittleEndian.PutUint32(b[28:], uint32(f.slots))
	binary.LittleEndian.PutUint32(b[32:], uint32(f.index))
	binary.LittleEndian.PutUint32(b[36:], f.indexSum)
	binary.LittleEndian.PutUint32(b[40:], uint32(f.keys.at))
	binary.LittleEndian.PutUint32(b[44:], uint32(f.keys.count))
	binary.LittleEndian.PutUint32(b[48:], f.keys.sum)
	binary.LittleEndian.PutUint32(b, Sum(seed, b[4:]))
	return b
}

func decodeFooter(b []byte, seed uint32) (footer, bool) {
	if binary.LittleEndian.Uint32(b[4:]) != footerMagic || binary.LittleEndian.Uint32(b) != Sum(seed, b[4:footerSize]) {
		return footer{}, false
	}
	f := footer{
		number: binary.LittleEndian.Uint64(b[8:]), nextGroup: binary.LittleEndian.Uint64(b[16:]),
		end: int64(binary.LittleEndian.Uint32(b[24:])), slots: int(binary.LittleEndian.Uint32(b[28:])),
		index: int64(binary.LittleEndian.Uint32(b[32:])), indexSum: binary.LittleEndian.Uint32(b[36:]),
		keys: keyTable{
			at: int64(binary.LittleEndian.Uint32(b[40:])), count: int(binary.LittleEndian.Uint32(b[44:])),
			sum: binary.LittleEndian.Uint32(b[48:]),
		},
	}
	if f.keys.count == 0 || f.keys.at < f.end || f.keys.at+keySpace(f.keys.count) != f.index {
		f.keys = keyTable{}
	}
	return f, true
}

// unused returns the offset at which the unused space after the groups ends.
func (f *footer) unused() int64 {
	if f.keys.count > 0 {
		return f.keys.at
	}
	return f.index
}
