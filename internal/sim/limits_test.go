package sim

import (
	"fmt"
	"slices"
	"time"

	"weir"
	"weir/internal/hub"
)

// limits bound what a stream keeps. They may be in effect from the time when a client asks for
// them until a client knows that they were replaced.
type limits struct {
	maxBytes  int64
	retention time.Duration
	until     time.Time // when the limits were replaced; zero: they may still be in effect
}

// exceeded reports whether a batch may have been evicted while the limits were in effect: because
// of its age, to make room for the batches above it, or because a batch above it was evicted (D12).
// A batch counts as stored as soon as it was sent.
func (l *limits) exceeded(s *stream, seq weir.Seq) bool {
	end := time.Now()
	if !l.until.IsZero() {
		end = l.until
	}
	total, oldest := int64(0), end
	add := func(b *batch) {
		if b.first.After(end) {
			return
		}
		total += s.charge(b)
		if b.first.Before(oldest) {
			oldest = b.first
		}
	}
	for other, list := range s.sent {
		if other >= seq {
			for _, b := range list {
				add(b)
			}
		}
	}
	for _, b := range s.unplaced {
		if at, known := s.at[b]; !known || at >= seq {
			add(b)
		}
	}
	return total > l.maxBytes || end.Sub(oldest)+s.w.swing(oldest) >= l.retention
}

// loosest returns the largest limits that may have been in effect at the time t or later.
func (s *stream) loosest(t time.Time) (l limits) {
	for _, o := range s.limits {
		if o.until.IsZero() || o.until.After(t) {
			l.maxBytes, l.retention = max(l.maxBytes, o.maxBytes), max(l.retention, o.retention)
		}
	}
	return l
}

// limitedTo checks that a client asked for the limits in a stream object, and that they were not
// replaced.
func (s *stream) limitedTo(object *weir.Stream) {
	found := false
	for _, o := range s.limits {
		is := o.maxBytes == object.MaxBytes && o.retention == time.Duration(object.RetentionSeconds)*time.Second
		found = found || is && o.until.IsZero()
	}
	if !found {
		s.w.violation("stream %s has a retention of %d s and keeps %d bytes, which no client has asked for", s.id, object.RetentionSeconds, object.MaxBytes)
	}
}

// change changes the limits of a shared stream. The smallest limits that the API accepts are too
// large for a simulation, so most changes go to the hub directly.
func (c *client) change(g *server) {
	s := c.stream()
	if !s.changes || !s.beginChange() {
		return
	}
	l := &limits{maxBytes: 64 << 20, retention: 24 * time.Hour}
	if c.rng.IntN(4) == 0 {
		c.patch(g, s, l)
		return
	}
	if c.rng.IntN(3) > 0 {
		l.maxBytes = s.floor + int64(c.rng.IntN(1<<(8+c.rng.IntN(8))))
	}
	if c.rng.IntN(3) == 0 {
		l.retention = time.Duration(2+c.rng.IntN(20)) * time.Second
	}
	s.asked(l)
	ctx, x := g.opened(c)
	defer g.closed(x)
	if c.step("changes limits of "+string(s.id)) != nil {
		x.leave()
	}
	known, err := g.hub.Stream(s.id)
	if err != nil {
		c.w.violation("stream %s: %v", s.id, err)
		return
	}
	seconds := int64(l.retention / time.Second)
	object, err := known.Change(ctx, hub.Change{MaxBytes: &l.maxBytes, RetentionSeconds: &seconds})
	switch {
	case g.dead.Load():
		err = errCrashed
	case err != nil && !g.hurt.Load() && !g.limited.Load() && !g.stopping.Load():
		c.w.violation("stream %s: change of limits: %v", s.id, err)
	}
	s.endChange(g, l, &object, err)
	c.last = fmt.Sprintf(" after %s got limits of %d bytes and %v: %v", s.id, l.maxBytes, l.retention, err)
}

// patch sends a PATCH request, which changes the limits or nothing.
func (c *client) patch(g *server, s *stream, l *limits) {
	l.maxBytes, l.retention = weir.MinMaxBytes+int64(c.rng.IntN(1000)), time.Duration(weir.MinRetention+c.rng.IntN(100))*time.Second
	body := fmt.Sprintf(`{"name":"t","max_bytes":%d,"retention_seconds":%d}`, l.maxBytes, l.retention/time.Second)
	if c.rng.IntN(2) == 0 {
		body, l = `{"mode":1}`, nil
	}
	s.asked(l)
	x := c.ask(g, "PATCH", "/v1/streams/"+string(s.id), []byte(body))
	if x == nil || x.status == 503 {
		s.endChange(g, l, nil, errVanished)
		return
	}
	var object weir.Stream
	if err := unmarshal(x.got.Bytes(), &object); err != nil || x.status != 200 {
		c.w.violation("stream %s: PATCH: %d %s", s.id, x.status, x.got.String())
	}
	s.describes(x)
	s.endChange(g, l, &object, nil)
}

// beginChange returns false if another client changes the limits at the moment. Otherwise endChange
// must follow.
func (s *stream) beginChange() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changing {
		return false
	}
	s.changing = true
	return true
}

// asked records that a client asks for limits. The parameter is nil if the limits stay as they are.
func (s *stream) asked(l *limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l != nil {
		s.limits = append(s.limits, l)
	}
}

// endChange checks the outcome of a change. If it failed, the old or the new limits may be in
// effect. If it succeeded, all other limits are replaced, unless a write has failed (g.hurt): then
// a change that failed earlier may take effect at the next start.
func (s *stream) endChange(g *server, l *limits, object *weir.Stream, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changing = false
	if err != nil {
		return
	}
	// After an earlier change failed, the server holds what either of the limits keeps.
	vague := g.hurt.Load() && slices.ContainsFunc(s.limits, func(o *limits) bool { return o.until.IsZero() && o.maxBytes >= object.BytesStored })
	if object.BytesStored > object.MaxBytes && !vague {
		s.w.violation("stream %s has new limits, but holds more than they allow: %+v", s.id, object)
	}
	for _, o := range s.limits {
		if l != nil && o != l && o.until.IsZero() && !g.hurt.Load() {
			o.until = time.Now()
		}
	}
	s.limitedTo(object)
}
