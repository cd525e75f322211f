package hub

import (
	"context"
	"errors"

	"weir/internal/engine"
)

// Delete deletes the stream and all its batches, durably. Subscribers get ErrDeleted. Delete fails
// with StreamNotFound if the stream was deleted before, even if another stream with the same id has
// been created since. Delete ignores the end of ctx and always returns the outcome of the deletion,
// so that the audit log can record it.
func (s *Stream) Delete(ctx context.Context) error { return s.deleteIf(ctx, nil) }

// deleteIf does the same as Delete, but asks the function due about the settings in the document
// first, and deletes nothing if due returns false. Subscribers get ErrExpired. If due is nil,
// deleteIf is the same as Delete.
func (s *Stream) deleteIf(ctx context.Context, due func(*Spec) bool) error {
	ctx = context.WithoutCancel(ctx)
	remove := s.hub.engine.Delete
	if due != nil {
		remove = s.hub.engine.Expire
	}
	for {
		doc, err := s.hub.engine.Get(ctx, documentKey(s.ID))
		if errors.Is(err, engine.ErrNotFound) || err == nil && doc.Created != s.log {
			return notFound(s.ID)
		}
		if err == nil && due != nil {
			if spec, _, err := readDocument(doc); err != nil || !due(&spec) {
				return err
			}
		}
		if err == nil {
			err = remove(ctx, documentKey(s.ID), doc.Revision)
		}
		switch {
		case errors.Is(err, engine.ErrNotFound):
			return notFound(s.ID)
		case !errors.Is(err, engine.ErrConflict): // after a conflict, deleteIf tries again, because the settings have changed meanwhile
			return changeError(s.ID, err)
		}
	}
}

// forget removes a deleted stream from the catalog, the sweeper and the states of closed logs
// (folded.go). The caller has already set s.deleted.
func (h *Hub) forget(s *Stream) {
	h.catalog.remove(s, &h.room)
	h.sweeper.forget(s)
	h.forgetLife(s)
	h.attributes.Delete(s)
	h.folded.take(s)
}
