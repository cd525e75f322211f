package api

import (
	"net/http"

	"weir"
	"weir/internal/access"
)

// batch serves GET /v1/streams/{id}/batches/{seq}. For a json stream it sends the batch object. For
// a raw stream it sends the stored bytes, with the content type they were published with (D7). A
// batch can be read as soon as it is acknowledged (D4). batch refuses the same requests as
// streamShow. It responds with 404 stream_not_found if the batch was evicted or never stored, or if
// the sequence is not a number. The message says which of these is the case (D12, D30).
func (c *call) batch() error {
	s, err := c.stream(access.ReadStream)
	if err != nil {
		return err
	}
	seq, err := weir.ParseSeq(c.route.seq)
	if err != nil {
		return errNoSuchBatch
	}
	// The bytes that a slow client has not read yet stay in memory, so a large batch counts against
	// the memory budget.
	if size := int64(s.SizeOf(c.r.Context(), seq)); size > unlent {
		control := http.NewResponseController(c.w)
		c.loan = c.h.Batches.Open(c.holder(), size, func() { _ = control.SetWriteDeadline(longAgo) })
		if err := c.borrow(size); err != nil {
			return err
		}
	}
	b, err := s.Batch(c.r.Context(), seq)
	if err != nil {
		return err
	}
	if s.Mode == weir.Raw {
		if k := c.choose(len(b.Payload)); k != "" {
			c.sendPacked(k, b.ContentType, b.Payload)
			return nil
		}
		c.head(http.StatusOK, b.ContentType, int64(len(b.Payload)), none)
		c.writeLong(b.Payload)
		return nil
	}
	p := buffers.Get().(*[]byte)
	head := append(appendBatchHead(*p, b.Seq, b.Time), `,"events":`...)
	if k := c.choose(len(head) + len(b.Payload) + 1); k != "" {
		c.sendPacked(k, typeJSON, head, b.Payload, []byte{'}'})
		putBuffer(p, head)
		return nil
	}
	c.head(http.StatusOK, typeJSON, int64(len(head)+len(b.Payload)+1), none)
	if len(b.Payload) <= maxPooled/2 { // for a small payload, copying is cheaper than a second write
		head = append(append(head, b.Payload...), '}')
		c.writeLong(head)
	} else {
		c.writeLong(head, b.Payload, []byte{'}'})
	}
	putBuffer(p, head)
	return nil
}

// unlent is the size of the largest batch for which a call borrows no memory from the budget.
const unlent = 32 << 10

// buffered is a size that fits into the write buffers of net/http and http3. A response body of at
// most this size is sent after the handler has returned, and the server limits the time of that
// write itself.
const buffered = 2 << 10

// writeLong sends a response body that consists of the given parts. If the body may not fit into
// the write buffer, writeLong sets write deadlines. It ignores errors, because they mean that the
// client has disconnected.
//
// writeLong releases the memory of a large part while it sends the part. If the call has a loan
// (memory borrowed from the budget), the loan must be for that memory. The caller must not use a
// large part afterwards.
func (c *call) writeLong(parts ...[]byte) {
	switch {
	case c.isHead():
	case len(parts) == 1 && len(parts[0]) <= buffered:
		c.w.Write(parts[0])
	default:
		w := c.writer()
		w.loan = c.loan
		w.loan.Watch(true)
		for i := range parts {
			if w.release(&parts[i]) != nil {
				return
			}
		}
		_ = w.disarm()
	}
}
