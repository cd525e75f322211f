package api

import (
	"context"
	"net/http"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
	"weir/internal/jsonbody"
)

// publish is the common part of both publish endpoints. In the order of D19, it checks the content
// type and the idempotency key, and then the declared size. Next it asks the hub whether the
// publish is a duplicate or is refused, as far as the hub can tell without the body. Last it reads
// the body and stores the batch. It responds once the batch is durable (D5): with 202 for a new
// batch, and 200 for a duplicate.
func (c *call) publish(s *hub.Stream, p *hub.Publish) error {
	if err := c.checkDeclared(s, p); err != nil {
		return err
	}
	if !c.mayWait() {
		return c.publishLater(s, p)
	}
	defer p.Release()
	ack, err := c.store(s, p)
	if err != nil {
		return err
	}
	return c.acknowledge(&ack)
}

// store publishes a batch whose header fields were checked, and waits until it is durable.
func (c *call) store(s *hub.Stream, p *hub.Publish) (weir.Ack, error) {
	ctx := c.r.Context()
	if known, err := s.Decide(ctx, p); err != nil || known != nil {
		if err != nil {
			return weir.Ack{}, err
		}
		return *known, nil
	}
	if err := c.readBatch(s, p); err != nil {
		return weir.Ack{}, err
	}
	if c.loan != nil {
		// The engine uses the body until the batch is written, even if the client disconnects. So
		// the method store waits for the write even then. Otherwise finish would return the
		// memory to the budget while the engine still uses it.
		ctx = context.WithoutCancel(ctx)
	}
	return s.Publish(ctx, p)
}

// readBatch reads the body of a publish and checks it.
func (c *call) readBatch(s *hub.Stream, p *hub.Publish) error {
	body, err := c.readBody(weir.MaxBody, errBodyTooLarge)
	if err != nil {
		return err
	}
	if p.Batch.Events = 1; s.Mode == weir.Raw {
		p.Batch.Payload = jsonbody.Compact(body, body)
	} else {
		if p.Batch.Payload, p.Batch.Events, err = jsonbody.Events(body); err != nil {
			return err
		}
	}
	if jsonbody.IsMuchSmaller(p.Batch.Payload, body) {
		c.loan.Shrink(int64(len(p.Batch.Payload)))
	}
	return nil
}

// checkDeclared checks the header fields: the content type (D7) and the declared size (D9). Between
// these two, it checks x-svc-contiguous and x-svc-publisher (D38) if the client chose the sequence,
// and otherwise the idempotency key (D25).
func (c *call) checkDeclared(s *hub.Stream, p *hub.Publish) error {
	if c.facts != nil && c.facts.plain && s.Mode == weir.JSON {
		return nil // ServeLater takes no body that is too large
	}
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
	if p.Chosen { // a chosen sequence makes a retry safe by itself, so the idempotency key is ignored
		err = readOrder(c.r.Header, p)
	} else {
		p.Key, err = idempotencyKey(c.r.Header)
	}
	if err != nil {
		return err
	}
	if c.r.ContentLength > weir.MaxBody {
		return errBodyTooLarge
	}
	if most := s.MaxBytes(); s.Mode == weir.Raw && c.r.ContentLength > most {
		return weir.Errorf(weir.PayloadTooLarge, "the batch is %d bytes, but the stream's max_bytes is %d; "+
			"split it into several batches", c.r.ContentLength, most)
	}
	return nil
}

func (c *call) acknowledge(a *weir.Ack) error {
	status := http.StatusAccepted
	if a.Duplicate {
		status = http.StatusOK
	}
	c.publisher = a.Publisher
	p := buffers.Get().(*[]byte)
	b := appendAck(*p, a)
	err := c.answerAt(status, b, int64(a.Cursor))
	putBuffer(p, b)
	return err
}

// publishTo returns the stream named in the path, if the caller may publish to it.
func (c *call) publishTo() (*hub.Stream, error) { return c.stream(access.PublishBatch) }
