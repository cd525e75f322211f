package api

import (
	"net/http"

	"weir"
	"weir/internal/access"
)

var errNoBatch = &weir.Error{Code: weir.StreamNotFound, Message: "the stream has no such batch: that is not a sequence"}

// batch answers GET /v1/streams/{id}/batches/{seq}: of a json stream the batch object, of a raw stream the stored bytes
// with the content type that they came with (D7). It can be read as soon as it is acknowledged (D4). It refuses what
// streamShow refuses; a batch that was evicted or never stored, and a sequence that is none, are 404 stream_not_found with
// a message that says which (D12, D30).
func (c *call) batch() error {
	s, err := c.stream(access.ReadStream)
	if err != nil {
		return err
	}
	seq, err := weir.ParseSeq(c.route.seq)
	if err != nil {
		return errNoBatch
	}
	if size := s.SizeOf(c.r.Context(), seq); size > piece {
		if err := c.reserve(c.h.Batches, int64(size)); err != nil {
			return err
		}
	}
	b, err := s.Batch(c.r.Context(), seq)
	if err != nil {
		return err
	}
	if s.Mode == weir.Raw {
		c.head(http.StatusOK, b.ContentType, int64(len(b.Payload)), none)
		c.writeLong(b.Payload)
		return nil
	}
	p := buffers.Get().(*[]byte)
	head := append(appendBatchHead(*p, b.Seq, b.Time), `,"events":`...)
	c.head(http.StatusOK, typeJSON, int64(len(head)+len(b.Payload)+1), none)
	if len(b.Payload) <= maxPooled/2 {
		head = append(append(head, b.Payload...), '}')
		c.writeLong(head)
	} else {
		c.writeLong(head, b.Payload, []byte{'}'})
	}
	putBuffer(p, head)
	return nil
}

// buffered is what fits into the buffers of net/http and http3: it is sent when the handler has returned, which the server
// bounds.
const buffered = 2 << 10

// writeLong sends the parts of a body, with deadlines when there is more than fits any buffer on the way. An error means
// that the client is gone, and nobody else wants to know.
func (c *call) writeLong(parts ...[]byte) {
	switch {
	case c.isHead():
	case len(parts) == 1 && len(parts[0]) <= buffered:
		c.w.Write(parts[0])
	default:
		w := c.writer()
		for _, part := range parts {
			if w.write(part) != nil {
				return
			}
		}
		_ = w.disarm()
	}
}
