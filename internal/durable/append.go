package durable

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"weir"
	"weir/internal/access"
	"weir/internal/api"
	"weir/internal/hub"
	"weir/internal/jsonbody"
)

// append serves POST: it appends the body, closes the stream, or both in one step.
func (c *call) append() error {
	t, ok, err := c.find(access.PublishBatch)
	if !ok {
		return err
	}
	w, err := c.writer()
	if err != nil {
		return err
	}
	ends := isTrue(c.r.Header.Get("Stream-Closed"))
	body, err := c.content()
	if err != nil {
		return err
	}
	if len(body) == 0 {
		if !ends {
			return weir.Errorf(weir.InvalidRequest, "the body is empty; only a request with Stream-Closed: true may have an empty body")
		}
		return c.close(t, w)
	}
	if w == nil || w.Producer == "" {
		_, e, err := t.Bounds(c.r.Context())
		if err != nil {
			return err
		}
		if e.Ended {
			return c.closed(t)
		}
	}
	kind := c.r.Header.Get("Content-Type")
	switch {
	case kind == "":
		return weir.Errorf(weir.InvalidRequest, "Content-Type is missing; send the content type of the stream")
	case mediaType(kind) != mediaType(t.Type):
		return c.Refuse(http.StatusConflict, weir.UnsupportedMediaType, "the content type differs from that of the stream")
	}
	p, err := t.publish(body)
	if err != nil {
		return err
	}
	// The call above may have overwritten the memory of the body. If the request is served again
	// (see answer), the payload takes the place of the body.
	c.body = p.Batch.Payload
	p.Writer, p.Ends = w, ends
	ack, err := t.Publish(c.r.Context(), p)
	if err != nil {
		return c.conflict(t, p.Writer, p.Known, err)
	}
	status := http.StatusNoContent
	tail := ack.Seq + 1
	if ack.Duplicate {
		tail = ack.Cursor + 1
	} else {
		c.Stored()
		if ends {
			c.Note(api.StreamClosed, t.Name()+" "+string(t.ID))
		}
	}
	if w != nil && w.Producer != "" {
		c.known(p.Known)
		if !ack.Duplicate {
			status = http.StatusOK
		}
	}
	c.Set("Stream-Next-Offset", offset(tail))
	if ends || ack.Duplicate && c.isClosed(t) {
		c.Set("Stream-Closed", "true")
	}
	return c.Send(status, "", nil)
}

var errNoMessage = &weir.Error{Code: weir.InvalidRequest, Message: "the array is empty: there is no message to append"}

// publish returns the hub.Publish that stores a body as a batch of the stream.
func (t *target) publish(body []byte) (*hub.Publish, error) {
	if !t.isJSON() {
		return &hub.Publish{Batch: weir.Batch{Events: 1, ContentType: t.Type, Payload: body}}, nil
	}
	array, n, err := jsonbody.Messages(body)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errNoMessage
	}
	return &hub.Publish{Batch: weir.Batch{Events: n, Payload: array}}, nil
}

// close closes a stream without appending a batch.
func (c *call) close(t target, w *hub.Writer) error {
	_, before, err := t.Bounds(c.r.Context())
	if err != nil {
		return err
	}
	var known hub.WriterStanding
	if w != nil && w.Producer != "" {
		_, known, err = t.CloseBy(c.r.Context(), w)
	} else {
		_, err = t.Close(c.r.Context())
	}
	if err != nil {
		return c.conflict(t, w, known, err)
	}
	if !before.Ended {
		c.Note(api.StreamClosed, t.Name()+" "+string(t.ID))
	}
	_, e, err := t.Bounds(c.r.Context())
	if err != nil {
		return err
	}
	if w != nil && w.Producer != "" {
		c.known(known)
	}
	c.describe(e)
	return c.Send(http.StatusNoContent, "", nil)
}

func (c *call) isClosed(t target) bool {
	_, e, err := t.Bounds(c.r.Context())
	return err == nil && e.Ended
}

// known sets the header fields about a producer.
func (c *call) known(s hub.WriterStanding) {
	c.Set("Producer-Epoch", number(s.Epoch))
	c.Set("Producer-Seq", number(s.Seq))
}

// closed refuses an append to a closed stream.
func (c *call) closed(t target) error {
	_, e, err := t.Bounds(c.r.Context())
	if err != nil {
		return err
	}
	c.describe(e)
	return c.Refuse(http.StatusConflict, weir.StreamClosed, "the stream is closed")
}

// conflict answers an append or a close that the hub refused with err. If the writer w broke a rule
// about producers or about Stream-Seq, s says which rule.
func (c *call) conflict(t target, w *hub.Writer, s hub.WriterStanding, err error) error {
	var known *weir.Error
	if !errors.As(err, &known) {
		return err
	}
	switch {
	case known.Code == weir.StreamClosed:
		return c.closed(t)
	case s.Conflict == hub.Fenced:
		c.Set("Producer-Epoch", number(s.Epoch))
		return c.Refuse(http.StatusForbidden, weir.InvalidSequence, "this epoch of the producer is outdated: a newer epoch has written to the stream")
	case s.Conflict == hub.BadStart:
		return c.Refuse(http.StatusBadRequest, weir.InvalidSequence, "invalid Producer-Seq: a new epoch of a producer must begin with 0")
	case s.Conflict == hub.Skipped:
		c.Set("Producer-Expected-Seq", number(s.Seq))
		c.Set("Producer-Received-Seq", number(w.Seq))
		return c.Refuse(http.StatusConflict, weir.InvalidSequence, "batches of this producer are missing: send the number in Producer-Expected-Seq next")
	case s.Conflict == hub.Disorder:
		return c.Refuse(http.StatusConflict, weir.InvalidSequence, "invalid Stream-Seq: it must be greater than the last one of the stream")
	}
	return err
}

const (
	maxProducer = 256
	maxOrder    = 512
	maxNumber   = 1<<53 - 1
)

// writer parses the header fields about the writer. It returns nil if there are none.
func (c *call) writer() (*hub.Writer, error) {
	id, epoch, seq := c.r.Header["Producer-Id"], c.r.Header["Producer-Epoch"], c.r.Header["Producer-Seq"]
	order := c.r.Header.Get("Stream-Seq")
	if len(order) > maxOrder {
		return nil, weir.Errorf(weir.InvalidRequest, "Stream-Seq is longer than %d bytes", maxOrder)
	}
	if len(id)+len(epoch)+len(seq) == 0 {
		if order == "" {
			return nil, nil
		}
		return &hub.Writer{Order: order}, nil
	}
	if len(id) != 1 || len(epoch) != 1 || len(seq) != 1 || id[0] == "" || len(id[0]) > maxProducer {
		return nil, weir.Errorf(weir.InvalidRequest, "send Producer-Id (1 to %d bytes), Producer-Epoch and Producer-Seq together, each once", maxProducer)
	}
	w := &hub.Writer{Producer: id[0], Order: order}
	var first, second bool
	w.Epoch, first = natural(epoch[0])
	w.Seq, second = natural(seq[0])
	if !first || !second {
		return nil, weir.Errorf(weir.InvalidRequest, "invalid Producer-Epoch or Producer-Seq: send integers from 0 to %d", maxNumber)
	}
	return w, nil
}

// natural parses an integer without sign and leading zeros.
func natural(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && n <= maxNumber && strconv.FormatUint(n, 10) == s
}

func isTrue(s string) bool { return strings.EqualFold(strings.TrimSpace(s), "true") }

// remove serves DELETE. If the stream has forks, an empty stream takes its place, so that the path
// answers 410 as long as the forks exist. The forks do not need the deleted content, because each
// has its own copy.
func (c *call) remove() error {
	t, ok, err := c.find(access.DeleteStream)
	if !ok {
		return err
	}
	ctx := context.WithoutCancel(c.r.Context())
	if err := c.h.Hub.CatchUp(ctx); err != nil { // another node may have made a fork
		return err
	}
	if !c.h.referenced(t) {
		err = c.h.collect(ctx, t)
	} else if err = t.Delete(ctx); err == nil {
		// If mark fails, for example because the store is full, the path answers 404 instead of
		// 410.
		_ = c.mark(ctx, t)
	}
	if err != nil {
		return err
	}
	c.Note("stream deleted", t.Name()+" "+string(t.ID))
	return c.Send(http.StatusNoContent, "", nil)
}

// mark creates an empty stream in the place of the deleted stream t. If a new stream has the path
// already, mark does nothing.
func (c *call) mark(ctx context.Context, t target) error {
	spec := t.Spec()
	spec.TTLSeconds, spec.ExpiresAt = 0, 0
	a := t.attributes
	a.Gone = true
	spec.Attributes = a.encode()
	_, err := c.h.Hub.Create(ctx, spec)
	var known *weir.Error
	if errors.As(err, &known) && known.Code == weir.StreamNameTaken {
		return nil
	}
	return err
}
