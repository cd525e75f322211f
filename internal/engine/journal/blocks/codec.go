package blocks

import (
	"bytes"
	"sync"

	"github.com/klauspost/compress/s2"
)

// codec says how the data of a block is encoded.
type codec byte

const (
	plain     codec = 0 // as it is
	snappy    codec = 1 // a block of S2, an extension of Snappy; only read, never written
	sequences codec = 2 // see matcher
)

// encode appends the encoded content to b. It compresses the content only if that saves at least an
// eighth, and if the result decodes to the content.
func encode(b, content []byte) ([]byte, codec) {
	m := matchers.Get().(*matcher)
	defer matchers.Put(m)
	m.find(content)
	if m.length() > len(content)-len(content)/8 {
		return append(b, content...), plain
	}
	at := len(b)
	b = m.appendTo(b)
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	if decoded := (*buf)[:len(content)]; !decodeSequences(decoded, b[at:]) || !bytes.Equal(decoded, content) {
		return append(b[:at], content...), plain
	}
	return b, sequences
}

// decode decodes data into b, which has the length of the content. It reports whether data was
// valid.
func (c codec) decode(b, data []byte) bool {
	switch c {
	case plain:
		return len(data) == len(b) && copy(b, data) == len(b)
	case snappy:
		n, err := s2.DecodedLen(data)
		if err != nil || n != len(b) {
			return false
		}
		_, err = s2.Decode(b, data)
		return err == nil
	case sequences:
		return decodeSequences(b, data)
	}
	return false
}

// buffers holds buffers for stored blocks.
var buffers = sync.Pool{New: func() any { b := make([]byte, headSize+sizeS2+align); return &b }}

var matchers = sync.Pool{New: func() any { return new(matcher) }}
