package durable

import (
	"bytes"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"weir"
)

// firstMessages returns the array of the first n messages of a stored array. The second result is
// false if the array has fewer.
func firstMessages(array []byte, n int64) ([]byte, bool) {
	// When the array was stored, objects with two members of the same name were refused. To check
	// for them again would take much memory.
	d := jsontext.NewDecoder(bytes.NewBuffer(array), jsontext.AllowDuplicateNames(true))
	if _, err := d.ReadToken(); err != nil {
		return nil, false
	}
	for range n {
		if d.PeekKind() == ']' || d.SkipValue() != nil {
			return nil, false
		}
	}
	return append(bytes.Clone(array[:d.InputOffset()]), ']'), true
}

// content collects batches as a reader of the stream gets them: the bytes one after another, or one
// JSON array of all messages.
type content struct {
	json bool
	data []byte  // in a JSON stream, the array without its closing bracket
	lent *[]byte // the memory from the pool that the field data uses; nil if it uses no memory from the pool
}

// pooled is the size of the smallest content that takes its memory from the pool.
const pooled = 64 << 10

// buffers is a pool of memory for contents. Allocating new memory for each read would take longer
// than the read itself.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// grow makes room for batches with this many bytes in total.
func (k *content) grow(bytes int) {
	if bytes < pooled || k.lent != nil {
		return
	}
	k.lent = buffers.Get().(*[]byte)
	if bytes += 2; cap(*k.lent) < bytes { // 2 for the brackets of an array
		*k.lent = make([]byte, 0, bytes)
	}
	k.data = (*k.lent)[:0]
}

// release empties the content and returns its memory to the pool.
func (k *content) release() {
	if k.lent != nil {
		buffers.Put(k.lent)
	}
	*k = content{json: k.json}
}

func (k *content) add(b *weir.Batch) {
	if !k.json {
		k.data = append(k.data, b.Payload...)
		return
	}
	inner := bytes.TrimSuffix(bytes.TrimPrefix(b.Payload, []byte("[")), []byte("]"))
	if len(inner) == 0 {
		return
	}
	if len(k.data) > 0 {
		k.data = append(k.data, ',')
	} else {
		k.data = append(k.data, '[')
	}
	k.data = append(k.data, inner...)
}

func (k *content) empty() bool { return len(k.data) == 0 }

// bytes returns what was collected. Nothing can be added after that.
func (k *content) bytes() []byte {
	switch {
	case !k.json:
		return k.data
	case k.empty():
		return []byte("[]")
	}
	k.data = append(k.data, ']')
	return k.data
}
