package enginetest

import (
	"iter"
	"slices"

	"weir"
	"weir/internal/engine"
)

var resumeCases = []testCase{
	{"a judge continues with an earlier state", []string{
		"Returning is a Follower that may continue with the state that an earlier judge of the same log had when the log was closed. An engine whose store is shared then reads only what was stored since then; other engines need not call the methods below.",
		"The engine calls Left before Restore. Left returns the closed log of the earlier judge, or nil if there is no state to continue with. A log can be continued only once.",
		"The engine calls Resume instead of Restore if it can report everything that was stored since the earlier log was closed. It makes these reports (Follow, Trimmed) after Resume and before Open returns. The argument is the log that Open returns. If the engine calls Restore instead, the earlier state is outdated and must not be used.",
	}, resumed},
}

// returning is a judge that may continue with the entries that an earlier judge knew.
type returning struct {
	*follower
	left    engine.Log
	asked   int
	resumed engine.Log
}

// comeBack opens a log with a judge that knows what the judge before knew.
func (s *store) comeBack(id engine.LogID, before *follower, left engine.Log) (engine.Log, *returning) {
	s.Helper()
	r := &returning{follower: newFollower(), left: left}
	r.known = append(slices.Clone(before.judge.kept), before.known...)
	r.judge.admit = func(e *engine.Entry) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		e.Seq = 1
		for _, h := range slices.Concat(r.judge.kept, r.known, r.ahead) {
			e.Seq = max(e.Seq, h.Seq+1)
		}
		r.ahead = append(r.ahead, e.Header)
		return true
	}
	s.watch(r.judge)
	log, err := s.Open(s.ctx, id, r)
	if err != nil {
		s.Fatalf("open log %d: %v", id, err)
	}
	if r.asked != 1 {
		s.Errorf("Left was called %d times", r.asked)
	}
	if r.resumed != nil && r.resumed != log {
		s.Error("Resume did not get the log that Open returned")
	}
	r.judge.log.Store(&log)
	return log, r
}

// Left implements engine.Returning.
func (r *returning) Left() engine.Log {
	r.asked++
	if r.judge.restored {
		r.judge.fault("Left was called after Restore or Resume")
	}
	return r.left
}

// Resume implements engine.Returning.
func (r *returning) Resume(log engine.Log) {
	if r.judge.restored || r.left == nil {
		r.judge.fault("Resume was called after Restore or Resume, or without an earlier log")
	}
	r.judge.mu.Lock()
	r.judge.restored = true
	r.judge.mu.Unlock()
	r.judge.log.Store(&log)
	r.resumed = log
}

// Restore implements engine.Judge. It forgets the state of the earlier judge.
func (r *returning) Restore(note []byte, entries iter.Seq[*engine.Header]) error {
	r.known = nil
	return r.judge.Restore(note, entries)
}

// checkKnown checks what the judge knows, and that its log holds the entries from low on.
func (r *returning) checkKnown(s *store, log engine.Log, low, last weir.Seq) {
	s.Helper()
	want := upTo(low, last)
	if r.resumed != nil {
		want = upTo(1, last)
		if low > 1 && !slices.Equal(r.lows, []weir.Seq{low}) {
			s.Errorf("Trimmed got %v, want %d", r.lows, low)
		}
	}
	if got := append(r.judge.keptSeqs(), r.seqs()...); !slices.Equal(got, want) {
		s.Errorf("when the log was opened, the judge knew the entries %v, want %v", got, want)
	}
	s.checkSeqs(log, upTo(low, last)...)
	s.append(log, batch(0, "after it was opened"))
	s.checkSeqs(log, upTo(low, last+1)...)
}

func resumed(s *store) {
	there := s.openAnother()
	doc := s.create("stream", "")
	first, mine := s.follow(s.Engine, doc.Created)
	for range 3 {
		s.append(first, batch(0, "x"))
	}
	s.closeLog(first)

	second, unchanged := s.comeBack(doc.Created, mine, first)
	unchanged.checkKnown(s, second, 1, 3)
	s.closeLog(second)

	other, theirs := s.follow(there, doc.Created)
	other.Attend() // otherwise the process might write before it knows entry 4
	s.caughtUp(other)
	for range 2 {
		s.append(other, batch(0, "of another process"))
	}
	theirs.note = func() (weir.Seq, []byte) { return 3, []byte("theirs") }
	s.trim(other, 3, "theirs")
	third, changed := s.comeBack(doc.Created, unchanged.follower, second)
	changed.checkKnown(s, third, 3, 6)
	s.closeLog(third)

	fourth, again := s.comeBack(doc.Created, changed.follower, second)
	if again.resumed != nil {
		s.Error("Resume was called for a log that had been returned before")
	}
	again.checkKnown(s, fourth, 3, 7)
	s.closeLog(fourth)

	fifth, without := s.comeBack(doc.Created, newFollower(), nil)
	without.checkKnown(s, fifth, 3, 8)
}
