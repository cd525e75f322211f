package hub

import (
	"iter"
	"sync"

	"weir"
	"weir/internal/engine"
	"weir/internal/stream"
)

// The methods of this file set the state of a feed when its log is opened.

var (
	_ engine.Forgetful = (*feed)(nil)
	_ engine.Returning = (*feed)(nil)
)

// KeysSince implements engine.Forgetful: idempotency keys that were stored before the returned time
// have expired (D25).
func (f *feed) KeysSince() weir.Time { return f.hub.now().Add(-weir.IdempotencyKeyLife) }

// Restore implements engine.Judge.
func (f *feed) Restore(note []byte, entries iter.Seq[*engine.Header]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bounds = f.s.bounds.Load()
	if f.kept != nil && f.kept.left == nil { // the kept state is up to date, so the entries need not be read
		proceed(f)
		return nil
	}
	f.kept = nil // a kept state is of no use: other nodes have changed the log too much
	r := restorations.Get().(*restoration)
	defer restorations.Put(r)
	err := r.Begin(f.bounds.rules(f.hub.opts.GapGrace), f.s.CreatedAt, note, f.hub.now())
	if err != nil {
		return err
	}
	r.oldest = never
	watchEnd(f.s, entries)(r.add)
	s, err := r.End()
	if err != nil {
		return err
	}
	if startWith(f, s); f.expiry != never && r.oldest != never {
		f.expiry, f.newest = r.oldest.Add(f.bounds.retention()), stream.Newest(s)
	}
	return nil
}

// restoration restores states, with memory that it uses again. A million streams may be opened one
// after another.
type restoration struct {
	stream.Restoration
	header stream.Header
	oldest weir.Time // of the batches
	add    func(*engine.Header) bool
}

var restorations = sync.Pool{New: func() any {
	r := new(restoration)
	r.add = func(h *engine.Header) bool {
		if convert(&r.header, h); !r.header.Closed {
			r.oldest = min(r.oldest, r.header.Time)
		}
		return r.Add(&r.header)
	}
	return r
}}

// Left implements engine.Returning.
func (f *feed) Left() engine.Log {
	if f.kept == nil {
		return nil
	}
	return f.kept.left
}

// Resume implements engine.Returning: the feed continues with the kept state.
func (f *feed) Resume(log engine.Log) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log, f.bounds = log, f.s.bounds.Load()
	proceed(f)
}

// proceed begins with the kept state. Called with f.mu held.
func proceed(f *feed) {
	s := f.kept.state
	f.kept = nil
	setBounds(s, f.bounds) // the limits may have changed while the log was closed
	startWith(f, s)
}

// startWith sets the state of a feed whose log is being opened. Called with f.mu held.
func startWith(f *feed, s *stream.State) {
	f.ahead, f.state, f.trimmed = s, s.Fork(), s.Low()
	if !stream.Keeps(s) {
		f.expiry = never
	}
	if l := lifeOf(f.s); l != nil {
		l.touch(s.Cursor().UpdatedAt)
	}
	setEnded(f)
	f.way.order.begin(s.Cursor().Cursor)
}
