package api

import (
	"net/http"
	"sync"

	"weir/internal/deflate"
)

// This file compresses responses with gzip (D37): subscriptions, and the responses to GET requests.

// leastZipped is the size of the smallest response to a GET request that is compressed. Compressing
// a smaller response would save less than a packet.
const leastZipped = 1 << 10

// zipBuffers is a pool of buffers for compressed pieces.
var zipBuffers = sync.Pool{New: func() any { b := make([]byte, 0, piece); return &b }}

// compresses reports whether a response is compressed. The parameter size is the least size that its
// body can have.
func (c *call) compresses(size int) bool {
	return size >= leastZipped && c.r.Method == http.MethodGet && acceptsGzip(c.r.Header["Accept-Encoding"])
}

// beginZip prepares a compressed response, before its header is sent.
func (c *call) beginZip() *deflate.Member {
	c.w.Header()["Content-Encoding"] = gzipEncoding
	return new(deflate.Member)
}

// zip sends a compressed response with status 200, whose body consists of the given parts. If the
// body is short, the response has a Content-Length. Otherwise zip compresses and sends the body
// piece by piece.
func (c *call) zip(contentType string, parts ...[]byte) {
	w := c.writer()
	w.zip = c.beginZip()
	p := zipBuffers.Get().(*[]byte)
	defer zipBuffers.Put(p)
	total := 0
	for _, b := range parts {
		total += len(b)
	}
	if total <= piece {
		b := append((*p)[:0], deflate.Header...)
		for _, part := range parts {
			z := deflate.Compress(b, part)
			w.zip.Add(&z)
			b = z.Bytes
		}
		b = append(b, w.zip.Trailer()...)
		c.head(http.StatusOK, contentType, int64(len(b)), none)
		c.writeLong(b)
		return
	}
	c.head(http.StatusOK, contentType, none, none)
	w.loan = c.loan
	w.loan.Watch(true)
	err := w.write(deflate.Header)
	for _, part := range parts {
		if err == nil {
			err = w.writeZipped(part)
		}
	}
	if err == nil {
		err = w.write(w.zip.Trailer())
	}
	if err != nil {
		panic(http.ErrAbortHandler) // no client may take half a response for a whole one
	}
	c.written += int64(total)
	_ = w.disarm()
}

// writeZipped compresses b piece by piece, and sends the pieces.
func (w *writer) writeZipped(b []byte) error {
	p := zipBuffers.Get().(*[]byte)
	defer zipBuffers.Put(p)
	for len(b) > 0 {
		n := min(len(b), piece)
		part := deflate.Compress((*p)[:0], b[:n])
		if err := w.write(part.Bytes); err != nil {
			return err
		}
		w.zip.Add(&part)
		b = b[n:]
	}
	return nil
}

// packed returns a frame that is too short to be compressed, in the form in which the response sends
// it.
func (w *writer) packed(frame []byte) []byte {
	if w.zip == nil {
		return frame
	}
	part := deflate.Store(nil, frame)
	w.zip.Add(&part)
	return part.Bytes
}

// begin sends the first frame of a subscription.
func (w *writer) begin(frame []byte) error {
	if w.zip == nil {
		return w.send(frame)
	}
	return w.send(append(append([]byte{}, deflate.Header...), w.packed(frame)...))
}

// end sends the last frame of a subscription.
func (w *writer) end(frame []byte) error { return w.send(w.last(frame)) }

// last returns the last frame of a subscription in the form in which it is sent.
func (w *writer) last(frame []byte) []byte {
	if w.zip == nil {
		return frame
	}
	frame = w.packed(frame)
	return append(frame, w.zip.Trailer()...)
}
