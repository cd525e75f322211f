package hub

import "time"

// bounds are the limits of a stream. Streams with equal limits share one value (catalog.bounds).
type bounds struct {
	retentionSeconds int64
	maxBytes         int64
}

func (b *bounds) retention() time.Duration { return time.Duration(b.retentionSeconds) * time.Second }

// sharedBounds holds bounds and the number of streams that use them.
type sharedBounds struct {
	bounds
	streams int
}

// Name returns the current name of the stream.
func (s *Stream) Name() string {
	c := &s.hub.catalog
	c.names.RLock()
	defer c.names.RUnlock()
	return s.name
}

// MaxBytes returns the current limit of the stream's size.
func (s *Stream) MaxBytes() int64 { return s.bounds.Load().maxBytes }

// Spec returns the current settings of the stream.
func (s *Stream) Spec() Spec {
	b := s.bounds.Load()
	spec := Spec{
		ID: s.ID, Project: s.Project, Name: s.Name(), RetentionSeconds: b.retentionSeconds, MaxBytes: b.maxBytes, Mode: s.Mode,
		TTLSeconds: s.TTLSeconds, Attributes: s.Attributes(),
	}
	if l := lifeOf(s); l != nil && s.Expires {
		spec.ExpiresAt = l.until
	}
	return spec
}

func (s *Spec) bounds() *bounds { return &bounds{s.RetentionSeconds, s.MaxBytes} }

// share returns the shared value that equals b, and counts one more stream that uses it. Called
// with c.mu held.
func (c *catalog) share(b bounds) *bounds {
	shared := c.bounds[b]
	if shared == nil {
		shared = &sharedBounds{bounds: b}
		c.bounds[b] = shared
	}
	shared.streams++
	return &shared.bounds
}

// unshare records that one stream fewer uses the shared value that equals b. Called with c.mu held.
func (c *catalog) unshare(b bounds) {
	if shared := c.bounds[b]; shared.streams > 1 {
		shared.streams--
	} else {
		delete(c.bounds, b)
	}
}
