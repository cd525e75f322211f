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
	// leastDistance is the shortest distance of a repetition that is copied 32 bytes at a time.
	leastDistance = 32
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

// decodeSequences decodes data into b, which has the length of the content. It reports whether data
// was valid.
func decodeSequences(b, data []byte) bool {
	if len(data) < sequenceHead {
		return false
	}
	at := sequenceHead + int(binary.LittleEndian.Uint16(data[2:]))           // the next sequence
	end := at + sequenceSize*int(binary.LittleEndian.Uint16(data))           // the end of the sequences
	literal, literals, n, lengths := sequenceHead, at, 0, lengths{rest: nil} // the next literal, the end of the literals, and how much is decoded
	if end > len(data) {
		return false
	}
	lengths.rest = data[end:]
	for {
		n, literal, at = copySequences(b, data, n, literal, at, end)
		if at == end {
			break
		}
		v := int(data[at]) | int(data[at+1])<<8 | int(data[at+2])<<16
		at += sequenceSize
		l := lengths.next(v&31, moreLiterals)
		r := lengths.next(v>>5&31, moreMatch) + leastMatch
		distance := v >> 10
		if lengths.bad || l > literals-literal || l+r > len(b)-n || distance == 0 || distance > n+l {
			return false
		}
		n += copy(b[n:], data[literal:literal+l])
		literal += l
		for r > 0 { // a repetition may overlap itself
			c := copy(b[n:n+r], b[n-distance:n])
			n, r = n+c, r-c
		}
	}
	return literals-literal == len(b)-n && copy(b[n:], data[literal:literals]) == len(b)-n
}

// lengths reads the lengths that are too large for a sequence.
type lengths struct {
	rest []byte
	bad  bool // a length was missing or not valid
}

// next returns a length of a sequence. If it is not below the limit more, the rest of it is read.
func (s *lengths) next(n, more int) int {
	if n < more {
		return n
	}
	if n > more || len(s.rest) == 0 {
		s.bad = true
		return 0
	}
	n += int(s.rest[0])
	size := 1
	if s.rest[0] == longLength {
		if size = 3; len(s.rest) < size {
			s.bad = true
			return 0
		}
		n = more + int(binary.LittleEndian.Uint16(s.rest[1:]))
	}
	s.rest = s.rest[size:]
	return n
}

// copySequences decodes sequences until one needs care: a long or a near one, one that is not valid,
// or one close to the end of b or data. It returns how much of b is decoded, and the offsets in data
// of the next literal and the next sequence.
//
// It always copies 32 bytes, because a copy of fixed length needs no branch. The bytes that this
// writes too much are overwritten by the next sequences. The conditions of the loop leave enough
// space for them, so unsafe saves only the checks for each copy.
func copySequences(b, data []byte, n, literal, at, end int) (int, int, int) {
	const step = 32
	// A sequence has at most 30 literals and repeats at most 32 bytes.
	lastN, lastLiteral, lastAt := len(b)-2*step, len(data)-step, min(end-sequenceSize, len(data)-4)
	if lastN < 0 || lastLiteral < 0 {
		return n, literal, at
	}
	dst, src := unsafe.Pointer(unsafe.SliceData(b)), unsafe.Pointer(unsafe.SliceData(data))
	for n <= lastN && literal <= lastLiteral && at <= lastAt {
		v := binary.LittleEndian.Uint32((*[4]byte)(unsafe.Add(src, at))[:])
		l, r, distance := int(v&31), int(v>>5&31), int(v>>10&(Size-1))
		if l == moreLiterals || r >= moreMatch || distance < leastDistance || distance > n+l {
			break
		}
		copy32(unsafe.Add(dst, n), unsafe.Add(src, literal))
		n, literal = n+l, literal+l
		copy32(unsafe.Add(dst, n), unsafe.Add(dst, n-distance))
		n, at = n+r+leastMatch, at+sequenceSize
	}
	return n, literal, at
}

// copy32 copies 32 bytes. The two parts must not overlap.
func copy32(dst, src unsafe.Pointer) {
	*(*[16]byte)(dst) = *(*[16]byte)(src)
	*(*[16]byte)(unsafe.Add(dst, 16)) = *(*[16]byte)(unsafe.Add(src, 16))
}
