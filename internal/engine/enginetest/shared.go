package enginetest

import (
	"fmt"
	"slices"

	"weir"
	"weir/internal/engine"
)

const (
	followerSays = "Follower is a Judge for a log that other processes append to as well. An engine whose store is shared needs a Follower as soon as another process appends; an engine that serves a single process never calls the methods below. The engine never calls them while Admit or Commit runs."
	followSays   = "Follow reports an entry of another process at its position in the log's order. That process has already decided about the entry, which is durable and can be read. During the call, no entry that this judge admitted is in flight."
	rewindSays   = "Rewind tells the judge to forget every entry that it admitted and that Commit has not reported. The reason is that an entry of another process was stored first, or that the store refused an entry. After Rewind, the engine reports the entries that came first (Follow). Then it asks again (Admit) about the entries whose callers still wait."
	otherwise    = "Without Attend, the engine reports entries of other processes later: from time to time, when a caller catches up, and before it stores an entry of this process that comes after them."
)

// Most of these cases need a second process (Fixture.Join).
var sharedCases = []testCase{
	{"a judge that has caught up knows everything", []string{
		"CatchUp returns when the judge knows everything that was acknowledged to any client before the call.",
		"Shared tells whether other processes use the store as well. If Shared returns false, both CatchUp of Documents and CatchUp of a Log cost nothing, because watchers and judges know everything already.",
	}, catchUpAlone},
	{"watchers receive changes of another process", []string{watchSays, watchUpTo, catchUp}, watchAnother},
	{"a judge follows another process", []string{
		followerSays, followSays, "CatchUp returns when the judge knows everything that was acknowledged to any client before the call.",
	}, followAnother},
	{"Attend and Leave", []string{
		"Attend makes the engine report entries of other processes to the judge as soon as they are stored. It stays in effect until Leave has been called as often as Attend.",
		otherwise,
	}, attended},
	{"another process appends first", []string{rewindSays, followSays, otherwise}, rewound},
	{"processes append at the same time", []string{followerSays, followSays, rewindSays}, together},
	{"another process trims the log", []string{
		"Trimmed reports that another process trimmed the log below low. While Trimmed runs, Log.Headers still visits the removed entries; afterwards it does not.",
	}, trimmedElsewhere},
	{"Trim stores the result of Note", []string{
		"The engine calls Note as soon as a Trim has its position in the log's order. The engine stores the results of Note instead of the arguments of Trim, because other processes may have appended and trimmed since Trim was called. When Note is called, the judge knows everything that was committed and followed before that position. The note need not take account of entries that were admitted but not committed.",
	}, noted},
}

// openAnother opens the store a second time, as another process does. If the engine cannot be
// shared, the rest of the case is skipped.
func (s *store) openAnother() engine.Engine {
	s.Helper()
	if s.fixture.Join == nil {
		s.Skip("skipping the rest: this engine serves a single process")
	}
	e := s.fixture.Join(s.T)
	s.Cleanup(func() {
		if err := e.Close(); err != nil {
			s.Errorf("close the other process: %v", err)
		}
	})
	return e
}

// follow opens a log with a new follower, on one of the processes.
func (s *store) follow(e engine.Engine, id engine.LogID) (engine.Log, *follower) {
	s.Helper()
	f := newFollower()
	s.watch(f.judge)
	log, err := e.Open(s.ctx, id, f)
	if err != nil {
		s.Fatalf("open log %d: %v", id, err)
	}
	f.judge.log.Store(&log)
	return log, f
}

func (s *store) caughtUp(log engine.Log) {
	s.Helper()
	if err := log.CatchUp(s.ctx); err != nil {
		s.Fatalf("catch up: %v", err)
	}
}

func catchUpAlone(s *store) {
	if got := s.Shared(); got != (s.fixture.Join != nil) {
		s.Errorf("Shared returns %v", got)
	}
	w := s.watchAs(s.Engine)
	j := counting(1)
	_, log := s.stream("stream", j)
	log.Attend()
	defer log.Leave()
	for n := range 20 {
		s.append(log, batch(0, "x"))
		s.caughtUp(log)
		if got := j.durable(); got != n+1 {
			s.Fatalf("after append %d the judge knows %d entries", n+1, got)
		}
	}
	s.checkWatcher(w)
}

func watchAnother(s *store) {
	there := s.openAnother()
	w := s.watchAs(s.Engine)
	for i := range 10 {
		key := fmt.Sprint("key ", i)
		doc, err := there.Create(s.ctx, key, []byte("1"))
		if err != nil {
			s.Fatal(err)
		}
		s.checkWatcher(w)
		if c, ok := w.knows(key); !ok || c.Revision != doc.Revision {
			s.Errorf("after catching up the watcher knows %+v", c)
		}
		if _, err = there.Update(s.ctx, key, []byte("2"), doc.Revision); err != nil {
			s.Fatal(err)
		}
		late := s.watchAs(s.Engine)
		if c, ok := late.knows(key); !ok || string(c.Value) != "2" {
			s.Errorf("a new watcher knows %+v", c)
		}
		if i%2 == 0 {
			remove := there.Delete
			if i%4 == 0 {
				remove = there.Expire
			}
			if err := remove(s.ctx, key, 0); err != nil {
				s.Fatal(err)
			}
		}
		s.checkWatcher(w)
		if c, _ := w.knows(key); c.Deleted != (i%2 == 0) || c.Expired != (i%4 == 0) {
			s.Errorf("after change %d of another process the watcher knows %+v", i, c)
		}
	}
}

func followAnother(s *store) {
	there := s.openAnother()
	doc := s.create("stream", "")
	here, mine := s.follow(s.Engine, doc.Created)
	other, theirs := s.follow(there, doc.Created)
	for n := range weir.Seq(5) {
		e := batch(0, fmt.Sprint("entry ", n+1))
		s.append(here, e)
		s.caughtUp(other)
		if got := theirs.seqs(); !slices.Equal(got, upTo(1, n+1)) {
			s.Fatalf("after catching up the judge knows %v, want up to %d", got, n+1)
		}
		got, err := other.Read(s.ctx, n+1)
		if err != nil {
			s.Fatalf("read what another process appended: %v", err)
		}
		s.same(got, engine.Entry{Header: mine.known[n], Payload: e.Payload})
	}
	if calls := theirs.history(); slices.Contains(calls, "Admit") {
		s.Errorf("the judge was asked about entries that another process decided: %v", calls)
	}
	s.checkSeqs(other, upTo(1, 5)...)
}

func attended(s *store) {
	there := s.openAnother()
	doc := s.create("stream", "")
	here, _ := s.follow(s.Engine, doc.Created)
	other, theirs := s.follow(there, doc.Created)
	s.append(here, batch(0, "before"))
	other.Attend()
	s.awaitSeqs(theirs, 1)
	s.append(here, batch(0, "attended"))
	s.awaitSeqs(theirs, 1, 2)
	other.Attend()
	other.Leave()
	s.append(here, batch(0, "still attended"))
	s.awaitSeqs(theirs, 1, 2, 3)
	other.Leave()
	s.append(here, batch(0, "left"))
	s.append(other, batch(0, "behind it"))
	s.awaitSeqs(theirs, 1, 2, 3, 4, 5)
}

// rewound appends to a log whose newest entry this process does not know yet. The engine must call
// Follow for that entry before it calls Admit for the appended entry. If the engine called Admit
// for the appended entry too early, it must call Rewind before Follow.
func rewound(s *store) {
	there := s.openAnother()
	doc := s.create("stream", "")
	here, mine := s.follow(s.Engine, doc.Created)
	other, theirs := s.follow(there, doc.Created)
	s.append(other, batch(0, "first"))
	theirs.history()
	s.append(here, batch(0, "second"))
	calls := mine.history()
	if !slices.Equal(calls, []string{"Admit", "Rewind", "Follow", "Admit", "Commit"}) && !slices.Equal(calls, []string{"Follow", "Admit", "Commit"}) {
		s.Errorf("the judge got these calls: %v", calls)
	}
	s.awaitSeqs(mine, 1, 2)
	s.caughtUp(other)
	s.awaitSeqs(theirs, 1, 2)
	got, err := other.Read(s.ctx, 2)
	if err != nil || string(got.Payload) != "second" {
		s.Errorf("entry 2 holds %q, %v", got.Payload, err)
	}
}

func together(s *store) {
	there := s.openAnother()
	doc := s.create("stream", "")
	here, mine := s.follow(s.Engine, doc.Created)
	other, theirs := s.follow(there, doc.Created)
	const n = 40
	s.parallel(2*n, func(i int) {
		log := []engine.Log{here, other}[i%2]
		if err := log.Append(s.ctx, batch(0, fmt.Sprint("entry ", i))); err != nil {
			s.Errorf("append: %v", err)
		}
	})
	for _, log := range []engine.Log{here, other} {
		s.caughtUp(log)
		s.checkSeqs(log, upTo(1, 2*n)...)
	}
	s.awaitSeqs(mine, upTo(1, 2*n)...)
	s.awaitSeqs(theirs, upTo(1, 2*n)...)
	seen := map[string]bool{}
	err := here.Scan(s.ctx, 0, 0, func(e *engine.Entry) bool { seen[string(e.Payload)] = true; return true })
	if err != nil || len(seen) != 2*n {
		s.Errorf("found %d of %d entries, %v", len(seen), 2*n, err)
	}
}

func trimmedElsewhere(s *store) {
	there := s.openAnother()
	doc := s.create("stream", "")
	here, mine := s.follow(s.Engine, doc.Created)
	other, theirs := s.follow(there, doc.Created)
	for range 5 {
		s.append(here, batch(0, "x"))
	}
	s.caughtUp(other)
	var during []weir.Seq
	theirs.trimming = func() { during = s.seqs(other) }
	mine.note = func() (weir.Seq, []byte) { return 4, []byte("note") }
	s.trim(here, 4, "note")
	s.caughtUp(other)
	if !slices.Equal(theirs.lows, []weir.Seq{4}) || !slices.Equal(during, upTo(1, 5)) {
		s.Errorf("Trimmed got low %v and saw the entries %v, want 4 and entries 1 to 5", theirs.lows, during)
	}
	s.checkSeqs(other, 4, 5)
}

func noted(s *store) {
	there := s.openAnother()
	doc := s.create("stream", "")
	here, mine := s.follow(s.Engine, doc.Created)
	other, theirs := s.follow(there, doc.Created)
	for range 4 {
		s.append(here, batch(0, "x"))
	}
	s.append(other, batch(0, "of another process"))
	theirs.note = func() (weir.Seq, []byte) { return 3, []byte("theirs") }
	s.trim(other, 3, "an argument")
	mine.note = func() (weir.Seq, []byte) {
		if got := mine.seqs(); !slices.Equal(got, upTo(1, 5)) || !slices.Equal(mine.lows, []weir.Seq{3}) {
			mine.judge.fault("Note was called when the judge knew the entries %v and the trims at %v", got, mine.lows)
		}
		return 5, []byte("mine")
	}
	s.caughtUp(here)
	s.trim(here, 2, "an older argument")
	s.checkSeqs(here, 5)
	s.closeLog(here)
	j := newJudge()
	s.checkSeqs(s.open(doc.Created, j), 5)
	if string(j.note) != "mine" {
		s.Errorf("the stored note is %q", j.note)
	}
}
