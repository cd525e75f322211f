package enginetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"weir"
	"weir/internal/engine"
)

// store is the store of one test case. Its helper methods end the case when a call fails.
type store struct {
	*testing.T
	new     func(t *testing.T) Fixture
	fixture Fixture
	engine.Engine
	ctx context.Context

	mu     sync.Mutex
	judges []*judge
}

func start(t *testing.T, new func(t *testing.T) Fixture) *store {
	s := &store{T: t, new: new, ctx: context.Background()}
	s.fixture = new(t)
	s.Engine = s.fixture.Open(t)
	t.Cleanup(s.end)
	return s
}

// end closes the engine. A closed engine calls no judge, so the records of the judges are complete
// and can be checked.
func (s *store) end() {
	if err := s.Engine.Close(); err != nil {
		s.Errorf("close: %v", err)
	}
	s.blame()
}

func (s *store) blame() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.judges {
		for _, fault := range j.found() {
			s.Error(fault)
		}
	}
	s.judges = nil
}

// reopen closes the store and opens it again. If the engine cannot be reopened, the rest of the
// case is skipped.
func (s *store) reopen() {
	s.Helper()
	if s.fixture.Reopen == nil {
		s.Skip("skipping the rest: this engine keeps nothing across a restart")
	}
	s.Engine = s.fixture.Reopen(s.T, s.Engine)
	s.blame()
}

// crash ends the store without closing it, and opens the data that is left. If the engine cannot be
// crashed, the rest of the case is skipped.
func (s *store) crash() {
	s.Helper()
	if s.fixture.Crash == nil {
		s.Skip("skipping the rest: this engine cannot be crashed by its tests")
	}
	s.Engine = s.fixture.Crash(s.T, s.Engine)
	s.blame()
}

func (s *store) create(key, value string) engine.Document {
	s.Helper()
	doc, err := s.Create(s.ctx, key, []byte(value))
	if err != nil {
		s.Fatalf("create %q: %v", key, err)
	}
	return doc
}

// open opens a log with the judge j.
func (s *store) open(id engine.LogID, j *judge) engine.Log {
	s.Helper()
	s.watch(j)
	log, err := s.Open(s.ctx, id, j)
	if err != nil {
		s.Fatalf("open log %d: %v", id, err)
	}
	j.log.Store(&log)
	return log
}

// watch registers the judge j. At the end of the case, the faults that j recorded are reported.
func (s *store) watch(j *judge) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judges = append(s.judges, j)
}

// stream creates a document and opens its log with the judge j. If j is nil, it uses a judge that
// admits everything.
func (s *store) stream(key string, j *judge) (engine.Document, engine.Log) {
	s.Helper()
	if j == nil {
		j = newJudge()
	}
	doc := s.create(key, "")
	return doc, s.open(doc.Created, j)
}

func (s *store) closeLog(log engine.Log) {
	s.Helper()
	if err := log.Close(); err != nil {
		s.Fatalf("close the log: %v", err)
	}
}

// append appends entries one after another.
func (s *store) append(log engine.Log, entries ...*engine.Entry) {
	s.Helper()
	for _, e := range entries {
		if err := log.Append(s.ctx, e); err != nil {
			s.Fatalf("append %d: %v", e.Seq, err)
		}
	}
}

func (s *store) trim(log engine.Log, low weir.Seq, note string) {
	s.Helper()
	if err := log.Trim(s.ctx, low, []byte(note)); err != nil {
		s.Fatalf("trim to %d: %v", low, err)
	}
}

// parallel runs n calls at the same time and waits for all of them.
func (s *store) parallel(n int, call func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { call(i) })
	}
	all.Wait()
}

// counter tells readers how far a writer has come. After each scan of the log, a reader waits until
// the writer has moved on. Without this pause the reader would use up the processor while the
// writer waits for the disk.
type counter struct {
	mu    sync.Mutex
	moved sync.Cond
	at    weir.Seq
}

func newCounter() *counter {
	c := &counter{}
	c.moved.L = &c.mu
	return c
}

func (c *counter) set(at weir.Seq) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
	c.moved.Broadcast()
}

// after waits until the count exceeds n, and returns the count.
func (c *counter) after(n weir.Seq) weir.Seq {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.at <= n {
		c.moved.Wait()
	}
	return c.at
}

// patience is how long a case waits for something that must happen. A case waits that long only if
// the engine is broken.
const patience = time.Minute

// await waits until the channel done is closed.
func (s *store) await(done <-chan struct{}, what string) {
	s.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		s.Fatalf("timed out waiting for %s", what)
	}
}

// seqs returns the sequences that Headers visits.
func (s *store) seqs(log engine.Log) []weir.Seq {
	var got []weir.Seq
	log.Headers(0, func(h engine.Header) bool {
		got = append(got, h.Seq)
		return true
	})
	return got
}

// checkSeqs checks, with every method that reads, that a log holds exactly these sequences.
func (s *store) checkSeqs(log engine.Log, want ...weir.Seq) {
	s.Helper()
	if got := s.seqs(log); !slices.Equal(got, want) {
		s.Fatalf("Headers visits %v, want %v", got, want)
	}
	var got []weir.Seq
	err := log.Scan(s.ctx, 0, 0, func(e *engine.Entry) bool {
		got = append(got, e.Seq)
		return true
	})
	if err != nil || !slices.Equal(got, want) {
		s.Fatalf("Scan visits %v, want %v (%v)", got, want, err)
	}
	for _, seq := range want {
		if _, err := log.Header(s.ctx, seq); err != nil {
			s.Fatalf("header %d: %v", seq, err)
		}
		if _, err := log.Read(s.ctx, seq); err != nil {
			s.Fatalf("read %d: %v", seq, err)
		}
	}
}

func upTo(from, to weir.Seq) []weir.Seq {
	var seqs []weir.Seq
	for ; from <= to; from++ {
		seqs = append(seqs, from)
	}
	return seqs
}
