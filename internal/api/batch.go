package api

import (
	"net/http"

	"weir"
	"weir/internal/access"
)

// batch serves GET /v1/streams/{id}/batches/{seq}. For a json stream it returns the batch object,
// for a raw stream the stored bytes with the content type they were published with (D7). A batch
// can be read as soon as it is acknowledged (D4). batch refuses what streamShow refuses. A batch
// that was evicted or never stored, and a sequence that is not a number, are 404 stream_not_found,
// and the message says which (D12, D30).
func (c *call) batch() error {
	s, err := c.stream(access.ReadStream)
	if err != nil {
		return err
	}
	seq, err := weir.ParseSeq(c.route.seq)
	if err != nil {
		return errNoSuchBatch
	}
	// A slow client keeps a batch in memory while it reads, so large ones count against the budget.
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
		c.head(http.StatusOK, b.ContentType, int64(len(b.Payload)), none)
		c.writeLong(b.Payload)
		return nil
	}
	p := buffers.Get().(*[]byte)
	head := append(appendBatchHead(*p, b.Seq, b.Time), `,"events":`...)
	c.head(http.StatusOK, typeJSON, int64(len(head)+len(b.Payload)+1), none)
	if len(b.Payload) <= maxPooled/2 { // copying is cheaper than a second write
		head = append(append(head, b.Payload...), '}')
		c.writeLong(head)
	} else {
		c.writeLong(head, b.Payload, []byte{'}'})
	}
	putBuffer(p, head)
	return nil
}

// unlent is the largest batch that is sent without borrowing memory for it.
const unlent = 32 << 10

// buffered is a size that fits into the write buffers of net/http and http3. A body of at most this
// size is sent after the handler has returned, and the server bounds that write itself.
const buffered = 2 << 10

// writeLong sends the parts of a body. If they may not fit into the write buffer, it sets write
// deadlines. It ignores errors: they mean that the client has disconnected.
func (c *call) writeLong(parts ...[]byte) {
	switch {
	case c.isHead():
	case len(parts) == 1 && len(parts[0]) <= buffered:
		c.w.Write(parts[0])
	default:
		w := c.writer()
		w.loan = c.loan
		w.loan.Watch(true)
		for _, part := range parts {
			if w.write(part) != nil {
				return
			}
		}
		_ = w.disarm()
	}
}
