package hub

import (
	"context"
	"errors"
	"slices"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// This file changes the settings of a stream (D37). The document of the stream changes first. Then
// every node that uses the store learns of it (documentChanged), and puts the new limits into the
// Stream. If the log of the stream is open, its feed compares these limits with its own whenever it
// evicts or decides, and applies them if they differ (adopt). So a read that starts after the
// change never sees a batch that the new limits exclude.

// Change holds new settings of a stream. A nil field keeps the current value.
type Change struct {
	Name             *string
	RetentionSeconds *int64
	MaxBytes         *int64
}

// Apply returns s with the new settings.
func (c *Change) Apply(s Spec) Spec {
	if c.Name != nil {
		s.Name = *c.Name
	}
	if c.RetentionSeconds != nil {
		s.RetentionSeconds = *c.RetentionSeconds
	}
	if c.MaxBytes != nil {
		s.MaxBytes = *c.MaxBytes
	}
	return s
}

// Change changes the settings of the stream, durably, and returns the stream object. When Change
// returns, the batches that exceed the new limits have been evicted. Change fails with
// StorageUnavailable, or with StreamNotFound if the stream was deleted, even if another stream with
// the same id has been created since. Like Delete, Change ignores the end of ctx.
func (s *Stream) Change(ctx context.Context, c Change) (weir.Stream, error) {
	ctx = context.WithoutCancel(ctx)
	var loose *loosened
	err := s.change(ctx, func(spec *Spec) (err error) {
		old := *spec
		if *spec = c.Apply(old); spec.MaxBytes <= old.MaxBytes && spec.RetentionSeconds <= old.RetentionSeconds {
			return nil
		}
		if loose == nil {
			if loose, err = loosen(ctx, s); err != nil {
				return err
			}
		}
		loose.growTo(spec.bounds())
		return trimEvicted(ctx, loose.f)
	})
	if loose != nil {
		loose.end(err != nil && s.hub.engine.Status().State == engine.ReadOnly)
	}
	if err != nil {
		return weir.Stream{}, err
	}
	o, err := s.Object(ctx)
	return o, changeError(s.ID, err)
}

// change calls the function edit with the settings of the stream, and stores the edited settings in
// the document. If another change is stored first, it calls edit again with the settings that are
// now in the document. It fails with StreamNotFound or StorageUnavailable.
func (s *Stream) change(ctx context.Context, edit func(*Spec) error) error {
	for {
		doc, err := s.hub.engine.Get(ctx, documentKey(s.ID))
		if errors.Is(err, engine.ErrNotFound) || err == nil && doc.Created != s.log {
			return notFound(s.ID)
		}
		if err != nil {
			return clientError(s.ID, err)
		}
		spec, created, err := readDocument(doc)
		if err != nil {
			return err
		}
		old := spec
		if err := edit(&spec); err != nil || spec == old {
			return err
		}
		value, err := writeDocument(&spec, created)
		if err != nil {
			return err
		}
		_, err = s.hub.engine.Update(ctx, doc.Key, value, doc.Revision)
		switch {
		case errors.Is(err, engine.ErrNotFound):
			return notFound(s.ID)
		case !errors.Is(err, engine.ErrConflict):
			return changeError(s.ID, err)
		}
	}
}

// loosened is a feed whose limits are about to grow. From the call of growTo until the call of end,
// the feed evicts nothing that the larger limits keep. Otherwise it could evict a batch after
// trimEvicted and before the larger limits are stored, and a restart would bring that batch back.
type loosened struct {
	f     *feed
	least bounds // the feed applies limits that are at least as large as these
}

// loosen acquires the feed of the stream. The caller must call end.
func loosen(ctx context.Context, s *Stream) (*loosened, error) {
	f, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &loosened{f: f}, nil
}

func (l *loosened) growTo(b *bounds) {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	if l.least = *b; !slices.Contains(l.f.loose, l) {
		l.f.loose = append(l.f.loose, l)
	}
}

// end releases the feed. If the store became read-only, the change may have been stored, and a
// restart may find it. Then the parameter vague is true, and the feed goes on to keep what the larger
// limits keep.
func (l *loosened) end(vague bool) {
	if !vague {
		l.f.mu.Lock()
		l.f.loose = slices.DeleteFunc(l.f.loose, func(o *loosened) bool { return o == l })
		l.f.mu.Unlock()
	}
	l.f.release()
}

// trimEvicted trims (removes from the log) what was evicted under the current limits. Otherwise a
// restart would find the evicted batches in the log, and larger limits would bring them back.
func trimEvicted(ctx context.Context, f *feed) error {
	if err := f.catchUp(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	f.evict(f.hub.now())
	due := untrimmed(f)
	f.mu.Unlock()
	if !due {
		return nil
	}
	return changeError(f.s.ID, f.trim())
}

// settingsChanged puts the settings of a changed document into the stream. It must not call the
// engine, so it evicts nothing. An open feed applies the limits at its next use, at the latest in
// the sweeper's next round. If the log is closed, the sweeper opens it soon.
func (h *Hub) settingsChanged(s *Stream, spec *Spec) {
	if spec.Name != s.Name() {
		h.catalog.names.Lock()
		s.name = spec.Name
		h.catalog.names.Unlock()
	}
	old, limits := s.bounds.Load(), spec.bounds()
	if *limits == *old {
		return
	}
	h.catalog.mu.Lock()
	limits = h.catalog.share(*limits)
	h.catalog.unshare(*old)
	h.catalog.mu.Unlock()
	s.mu.Lock()
	s.bounds.Store(limits)
	s.summary = summary{}
	s.mu.Unlock()
	h.sweeper.checkBy(s, h.now())
}

// adopt applies the current limits of the stream to f.ahead and f.state, if the limits have
// changed. Called with f.mu held.
func adopt(f *feed) {
	limits := f.s.bounds.Load()
	for _, l := range f.loose {
		limits = &bounds{max(limits.retentionSeconds, l.least.retentionSeconds), max(limits.maxBytes, l.least.maxBytes)}
	}
	if limits == f.bounds {
		return
	}
	f.bounds = limits
	setBounds(f.ahead, limits)
	setBounds(f.state, limits)
	f.expiry = nextExpiry(f)
}

func setBounds(s *stream.State, b *bounds) { stream.SetBounds(s, b.maxBytes, b.retention()) }
