// Package deflate compresses the parts of a response separately, so that many responses can share
// the compressed parts. A part is a sequence of deflate blocks that refers to nothing before it and
// ends at a byte border. So parts can follow each other in any gzip member, in any order. All that
// a response has to remember between two parts is the checksum and the length of what it has sent
// (Member).
//
// A part ends with an empty stored block. Decoders hand out everything before such a block at once,
// so no data is held back.
package deflate

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/klauspost/compress/flate"
)

// Part is a compressed part of a response. It is immutable.
type Part struct {
	Bytes []byte
	crc   uint32 // checksum of the uncompressed bytes
	shift uint32 // what appending these bytes does to a checksum: see power
	size  uint32 // number of uncompressed bytes, modulo 2^32
}

// empty is an empty stored block: not the last block, type 0, length 0 and its complement.
var empty = []byte{0, 0, 0, 0xff, 0xff}

// Header is the beginning of a gzip member. It has no name and no time.
var Header = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}

// Compress compresses data and appends it to b. It keeps no compressor, and so no memory,
// between calls.
//
// The compressor has large tables on its stack, so it runs in a goroutine of its own. Otherwise the
// stack of every subscription would become several times as large.
func Compress(b, data []byte) Part {
	out := appender{b}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The compressor returns only errors of the writer, and an appender has none.
		_ = flate.StatelessDeflate(&out, data, false, nil)
	}()
	<-done
	return partOf(out.b, data)
}

// Store appends data to b without compressing it. It is for data that is too short to compress.
func Store(b, data []byte) Part {
	for rest := data; len(rest) > 0; {
		n := min(len(rest), math.MaxUint16)
		b = append(b, 0)
		b = binary.LittleEndian.AppendUint16(b, uint16(n))
		b = binary.LittleEndian.AppendUint16(b, ^uint16(n))
		b = append(b, rest[:n]...)
		rest = rest[n:]
	}
	return partOf(append(b, empty...), data)
}

func partOf(b, data []byte) Part {
	return Part{Bytes: b, crc: crc32.ChecksumIEEE(data), shift: power(uint64(len(data))), size: uint32(len(data))}
}

type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

// Member is the state of a gzip member to which parts are being written. It takes only eight bytes.
type Member struct{ crc, size uint32 }

// Add records that a part was written.
func (m *Member) Add(p *Part) {
	m.crc = multiply(p.shift, m.crc) ^ p.crc
	m.size += p.size
}

// Trailer returns the end of the member: the last block, which is empty, the checksum and the
// length.
func (m Member) Trailer() []byte {
	b := append(make([]byte, 0, 13), 1, 0, 0, 0xff, 0xff)
	b = binary.LittleEndian.AppendUint32(b, m.crc)
	return binary.LittleEndian.AppendUint32(b, m.size)
}

// The checksum of a text A followed by a text B is that of A, multiplied by x to the power of the
// number of bits in B, plus that of B. These are operations on polynomials over the field of two
// elements, modulo the polynomial of CRC-32. The highest bit of a uint32 is the coefficient of x^0.

// multiply returns the product of two polynomials.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & uint32(int32(a)>>31)
		b = b>>1 ^ crc32.IEEE&-(b&1)
	}
	return product
}

// squares holds x to the powers 8, 16, 32 and so on: each is the square of the one before.
var squares = func() (all [64]uint32) {
	all[0] = 1 << (31 - 8)
	for i := 1; i < len(all); i++ {
		all[i] = multiply(all[i-1], all[i-1])
	}
	return all
}()

// power returns x to the power of 8n, which is what n further bytes do to a checksum.
func power(n uint64) uint32 {
	p := uint32(1 << 31) // x to the power of 0
	for i := 0; n > 0; i, n = i+1, n>>1 {
		if n&1 != 0 {
			p = multiply(squares[i], p)
		}
	}
	return p
}
