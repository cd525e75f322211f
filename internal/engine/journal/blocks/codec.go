package blocks

import (
	"sync"

	"github.com/klauspost/compress/s2"
)

// codec says how the data of a block is encoded.
type codec byte

const (
	plain      codec = 0 // as it is
	compressed codec = 1 // a block of S2, an extension of Snappy
)

// encode appends the encoded content to b. It compresses the content only if that saves at least an
// eighth.
func encode(b, content []byte) ([]byte, codec) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	if e := s2.EncodeBetter(*buf, content); len(e) <= len(content)-len(content)/8 {
		return append(b, e...), compressed
	}
	return append(b, content...), plain
}

// decode decodes data into b, which has the length of the content. It reports whether data was
// valid.
func (c codec) decode(b, data []byte) bool {
	switch c {
	case plain:
		return len(data) == len(b) && copy(b, data) == len(b)
	case compressed:
		n, err := s2.DecodedLen(data)
		if err != nil || n != len(b) {
			return false
		}
		_, err = s2.Decode(b, data)
		return err == nil
	}
	return false
}

// buffers holds buffers for stored blocks. S2 needs this much space to try whether a block can be
// compressed.
var buffers = sync.Pool{New: func() any { b := make([]byte, s2.MaxEncodedLen(Size)+headSize+align); return &b }}
