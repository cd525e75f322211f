package durable

import (
	"bytes"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"weir"
)

// messages turns a JSON body into the array in which its messages are stored, and returns their
// number. If the body is an array, each element is a message. Any other value is one message.
// messages overwrites body, and the array may share its memory.
func messages(body []byte) (array []byte, count uint32, err error) {
	v := jsontext.Value(bytes.TrimSpace(body))
	if err := v.Compact(); err != nil {
		return nil, 0, weir.Errorf(weir.InvalidRequest, "invalid JSON: %v", err)
	}
	if !v.IsValid() {
		return nil, 0, weir.Errorf(weir.InvalidRequest, "invalid JSON")
	}
	if v.Kind() != '[' {
		return append(append([]byte{'['}, v...), ']'), 1, nil
	}
	parts, err := elements(v)
	return v, uint32(len(parts)), err
}

// elements returns the elements of a JSON array.
func elements(array []byte) (all []jsontext.Value, err error) {
	d := jsontext.NewDecoder(bytes.NewReader(array))
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		all = append(all, v.Clone())
	}
	return all, nil
}

// content collects batches as a reader of the stream gets them: the bytes one after another, or one
// JSON array of all messages.
type content struct {
	json bool
	data []byte  // in a JSON stream, the array without its closing bracket
	lent *[]byte // memory from the pool buffers that data uses; nil if there is none
}

// pooled is the size of the smallest content that takes its memory from the pool buffers.
const pooled = 64 << 10

// buffers has memory for contents. Allocating it for each read would take longer than the read.
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
