package durable

import (
	"bytes"
	"context"
	"net/http"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
)

// source returns the stream that is to be forked, and checks that the fork is possible.
func (c *call) source(w wanted) (t target, ok bool, err error) {
	s, err := c.Stream(c.h.idOf(c.Grant().Project(), w.From), access.ReadStream)
	if err != nil {
		return t, false, err
	}
	t = target{s, attributesOf(s)}
	if t.Pending {
		return t, false, weir.Errorf(weir.StreamNotFound, "the source of the fork is still being created")
	}
	if t.Gone {
		return t, false, c.Refuse(http.StatusConflict, weir.StreamNameTaken, "the source of the fork was deleted")
	}
	if w.typed && mediaType(w.Type) != mediaType(t.Type) {
		return t, false, c.Refuse(http.StatusConflict, weir.UnsupportedMediaType, "a fork must have the content type of its source")
	}
	_, e, err := t.Bounds(c.r.Context())
	if err != nil {
		return t, false, err
	}
	if w.Offset != "" && w.pos > max(e.Tail, 1) {
		return t, false, weir.Errorf(weir.InvalidRequest, "Stream-Fork-Offset lies beyond the end of the source")
	}
	if w.Sub > 0 {
		if _, err := t.part(c.r.Context(), w); err != nil {
			return t, false, err
		}
	}
	return t, true, nil
}

// copied is about how many bytes of a source are copied at a time. It is small, because each batch
// takes a few hundred bytes of memory besides its payload, which may be a single byte.
const copied = 64 << 10

// inherit copies the batches of the source up to the offset of the fork, under the same sequences,
// so that offsets mean the same in both streams.
func (t *target) inherit(ctx context.Context, w wanted, from *target) error {
	oldest, e, err := from.Bounds(ctx)
	if err != nil {
		return err
	}
	end := e.Tail
	if w.Offset != "" {
		end = w.pos
	}
	if err := hub.Begin(ctx, t.Stream, min(oldest, end)); err != nil {
		return err
	}
	for pos := oldest; pos < end; {
		var copies []weir.Batch
		e, err := from.Read(ctx, pos, copied, unreserved, func(b *weir.Batch) {
			if b.Seq < end {
				copies = append(copies, *b)
				copies[len(copies)-1].Payload = bytes.Clone(b.Payload)
			}
		})
		if err != nil {
			return err
		}
		if e.Gone { // batches may be missing between the copies
			return from.gone(ctx, pos)
		}
		if err := hub.Copy(ctx, t.Stream, copies); err != nil {
			return err
		}
		if e.Next <= pos {
			break
		}
		pos = e.Next
	}
	if w.Sub == 0 {
		return nil
	}
	part, err := from.part(ctx, w)
	if err != nil {
		return err
	}
	return hub.Copy(ctx, t.Stream, []weir.Batch{part})
}

// gone returns the error of a fork that cannot inherit the batches at a position of its source t. If
// they were evicted, the error asks for a retry, which begins with the oldest batches that are
// left.
func (t *target) gone(ctx context.Context, pos weir.Seq) error {
	oldest, _, err := t.Bounds(ctx)
	switch {
	case err != nil:
		return err
	case oldest <= pos:
		return weir.Errorf(weir.StreamNotFound, "data of the source of the fork is lost: the store was damaged")
	}
	return weir.Errorf(weir.Overloaded, "the source of the fork evicted data while it was copied; retry")
}

// part returns what a fork with a sub-offset inherits from the batch at its offset: the first
// messages or the first bytes of that batch.
func (t *target) part(ctx context.Context, w wanted) (part weir.Batch, err error) {
	found := false
	e, err := t.Read(ctx, w.pos, 1, unreserved, func(b *weir.Batch) {
		if !found {
			found, part = true, *b
			part.Payload = bytes.Clone(b.Payload)
		}
	})
	if err != nil {
		return part, err
	}
	beyond := weir.Errorf(weir.InvalidRequest, "Stream-Fork-Sub-Offset lies beyond the end of the append at the offset")
	if e.Gone {
		return part, t.gone(ctx, w.pos)
	}
	if !found {
		return part, beyond
	}
	if !t.isJSON() {
		if w.Sub > int64(len(part.Payload)) {
			return part, beyond
		}
		part.Payload = part.Payload[:w.Sub]
		return part, nil
	}
	first, ok := firstMessages(part.Payload, w.Sub)
	if !ok {
		return part, beyond
	}
	part.Payload, part.Events = first, uint32(w.Sub)
	return part, nil
}

// unreserved reserves no memory. It is passed to Read if the read needs little memory and frees it
// at once.
func unreserved(int) error { return nil }
