package sim

import "time"

// life is the lifetime of a stream that expires if it is not used (D37). Guarded by model.mu.
type life struct {
	ttl      time.Duration // 0: the stream does not expire
	vague    bool          // ttl may be wrong, because the outcome of a create is unknown
	born     time.Time     // when the request began that created the stream
	made     time.Time     // when that request ended
	from     time.Time     // the last use was at this time or later; zero: unknown
	to       time.Time     // the last use was at this time or earlier
	on       *server       // the process that knows of the last use
	starting bool          // a subscription starts, which may be a use
	ending   bool          // the stream was used at a time when it may already have expired

	over   *server   // the process that said that the stream has expired; nil: none did
	overAt time.Time // when it said so
	late   bool      // a subscription was starting at that time, and may still count as a use
}

// created records that a request has created the stream. The parameter at is when the request
// began.
func (l *life) created(g *server, ttl time.Duration, at time.Time) {
	*l = life{ttl: ttl, born: at, made: time.Now(), from: at, to: time.Now(), on: g, starting: l.starting}
}

// used records that a request has used the stream or, if the parameter sure is false, may have used
// it. The parameter at is when the request began.
func (l *life) used(w *world, g *server, at time.Time, sure bool) {
	l.ending = l.ending || sure && l.mayHaveEnded(w, g)
	l.to = time.Now()
	if sure && at.After(l.from) {
		l.from = at
	}
	if sure {
		l.on = g
	}
}

// mayHaveEnded reports whether the stream may have expired. There are two special cases. After a
// restart, the server may not know the last use. And if the stream was used at a time when it may
// already have expired, the server may have begun to delete it.
func (l *life) mayHaveEnded(w *world, g *server) bool {
	return l.vague || l.ttl > 0 && (l.ending || l.from.IsZero() || l.on != g || time.Since(l.from)+w.swing(l.from) >= l.ttl)
}

// mustHaveEnded reports whether the stream must have expired by the given time. Each restart may
// prolong its life by an eighth of the time to live, or by five seconds if that is longer. A clock
// that was set back prolongs it too, because the last use that the server knows of may then lie in
// the future.
func (l *life) mustHaveEnded(w *world, g *server, at time.Time) bool {
	late := time.Duration(0)
	if l.on != g {
		late = time.Duration(len(w.servers)) * max(l.ttl/8, 5*time.Second)
	}
	return !l.vague && !l.starting && l.ttl > 0 && at.Sub(l.to)-w.swing(l.born) >= l.ttl+late
}

// mayReturn reports whether an expired stream may exist again: after a restart, after a change of
// the clock, or because it was being used when it expired.
func (l *life) mayReturn(w *world, g *server) bool {
	return l.over != nil && (l.over != g || w.stepped.After(l.overAt) || l.late)
}

// lapse updates the model if a response shows that the stream has expired, or exists again. The
// parameter exists says whether the stream exists according to the response.
func (o *own) lapse(w *world, g *server, x *exchange, exists bool) {
	w.model.mu.Lock()
	defer w.model.mu.Unlock()
	switch {
	case exists && o.life.mustHaveEnded(w, g, x.at) && o.sure && o.exists:
		w.violation("stream %s exists, but was last used %v ago, with a time to live of %v", o.id, x.at.Sub(o.life.to), o.life.ttl)
	case exists && !o.exists && o.life.mayReturn(w, g):
		o.exists, o.seen = true, true
		o.life.over, o.life.from, o.life.to = nil, time.Time{}, time.Now()
	case !exists && o.life.mayHaveEnded(w, g):
		if o.exists || !o.sure {
			o.life.over, o.life.overAt, o.life.late = g, time.Now(), o.life.starting
		}
		o.exists, o.seen = false, false
	}
}

// uses records that a request has used the stream or, if the parameter sure is false, may have used
// it.
func (o *own) uses(w *world, g *server, x *exchange, sure bool) {
	w.model.mu.Lock()
	defer w.model.mu.Unlock()
	at := time.Time{}
	if x != nil {
		at = x.at
	}
	o.life.used(w, g, at, sure)
}

// lives records the lifetime of a stream that was created, or may have been created.
func (o *own) lives(w *world, g *server, x *exchange, ttl time.Duration) {
	w.model.mu.Lock()
	defer w.model.mu.Unlock()
	switch {
	case x != nil && x.status == 201:
		o.life.created(g, ttl, x.at)
	case x == nil || x.status >= 500:
		o.life.vague, o.life.to = true, time.Now()
	}
}

// liveFor checks the time to live in a stream object.
func (o *own) liveFor(w *world, seconds int64) {
	w.model.mu.Lock()
	defer w.model.mu.Unlock()
	ttl := time.Duration(seconds) * time.Second
	if !o.life.vague && o.life.ttl != ttl {
		w.violation("stream %s has a time to live of %v, want %v", o.id, ttl, o.life.ttl)
	}
	if o.life.vague {
		o.life = life{ttl: ttl, to: time.Now(), starting: o.life.starting}
	}
}

// outlived reports whether a subscription to the stream must have ended, because the stream expired
// three seconds ago or earlier. It returns false while the disk fails, because the server cannot
// delete a stream then.
func (o *own) outlived(w *world, x *exchange) bool {
	g := x.server
	if x.held != nil {
		return x.held.outlived(w, g)
	}
	return o.sure && o.exists && !g.hurt.Load() && !g.limited.Load() && o.life.mustHaveEnded(w, g, time.Now().Add(-3*time.Second))
}

// wiped says when a client deleted a stream. Guarded by model.mu.
type wiped struct {
	at      time.Time // when the last delete ended
	running int       // how many deletes are running, or have an unknown outcome
}

// wipe records that a client begins to delete the stream, or has got the response x.
func (m *model) wipe(d *wiped, begins bool, x *exchange) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case begins:
		d.running++
	case x != nil && x.status < 500:
		d.at = time.Now()
		d.running--
	}
}

// mayBeWiped reports whether a client may have deleted the stream to which the subscription x began.
// In a cluster, a subscription may begin after the deletion, on a node that does not know of it yet.
func (d *wiped) mayBeWiped(w *world, x *exchange) bool {
	return d.running > 0 || x.at.Before(d.at.Add(w.slack()))
}
