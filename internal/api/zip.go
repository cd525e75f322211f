package api

import (
	"net/http"
	"sync"

	"weir/internal/deflate"
)

// This file compresses responses (D37): subscriptions with gzip, and the responses to GET requests
// with gzip or zstd.

// coding is a content coding. The empty coding leaves a response uncompressed.
type coding string

const (
	gzipCoding coding = "gzip"
	zstdCoding coding = "zstd"
)

// leastZipped is the size of the smallest response to a GET request that is compressed. Compressing
// a smaller response would save less than a packet.
const leastZipped = 1 << 10

// zipBuffers is a pool of buffers for compressed pieces. A piece that cannot be compressed becomes a
// few bytes longer.
var zipBuffers = sync.Pool{New: func() any { b := make([]byte, 0, piece+1<<10); return &b }}

// varyEncoding is the value of Vary for a response that depends on Accept-Encoding.
var varyEncoding = []string{"Accept-Encoding"}

// choose chooses the content coding of a response with status 200, before its header is sent, and
// sets Vary. The parameter size is the minimum size of its body. A long response gets zstd only if
// there is memory for an encoder.
func (c *call) choose(size int) coding {
	if size < leastZipped || c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
		return ""
	}
	c.w.Header()["Vary"] = varyEncoding
	if c.r.Method == http.MethodHead {
		return "" // the response says how long an uncompressed body is
	}
	fields := c.r.Header["Accept-Encoding"]
	best := preferred(fields, gzipCoding, zstdCoding)
	if best == zstdCoding && size > piece && !c.borrowEncoder() {
		best = preferred(fields, gzipCoding)
	}
	return best
}

// packer compresses a long response piece by piece.
type packer interface {
	// add appends the compressed form of data to b. A client that has received it can decode all of
	// data.
	add(b, data []byte) []byte
	// end appends the end of the response to b. No other call may follow.
	end(b []byte) []byte
}

// newPacker returns a packer for a long response with this coding, and sets Content-Encoding. It
// returns nil if the response is not compressed.
func (c *call) newPacker(k coding) packer {
	switch k {
	case gzipCoding:
		c.w.Header()["Content-Encoding"] = gzipEncoding
		return new(gzipStream)
	case zstdCoding:
		c.w.Header()["Content-Encoding"] = zstdEncoding
		return newZstdStream()
	}
	return nil
}

// gzipStream is a packer that compresses a long response as one gzip member.
type gzipStream struct {
	member deflate.Member
	begun  bool
}

func (s *gzipStream) add(b, data []byte) []byte {
	if !s.begun {
		b, s.begun = append(b, deflate.Header...), true
	}
	part := deflate.Compress(b, data)
	s.member.Add(&part)
	return part.Bytes
}

func (s *gzipStream) end(b []byte) []byte { return append(b, s.member.Trailer()...) }

// pack appends the compressed form of a short body to b, and sets Content-Encoding.
func (c *call) pack(k coding, b, body []byte) []byte {
	if k == zstdCoding {
		c.w.Header()["Content-Encoding"] = zstdEncoding
		return shortZstd().EncodeAll(body, b)
	}
	c.w.Header()["Content-Encoding"] = gzipEncoding
	var s gzipStream
	return s.end(s.add(b, body))
}

// sendPacked sends a compressed response with status 200, whose body consists of the given parts. If
// the body is short, the response has a Content-Length. Otherwise sendPacked compresses and sends the
// body piece by piece.
func (c *call) sendPacked(k coding, contentType string, parts ...[]byte) {
	total := 0
	for _, b := range parts {
		total += len(b)
	}
	if total <= piece {
		c.sendShort(k, contentType, parts)
		return
	}
	w := c.writer()
	w.packer = c.newPacker(k)
	c.head(http.StatusOK, contentType, none, none)
	w.loan, w.encoder = c.loan, c.encoder
	w.loan.Watch(true)
	w.encoder.Watch(true)
	var err error
	for _, part := range parts {
		if err == nil {
			err = w.writePacked(part)
		}
	}
	if err == nil {
		err = w.endPacked()
	}
	if err != nil {
		panic(http.ErrAbortHandler) // no client may take half a response for a whole one
	}
	c.written += int64(total)
	_ = w.disarm()
}

// sendShort sends a body of at most piece bytes.
func (c *call) sendShort(k coding, contentType string, parts [][]byte) {
	p := zipBuffers.Get().(*[]byte)
	defer zipBuffers.Put(p)
	body := parts[0]
	if len(parts) > 1 {
		joined := zipBuffers.Get().(*[]byte)
		defer zipBuffers.Put(joined)
		body = (*joined)[:0]
		for _, part := range parts {
			body = append(body, part...)
		}
	}
	b := c.pack(k, (*p)[:0], body)
	c.head(http.StatusOK, contentType, int64(len(b)), none)
	c.writeLong(b)
}

// writePacked compresses b piece by piece, and sends the pieces.
func (w *writer) writePacked(b []byte) error {
	p := zipBuffers.Get().(*[]byte)
	defer zipBuffers.Put(p)
	for len(b) > 0 {
		n := min(len(b), piece)
		if err := w.write(w.packer.add((*p)[:0], b[:n])); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// endPacked ends a compressed response.
func (w *writer) endPacked() error { return w.write(w.packer.end(nil)) }

// packed returns a frame of a subscription that is too short to be compressed, in the form in which
// the response sends it.
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
