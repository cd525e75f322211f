package hub

import (
	"cmp"
	"context"
	"errors"

	"weir"
	"weir/internal/engine"
)

// Create creates a stream. The stream is durable when the call returns. On a shared store, any
// other node that calls CatchUp afterwards knows the stream. Create fails with StreamNameTaken,
// StreamLimitReached (checked in this order, D10) or StorageUnavailable.
func (h *Hub) Create(ctx context.Context, s Spec) (weir.Stream, error) {
	if s.ID == "" {
		s.ID = weir.NewStreamID()
	}
	made, err := createOnce(ctx, h, &s)
	if !h.shared || !hasCode(err, weir.StreamNameTaken) {
		return made, err
	}
	// This node has perhaps just learned of the stream with this id, and its lifetime may have ended.
	if expired, failed := h.lapse(ctx, s.ID); failed != nil || expired == nil {
		return made, cmp.Or(failed, err)
	}
	return createOnce(ctx, h, &s)
}

// hasCode reports whether err is an error of the contract with this code.
func hasCode(err error, code weir.Code) bool {
	var known *weir.Error
	return errors.As(err, &known) && known.Code == code
}

// createOnce makes one attempt of Create. The stream has an id.
func createOnce(ctx context.Context, h *Hub, s *Spec) (weir.Stream, error) {
	expired, err := h.lapse(ctx, s.ID) // the sweeper may not have deleted an expired stream with this id yet
	if err != nil {
		return weir.Stream{}, err
	}
	refused := h.catalog.reserve(s, h.opts.StreamsPerProject, expired)
	if refused != nil { // another node may have deleted a stream in the meantime, so catch up and try again
		if err := h.engine.CatchUp(ctx); err != nil {
			return weir.Stream{}, clientError(s.ID, err)
		}
		refused = h.catalog.reserve(s, h.opts.StreamsPerProject, expired)
	}
	if refused != nil {
		return weir.Stream{}, refused
	}
	created := h.now()
	value, err := writeDocument(s, created)
	if err == nil {
		// The engine may finish the creation even if the caller leaves. Because of WithoutCancel,
		// this call waits for the engine even then, so the stream stays reserved.
		_, err = h.engine.Create(context.WithoutCancel(ctx), documentKey(s.ID), value)
	}
	return h.catalog.created(s, created, err)
}

// CreateLater does the same as Create, but does not wait. It calls done once, from any goroutine and
// perhaps before it returns, with the results that Create would return. The function done must not
// block.
func (h *Hub) CreateLater(s Spec, done func(weir.Stream, error)) {
	if s.ID == "" {
		s.ID = weir.NewStreamID()
	}
	if h.shared || h.catalog.lookup(s.ID) != nil { // Create may have to ask other nodes, or to delete an expired stream
		go func() { done(h.Create(context.Background(), s)) }()
		return
	}
	if refused := h.catalog.reserve(&s, h.opts.StreamsPerProject, nil); refused != nil {
		done(weir.Stream{}, refused)
		return
	}
	created := h.now()
	value, err := writeDocument(&s, created)
	if err != nil {
		done(h.catalog.created(&s, created, err))
		return
	}
	h.engine.CreateLater(documentKey(s.ID), value, func(err error) { done(h.catalog.created(&s, created, err)) })
}

// created ends the creation of a stream that was reserved, and returns the results of Create. The
// parameter err is the outcome of the creation.
func (c *catalog) created(s *Spec, at weir.Time, err error) (weir.Stream, error) {
	c.unreserve(s)
	if errors.Is(err, engine.ErrExists) {
		return weir.Stream{}, weir.Errorf(weir.StreamNameTaken, "stream %s already exists", s.ID)
	}
	if err != nil {
		return weir.Stream{}, changeError(s.ID, err)
	}
	return weir.Stream{
		ID: s.ID, Name: s.Name, CreatedAt: at, RetentionSeconds: s.RetentionSeconds, MaxBytes: s.MaxBytes, Mode: s.Mode,
		TTLSeconds: s.TTLSeconds,
	}, nil
}

// reserve checks that the id is free and that the project may have one more stream, and counts the
// stream as being created. The parameter expired is nil, or a stream whose lifetime has ended and
// whose id therefore counts as free. The caller must call unreserve when the creation has ended.
func (c *catalog) reserve(s *Spec, limit int, expired *Stream) *weir.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.byID.Get(s.ID); known != nil && known != expired {
		return weir.Errorf(weir.StreamNameTaken, "stream %s already exists", s.ID)
	}
	ps := c.project(s.Project)
	if len(ps.streams)+len(ps.creating) >= limit && ps.creating[s.ID] == 0 {
		return weir.Errorf(weir.StreamLimitReached, "the project has reached its limit of %d streams", limit)
	}
	ps.creating[s.ID]++
	return nil
}

// unreserve takes back the count of reserve, unless catalog.add has already removed it.
func (c *catalog) unreserve(s *Spec) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if creating := c.project(s.Project).creating; creating[s.ID] > 1 {
		creating[s.ID]--
	} else {
		delete(creating, s.ID)
	}
}
