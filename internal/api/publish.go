package api

import (
	"context"
	"net/http"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
)

// publish is what both ways to publish share, in the order of D19: content type and idempotency key, declared size, what
// the hub can say without the body (a duplicate, a refusal), the body, and the write. It answers once the batch is durable
// (D5): 202 for a new one, 200 for one that was there already.
func (c *call) publish(s *hub.Stream, p *hub.Publish) error {
	if err := c.checkDeclared(s, p); err != nil {
		return err
	}
	ctx := c.r.Context()
	if known, err := s.Decide(ctx, p); err != nil || known != nil {
		if err != nil {
			return err
		}
		return c.acknowledge(known)
	}
	body, err := c.body(weir.MaxBody, errBodyTooLarge)
	if err != nil {
		return err
	}
	p.Batch.Events, p.Batch.Payload = 1, body
	if s.Mode == weir.JSON {
		if p.Batch.Payload, p.Batch.Events, err = events(body); err != nil {
			return err
		}
	}
	if c.held > 0 {
		// The journal has the body until it is written, whether or not somebody waits, and so long its memory is not free.
		ctx = context.WithoutCancel(ctx)
	}
	ack, err := s.Publish(ctx, p)
	if err != nil {
		return err
	}
	return c.acknowledge(&ack)
}

// checkDeclared checks what the header fields say about the body: its type (D7), the idempotency key (D25), its size (D9).
func (c *call) checkDeclared(s *hub.Stream, p *hub.Publish) error {
	want := jsonType
	if s.Mode == weir.Raw {
		want = bytesType
	}
	sent, err := contentType(c.r.Header, want)
	if err != nil {
		return err
	}
	if s.Mode == weir.Raw {
		p.Batch.ContentType = sent
	}
	if !p.Chosen {
		if p.Key, err = idempotencyKey(c.r.Header); err != nil {
			return err
		}
	}
	if c.r.ContentLength > weir.MaxBody {
		return errBodyTooLarge
	}
	if s.Mode == weir.Raw && c.r.ContentLength > s.MaxBytes {
		return weir.Errorf(weir.PayloadTooLarge, "the batch is larger than the stream's max_bytes, which is %d", s.MaxBytes)
	}
	return nil
}

func (c *call) acknowledge(a *weir.Ack) error {
	status := http.StatusAccepted
	if a.Duplicate {
		status = http.StatusOK
	}
	p := buffers.Get().(*[]byte)
	b := appendAck(*p, a)
	err := c.answerAt(status, b, int64(a.Cursor))
	putBuffer(p, b)
	return err
}

// publishTo finds the stream of the path for a publish.
func (c *call) publishTo() (*hub.Stream, error) { return c.stream(access.PublishBatch) }
