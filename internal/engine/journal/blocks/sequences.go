package blocks

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// A block is encoded as literals, which are bytes of the content, and sequences. A sequence says how
// many literals come next, and then how many bytes of the content are repeated, and from how far
// back. DESIGN.md describes the bytes, and says why they are arranged so.
const (
	sequenceSize = 3
	sequenceHead = 4  // number of sequences (2) and of literals (2)
	leastMatch   = 4  // length of the shortest repetition
	moreLiterals = 31 // the number of literals is at least this; the rest is among the lengths
	moreMatch    = 29 // the same for the length of the repetition, less leastMatch
	longLength   = 255
)

// matcher finds repetitions in the content of a block.
type matcher struct {
	newest [1 << 12]uint16 // for each hash of four bytes one more than their newest position; 0: none
	older  [Size]uint16    // for each position the next older one with the same hash, also plus 1

	literals, sequences, lengths []byte
}

// chain is the number of earlier positions with the same hash that a search looks at. With more, a
// block becomes a little smaller, and encoding takes longer.
const chain = 8

func hash(v uint32) uint32 { return v * 2654435761 >> (32 - 12) }

// find encodes content of at most Size bytes.
func (m *matcher) find(content []byte) {
	clear(m.newest[:])
	m.literals, m.sequences, m.lengths = m.literals[:0], m.sequences[:0], m.lengths[:0]
	start, end := 0, len(content)-8 // content before start is encoded; from end on nothing is searched
	for i := 0; i < end; {
		from, n := m.longest(content, i, leastMatch-1)
		m.insert(content, i)
		known := i + 1
		if n < leastMatch {
			i++
			continue
		}
		for i+1 < end { // a repetition that begins one byte later may be longer
			later, longer := m.longest(content, i+1, n)
			if longer <= n {
				break
			}
			i, from, n = i+1, later, longer
			m.insert(content, i)
			known = i + 1
		}
		for i > start && from > 0 && content[i-1] == content[from-1] {
			i, from, n = i-1, from-1, n+1
		}
		m.add(content[start:i], i-from, n)
		i += n
		start = i
		for ; known < min(i, end); known++ {
			m.insert(content, known)
		}
	}
	m.literals = append(m.literals, content[start:]...)
}

func (m *matcher) insert(content []byte, i int) {
	h := hash(binary.LittleEndian.Uint32(content[i:]))
	m.older[i] = m.newest[h]
	m.newest[h] = uint16(i + 1)
}

// longest finds the longest earlier occurrence of the bytes at position i. It returns its position
// and length, or the length best if none is longer.
func (m *matcher) longest(content []byte, i, best int) (from, n int) {
	v := binary.LittleEndian.Uint32(content[i:])
	n = best
	c := int(m.newest[hash(v)])
	for range chain {
		if c == 0 || i+n >= len(content) {
			break
		}
		if content[c-1+n] == content[i+n] && binary.LittleEndian.Uint32(content[c-1:]) == v {
			if l := equal(content, c-1, i); l > n {
				from, n = c-1, l
			}
		}
		c = int(m.older[c-1])
	}
	return from, n
}

// equal returns how many bytes from position j on equal those from i on. It requires i < j.
func equal(b []byte, i, j int) (n int) {
	for ; j+n+8 <= len(b); n += 8 {
		if x := binary.LittleEndian.Uint64(b[i+n:]) ^ binary.LittleEndian.Uint64(b[j+n:]); x != 0 {
			return n + bits.TrailingZeros64(x)/8
		}
	}
	for j+n < len(b) && b[i+n] == b[j+n] {
		n++
	}
	return n
}

// add adds a sequence.
func (m *matcher) add(literals []byte, distance, length int) {
	l, r := min(len(literals), moreLiterals), min(length-leastMatch, moreMatch)
	v := l | r<<5 | distance<<10
	m.sequences = append(m.sequences, byte(v), byte(v>>8), byte(v>>16))
	if l == moreLiterals {
		m.addLength(len(literals) - l)
	}
	if r == moreMatch {
		m.addLength(length - leastMatch - r)
	}
	m.literals = append(m.literals, literals...)
}

func (m *matcher) addLength(n int) {
	if n < longLength {
		m.lengths = append(m.lengths, byte(n))
	} else {
		m.lengths = append(m.lengths, longLength, byte(n), byte(n>>8))
	}
}

// length returns the length of the encoded content.
func (m *matcher) length() int {
	return sequenceHead + len(m.literals) + len(m.sequences) + len(m.lengths)
}

// appendTo appends the encoded content.
func (m *matcher) appendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.sequences)/sequenceSize))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.literals)))
	b = append(b, m.literals...)
	b = append(b, m.sequences...)
	return append(b, m.lengths...)
}

// decoder decodes a block of literals and sequences, as far as it is asked to.
type decoder struct {
	b, data []byte // content, and what it is decoded from

	n        int // how much of b is decoded
	literal  int // offset in data of the next literal
	literals int // end of the literals
	at       int // offset of the next sequence
	end      int // end of the sequences
	long     int // offset of the next of the lengths that are too large for a sequence
}

// decodeSequences decodes data into b, which has the length of the content. It reports whether data
// was valid.
func decodeSequences(b, data []byte) bool {
	d, ok := newDecoder(b, data)
	return ok && d.decode(len(b))
}

// newDecoder returns a decoder of data into b, which has the length of the content. It reports
// whether data has room for what its head says.
func newDecoder(b, data []byte) (decoder, bool) {
	if len(data) < sequenceHead {
		return decoder{}, false
	}
	literals := sequenceHead + int(binary.LittleEndian.Uint16(data[2:]))
	end := literals + sequenceSize*int(binary.LittleEndian.Uint16(data))
	d := decoder{b: b, data: data, literal: sequenceHead, literals: literals, at: literals, end: end, long: end}
	return d, end <= len(data)
}

// decode goes on until at least the first n bytes of the content are decoded. It returns false if
// it found that the data is not valid. It finds everything that is wrong only if n is the length of
// the content. Decoded bytes do not change when more are decoded.
func (d *decoder) decode(n int) bool {
	for d.n < n && d.at < d.end {
		if d.decodeQuickly(n); d.n < n && d.at < d.end && !d.decodeOne() {
			return false
		}
	}
	if d.literal > d.literals {
		return false
	}
	if d.n >= n && n < len(d.b) {
		return true
	}
	rest := d.data[d.literal:d.literals]
	if d.at < d.end || len(rest) != len(d.b)-d.n {
		return false
	}
	d.n, d.literal = d.n+copy(d.b[d.n:], rest), d.literals
	return true
}

// decodeOne decodes a sequence of any kind. It reports whether the sequence was valid.
func (d *decoder) decodeOne() bool {
	v := int(d.data[d.at]) | int(d.data[d.at+1])<<8 | int(d.data[d.at+2])<<16
	l, ok := d.length(v&31, moreLiterals)
	if !ok {
		return false
	}
	r, ok := d.length(v>>5&31, moreMatch)
	if r += leastMatch; !ok {
		return false
	}
	distance := v >> 10
	if l > d.literals-d.literal || l+r > len(d.b)-d.n || distance == 0 || distance > d.n+l {
		return false
	}
	d.n += copy(d.b[d.n:], d.data[d.literal:d.literal+l])
	d.literal, d.at = d.literal+l, d.at+sequenceSize
	for r > 0 { // a repetition may overlap itself
		c := copy(d.b[d.n:d.n+r], d.b[d.n-distance:d.n])
		d.n, r = d.n+c, r-c
	}
	return true
}

// length returns a length of a sequence. If it is not below the limit more, the rest of it is read.
func (d *decoder) length(n, more int) (int, bool) {
	rest := d.data[d.long:]
	switch {
	case n < more:
		return n, true
	case n > more || len(rest) == 0:
		return 0, false
	case rest[0] < longLength:
		d.long++
		return n + int(rest[0]), true
	case len(rest) < 3:
		return 0, false
	}
	d.long += 3
	return n + int(binary.LittleEndian.Uint16(rest[1:])), true
}

// decodeQuickly decodes sequences until n bytes of the content are decoded, or until a sequence
// needs care: one that is not valid, a very long one, or one close to the end of the content or the
// data.
//
// It copies 16 or 32 bytes at a time, because a copy of fixed length needs no branch. The bytes that
// this writes too much are overwritten by the next sequences. The conditions leave enough space for
// them, so unsafe saves only the checks for each copy.
func (d *decoder) decodeQuickly(n int) {
	dst, src := unsafe.Pointer(unsafe.SliceData(d.b)), unsafe.Pointer(unsafe.SliceData(d.data))
	for {
		d.copyShort(dst, src, n)
		if d.n >= n || d.at == d.end {
			return
		}
		v := int(d.data[d.at]) | int(d.data[d.at+1])<<8 | int(d.data[d.at+2])<<16
		l, r, distance, long := v&31, v>>5&31, v>>10, d.long
		if r > moreMatch || long+2 > len(d.data) {
			return
		}
		if l == moreLiterals {
			l, long = l+int(d.data[long]), long+1
		}
		if r == moreMatch {
			r, long = r+int(d.data[long]), long+1
		}
		if l >= moreLiterals+longLength || r >= moreMatch+longLength { // a length of more than one byte
			return
		}
		r += leastMatch
		if l > len(d.data)-step-d.literal || l+r > len(d.b)-step-d.n || distance == 0 || distance > d.n+l {
			return
		}
		for i := 0; i < l; i += step {
			copyStep(unsafe.Add(dst, d.n+i), unsafe.Add(src, d.literal+i))
		}
		repeat(unsafe.Add(dst, d.n+l), distance, r)
		d.n, d.literal, d.at, d.long = d.n+l+r, d.literal+l, d.at+sequenceSize, long
	}
}

const (
	step = 32 // a repetition in a short sequence has at most as many bytes
	half = 16 // a short sequence has at most as many literals
)

// copyShort decodes sequences until as many bytes of the content are decoded as the parameter until
// says, or until a sequence is not short, or near, not valid, or close to the end of the content or the data.
func (d *decoder) copyShort(dst, src unsafe.Pointer, until int) {
	n, literal, at := d.n, d.literal, d.at
	lastN, lastLiteral, lastAt := min(until-1, len(d.b)-half-step), len(d.data)-half, min(d.end-sequenceSize, len(d.data)-4)
	for n <= lastN && literal <= lastLiteral && at <= lastAt {
		v := binary.LittleEndian.Uint32((*[4]byte)(unsafe.Add(src, at))[:])
		l, r, distance := int(v&31), int(v>>5&31), int(v>>10&(Size-1))
		if l > half || r >= moreMatch || distance < half || distance > n+l {
			break
		}
		*(*[half]byte)(unsafe.Add(dst, n)) = *(*[half]byte)(unsafe.Add(src, literal))
		n, literal = n+l, literal+l
		copyStep(unsafe.Add(dst, n), unsafe.Add(dst, n-distance))
		n, at = n+r+leastMatch, at+sequenceSize
	}
	d.n, d.literal, d.at = n, literal, at
}

// repeat copies r bytes from this distance before dst to dst. It writes up to 31 bytes more.
func repeat(dst unsafe.Pointer, distance, r int) {
	switch {
	case distance >= half:
		for i := 0; i < r; i += step {
			copyStep(unsafe.Add(dst, i), unsafe.Add(dst, i-distance))
		}
	case distance >= 8:
		for i := 0; i < r; i += 8 {
			*(*[8]byte)(unsafe.Add(dst, i)) = *(*[8]byte)(unsafe.Add(dst, i-distance))
		}
	default:
		for i := range r {
			*(*byte)(unsafe.Add(dst, i)) = *(*byte)(unsafe.Add(dst, i-distance))
		}
	}
}

// copyStep copies 32 bytes, 16 at a time. If src is before dst, the distance must be at least 16.
func copyStep(dst, src unsafe.Pointer) {
	*(*[half]byte)(dst) = *(*[half]byte)(src)
	*(*[half]byte)(unsafe.Add(dst, half)) = *(*[half]byte)(unsafe.Add(src, half))
}
