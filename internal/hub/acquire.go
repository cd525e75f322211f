package hub

import (
	"context"
	"errors"
	"fmt"

	"weir/internal/engine"
	"weir/internal/stream"
)

// acquire returns the feed of a stream and opens the feed if necessary. The caller must call
// release.
//
// Opening a log can take seconds, so acquire opens the log without holding a lock. One caller opens
// the log, and the other callers wait on traffic.wait. If opening fails, all these callers get the
// error. If each retried in turn, the last caller would wait for the sum of all attempts.
func (s *Stream) acquire(ctx context.Context) (*feed, error) {
	for {
		s.mu.Lock()
		if s.deleted {
			s.mu.Unlock()
			return nil, notFound(s.ID)
		}
		if f := s.traffic.open(); f != nil {
			if s.hub.shared && f.isBehind() {
				s.mu.Unlock()
				s.hub.closeFeed(s, true)
				continue
			}
			f.users++
			s.mu.Unlock()
			return f, nil
		}
		if s.traffic.inTransition() {
			if s.traffic.wait == nil {
				s.traffic.wait = &transition{done: make(chan struct{})}
			}
			busy := s.traffic.wait
			s.mu.Unlock()
			select {
			case <-busy.done:
				if busy.err != nil {
					return nil, busy.err
				}
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		defer s.mu.Unlock()
		return enter(s, func(f *feed) (engine.Log, error) {
			return s.hub.engine.Open(context.Background(), s.log, f)
		})
	}
}

// enter opens the feed of a stream, and acquires it. It calls the function open to open the log.
// Called with s.mu held, which it unlocks meanwhile.
func enter(s *Stream, open func(*feed) (engine.Log, error)) (f *feed, err error) {
	if s.traffic == nil {
		s.traffic = new(traffic)
	}
	way := s.traffic
	way.busy = true
	s.mu.Unlock()
	err = errOpening // if the call of open panics
	defer func() {
		s.mu.Lock()
		if err == nil {
			f.users = 1
			way.feed, s.summary = f, summary{}
		} else if way.idle() {
			s.traffic = nil
		}
		why := err
		if err == errNotNow {
			why = nil // the callers that wait try to open the log themselves
		}
		way.end(why)
	}()
	return s.open(way, open)
}

var errOpening = errors.New("opening the stream has failed")

// transition is the opening or closing of a feed, for callers that wait until it has ended.
type transition struct {
	done chan struct{} // closed when the transition ends
	err  error         // why opening failed; valid once done is closed
}

// end ends the transition that is in progress. Called with Stream.mu held.
func (t *traffic) end(err error) {
	if t.busy = false; t.wait != nil {
		t.wait.err = err
		close(t.wait.done)
		t.wait = nil
	}
}

// open opens the log of a stream with the function openLog.
func (s *Stream) open(way *traffic, openLog func(*feed) (engine.Log, error)) (*feed, error) {
	select {
	case <-s.hub.closing:
		return nil, errStopped
	default:
	}
	f := &feed{s: s, hub: s.hub, way: way, kept: s.hub.folded.take(s), held: heldFrom{seq: stream.NoneHeld}}
	if s.hub.shared {
		f.fetching = make(chan struct{}, 1)
	}
	log, err := openLog(f)
	if err != nil {
		s.mu.Lock()
		if f.kept != nil && !s.deleted { // Open failed before it used the kept state; for example, the store did not answer
			s.hub.folded.put(f.kept)
		}
		s.mu.Unlock()
		if known := clientError(s.ID, err); known != err || err == errNotNow {
			return nil, known
		}
		return nil, fmt.Errorf("open stream %s: %w", s.ID, err)
	}
	now := s.hub.now()
	f.mu.Lock()
	f.log = log
	f.evict(now)
	f.updateHeld(now)
	f.schedule()
	f.mu.Unlock()
	f.used.Store(true) // the sweeper measures what the feed needs
	s.hub.catalog.setOpen(s, true)
	return f, nil
}

// release ends the use of a feed that acquire returned. It does not close the log. The sweeper
// closes the log when the feed has been idle for idleFor.
func (f *feed) release() {
	if !f.used.Load() { // a load first, so that busy cores do not contend for the cache line
		f.used.Store(true)
	}
	f.s.mu.Lock()
	f.users--
	f.s.mu.Unlock()
}

// openFeed returns the feed of the stream, or nil if the log is closed. It does not count as a use of
// the feed.
func (s *Stream) openFeed() *feed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.traffic.open()
}
