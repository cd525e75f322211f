package enginetest

import (
	"slices"
	"sync"

	"weir"
	"weir/internal/engine"
)

// follower is a judge for a log that several processes append to. It gives each entry the next
// sequence after the entries that it knows, and records the calls.
type follower struct {
	*judge
	trimming func()                    // called by Trimmed, unless nil
	note     func() (weir.Seq, []byte) // returns the result of Note

	mu    sync.Mutex
	calls []string
	known []engine.Header // committed and followed entries, in the order of the log
	ahead []engine.Header // entries that were admitted and not committed yet
	lows  []weir.Seq      // arguments of Trimmed
	news  chan struct{}   // closed at the next call
}

func newFollower() *follower {
	f := &follower{judge: newJudge(), news: make(chan struct{})}
	f.judge.admit = func(e *engine.Entry) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		e.Seq = weir.Seq(len(f.judge.kept) + len(f.known) + len(f.ahead) + 1)
		f.ahead = append(f.ahead, e.Header)
		f.called("Admit")
		return true
	}
	return f
}

// called records a call. The caller holds f.mu.
func (f *follower) called(call string) {
	f.calls = append(f.calls, call)
	close(f.news)
	f.news = make(chan struct{})
}

// Commit moves n entries from f.ahead to f.known.
func (f *follower) Commit(n int) {
	f.judge.Commit(n)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known, f.ahead = append(f.known, f.ahead[:n]...), f.ahead[n:]
	f.called("Commit")
}

// exclusive marks the beginning of a call that must not overlap with any other call. The function
// that it returns marks the end.
func (f *follower) exclusive(call string) (end func()) {
	if !f.judge.enter(call) {
		return func() {}
	}
	if f.judge.committing.Load() {
		f.judge.fault("%s was called during Commit", call)
	}
	f.judge.following.Store(true)
	return func() {
		f.judge.following.Store(false)
		f.judge.leave(call)
	}
}

// Follow implements engine.Follower.
func (f *follower) Follow(h engine.Header) {
	defer f.exclusive("Follow")()
	there := false
	(*f.judge.log.Load()).Headers(h.Seq, func(found engine.Header) bool { there = found.Seq == h.Seq; return false })
	if !there {
		f.judge.fault("Follow(%d): Headers does not visit the entry", h.Seq)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ahead) > 0 {
		f.judge.fault("Follow(%d) was called while %d admitted entries were in flight", h.Seq, len(f.ahead))
	}
	f.known = append(f.known, h)
	f.called("Follow")
}

// Trimmed implements engine.Follower.
func (f *follower) Trimmed(low weir.Seq) {
	defer f.exclusive("Trimmed")()
	if f.trimming != nil {
		f.trimming()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lows = append(f.lows, low)
	f.called("Trimmed")
}

// Behind implements engine.Follower. A call is a fault, because no case trims so much at once that
// a process falls behind.
func (f *follower) Behind() { f.judge.fault("Behind was called") }

// Note implements engine.Follower.
func (f *follower) Note() (weir.Seq, []byte) {
	defer f.exclusive("Note")()
	return f.note()
}

// Rewind implements engine.Follower.
func (f *follower) Rewind() {
	defer f.exclusive("Rewind")()
	f.judge.rewind()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead = nil
	f.called("Rewind")
}

// seqs returns the sequences that the judge knows, in the order of the log.
func (f *follower) seqs() (seqs []weir.Seq) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.known {
		seqs = append(seqs, h.Seq)
	}
	return seqs
}

// history returns the recorded calls and clears the record.
func (f *follower) history() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return slices.Clone(calls)
}

// awaitSeqs waits until the judge knows these sequences, in this order.
func (s *store) awaitSeqs(f *follower, want ...weir.Seq) {
	s.Helper()
	for {
		f.mu.Lock()
		news := f.news
		f.mu.Unlock()
		if slices.Equal(f.seqs(), want) {
			return
		}
		s.await(news, "an entry of another process")
	}
}
