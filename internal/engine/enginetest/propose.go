package enginetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"weir"
	"weir/internal/engine"
)

var proposeCases = []testCase{
	{"proposals are decided in order, and reported once they are durable", []string{
		"Propose does the same as Append, but does not wait.",
		"It reports the outcome by calling the function done exactly once, from any goroutine: with nil, or with one of the errors of Append, except those of a context.",
		"Propose may call done before it returns.",
		"If a goroutine proposes two entries to one log, one after the other, the judge is asked about them in this order.",
		"The engine owns e and its payload until it calls done.",
	}, proposals},
	{"a refusal is reported after the entries it is based on are durable", []string{
		"Propose does the same as Append, but does not wait.",
		"If the judge refused it, everything admitted before it is durable",
	}, refusedProposals},
	{"the function done proposes the next entry", []string{
		"It holds no lock during that call, so the function done may propose another entry.",
	}, chain},
	{"a proposal has its place before its outcome is reported", []string{
		"Append and Propose call Placed at most once, as soon as the entry has its place and before the outcome is reported.",
	}, placedProposals},
	{"proposals to a log that is dropped or closed", []string{
		"with nil, or with one of the errors of Append, except those of a context.",
		"ErrDropped not appended: the log was dropped",
		"ErrClosed not appended: the log or the store was closed",
	}, proposalsToTheEnd},
	{"deferred proposals", []string{
		"Flusher is an engine to which a caller can propose many entries before the engine starts to store them.",
		"The engine then writes these entries together.",
		"Flush makes the engine start to store all deferred entries (see Entry.Deferred) that any goroutine proposed before the call.",
		"It may report their outcomes before it returns.",
	}, deferredProposals},
	{"opening at once", []string{
		"OpenNow does the same as Open, but only if that needs no disk and succeeds.",
		"Otherwise it returns nil and has not changed anything, except that it may have called Judge.Restore.",
	}, openNow},
}

// openNow opens logs with OpenNow if the engine has it, and with Open if OpenNow returns nil. Either
// way, the judge gets all entries, and the log takes more.
func openNow(s *store) {
	f, ok := s.Engine.(engine.Flusher)
	if !ok {
		s.Skip("skipping the rest: this engine is no Flusher")
	}
	if f.OpenNow(1<<40, newJudge()) != nil {
		s.Error("OpenNow opened a log that does not exist")
	}
	for _, n := range []weir.Seq{0, 1, 50, 2000} {
		doc, log := s.stream(fmt.Sprint("stream", n), nil)
		s.append(log, batches(upTo(1, n)...)...)
		s.closeLog(log)
		j := newJudge()
		if log = f.OpenNow(doc.Created, j); log == nil {
			j = newJudge()
			log = s.open(doc.Created, j)
		}
		if got := j.keptSeqs(); !slices.Equal(got, upTo(1, n)) {
			s.Errorf("with %d entries, Restore received %v", n, got)
		}
		s.append(log, batches(n+1)...)
		s.checkSeqs(log, upTo(1, n+1)...)
	}
}

// outcomes collects the outcomes of proposals. The method wait returns when all have been reported.
type outcomes struct {
	s    *store
	left sync.WaitGroup
}

// propose proposes an entry. When the engine reports the outcome, propose passes it to the function
// check.
func (o *outcomes) propose(log engine.Log, e *engine.Entry, check func(err error)) {
	o.left.Add(1)
	var calls atomic.Int32
	log.Propose(e, func(err error) {
		if calls.Add(1) != 1 {
			o.s.Error("done was called twice")
			return
		}
		check(err)
		o.left.Done()
	})
}

func (o *outcomes) wait() {
	o.s.Helper()
	all := make(chan struct{})
	go func() { o.left.Wait(); close(all) }()
	o.s.await(all, "the outcomes of all proposals")
}

func proposals(s *store) {
	const n = 600 // more than any engine stores with one write
	j := newJudge()
	doc, log := s.stream("stream", j)
	all := outcomes{s: s}
	for i := range weir.Seq(n) {
		p := &place{}
		e := batch(i, content(i))
		e.Proposer = p
		all.propose(log, e, func(err error) {
			if err == nil {
				err = j.settled(p)
			}
			if err != nil {
				s.Errorf("proposal %d: %v", i, err)
			}
			clear(e.Payload) // the engine must not use the payload any more
		})
	}
	all.wait()
	for i, h := range j.order() {
		if h.Seq != weir.Seq(i) {
			s.Fatalf("entry %d was admitted as number %d", h.Seq, i)
		}
	}
	s.checkSeqs(log, upTo(0, n-1)...)
	s.reopened(doc.Created, log, func(_ *judge, log engine.Log) {
		for i := range weir.Seq(n) {
			if !s.checkMaybe(log, i, content(i)) {
				s.Fatalf("entry %d is missing", i)
			}
		}
	})
}

func refusedProposals(s *store) {
	const n = 300
	j := newJudge()
	j.admit = func(e *engine.Entry) bool { return e.Seq%3 != 0 }
	_, log := s.stream("stream", j)
	all := outcomes{s: s}
	var want []weir.Seq
	for i := range weir.Seq(n) {
		p := &place{}
		e := batch(i, content(i))
		e.Proposer = p
		if i%3 != 0 {
			want = append(want, i)
		}
		all.propose(log, e, func(err error) {
			if err == nil {
				err = j.settled(p)
			}
			if err != nil || p.stored != (i%3 != 0) {
				s.Errorf("proposal %d: admitted %v, want %v; error %v", i, p.stored, i%3 != 0, err)
			}
		})
	}
	all.wait()
	s.checkSeqs(log, want...)
}

func chain(s *store) {
	const n = 100
	_, log := s.stream("stream", nil)
	all := outcomes{s: s}
	var next func(i weir.Seq)
	next = func(i weir.Seq) {
		all.propose(log, batch(i, content(i)), func(err error) {
			there := false
			log.Headers(i, func(h engine.Header) bool { there = h.Seq == i; return false })
			if err != nil || !there {
				s.Errorf("proposal %d: %v; its header can be read: %v", i, err, there)
			} else if i+1 < n {
				next(i + 1)
			}
		})
	}
	next(0)
	all.wait()
	s.checkSeqs(log, upTo(0, n-1)...)
}

func placedProposals(s *store) {
	const n = 300
	j := newJudge()
	_, log := s.stream("stream", j)
	places := make([]placement, n)
	for i := range places {
		places[i].done = make(chan struct{})
	}
	all := outcomes{s: s}
	s.parallel(n, func(i int) {
		if i > 0 {
			<-places[i-1].done
		}
		e := batch(weir.Seq(i), content(weir.Seq(i)))
		e.Proposer = &places[i]
		all.propose(log, e, func(err error) {
			select {
			case <-places[i].done:
			default:
				err = errors.Join(err, errors.New("Placed was not called"))
			}
			if err != nil {
				s.Errorf("proposal %d: %v", i, err)
			}
		})
	})
	all.wait()
	for i, h := range j.order() {
		if h.Seq != weir.Seq(i) {
			s.Fatalf("entry %d was admitted as number %d", h.Seq, i)
		}
	}
}

// proposalsToTheEnd proposes entries while a document is deleted and while a log is closed. Every
// proposal has an outcome, and a log that was closed holds all entries whose outcome is nil.
func proposalsToTheEnd(s *store) {
	const n = 400
	doc, dropped := s.stream("dropped", nil)
	kept, closed := s.stream("closed", nil)
	all := outcomes{s: s}
	var stored [n]atomic.Bool
	s.parallel(2, func(part int) {
		for i := range weir.Seq(n) {
			if part == 0 {
				all.propose(dropped, batch(i, content(i)), func(err error) {
					if err != nil && !errors.Is(err, engine.ErrDropped) {
						s.Errorf("proposal %d to the dropped log: %v", i, err)
					}
				})
				if i == n/2 {
					if err := s.Delete(s.ctx, "dropped", doc.Revision); err != nil {
						s.Errorf("delete: %v", err)
					}
				}
				continue
			}
			all.propose(closed, batch(i, content(i)), func(err error) {
				if err != nil && !errors.Is(err, engine.ErrClosed) {
					s.Errorf("proposal %d to the closed log: %v", i, err)
				}
				stored[i].Store(err == nil)
			})
			if i == n/2 {
				s.closeLog(closed)
			}
		}
	})
	all.wait()
	var late error
	closed.Propose(batch(n, ""), func(err error) { late = err })
	if !errors.Is(late, engine.ErrClosed) {
		s.Errorf("proposal to a closed log: %v", late)
	}
	log := s.open(kept.Created, newJudge())
	for i := range weir.Seq(n) {
		if there := s.checkMaybe(log, i, content(i)); there != stored[i].Load() {
			s.Errorf("entry %d: in the log: %v, outcome nil: %v", i, there, stored[i].Load())
		}
	}
}

// deferredProposals lets several goroutines defer entries, each for a log of its own. Entries
// that are not deferred, and changes to a document, are proposed in between. The last Flush follows
// when everything has been proposed.
func deferredProposals(s *store) {
	const n, rows = 40, 5
	flush := func() {
		if f, ok := s.Engine.(engine.Flusher); ok {
			f.Flush()
		}
	}
	all := outcomes{s: s}
	var logs []engine.Log
	var ids []engine.LogID
	var work sync.WaitGroup
	for i := range 4 {
		j := newJudge()
		doc, log := s.stream(fmt.Sprint("stream", i), j)
		logs, ids = append(logs, log), append(ids, doc.Created)
		work.Go(func() {
			for seq := range weir.Seq(n * rows) {
				p := &place{}
				e := batch(seq, content(seq))
				e.Proposer, e.Deferred = p, seq%7 > 0
				all.propose(log, e, func(err error) {
					if err == nil {
						err = j.settled(p)
					}
					if err != nil {
						s.Errorf("proposal %d: %v", seq, err)
					}
				})
				if seq%rows == rows-1 && i < 3 {
					flush()
				}
			}
		})
	}
	other := s.create("other", "x")
	for i := range 20 {
		var err error
		if other, err = s.Update(s.ctx, "other", []byte(fmt.Sprint(i)), other.Revision); err != nil {
			s.Fatal(err)
		}
	}
	work.Wait()
	flush()
	all.wait()
	for _, log := range logs {
		s.checkSeqs(log, upTo(0, n*rows-1)...)
		s.closeLog(log)
	}
	s.reopen()
	for _, id := range ids {
		log := s.open(id, newJudge())
		for seq := range weir.Seq(n * rows) {
			if !s.checkMaybe(log, seq, content(seq)) {
				s.Fatalf("entry %d is missing", seq)
			}
		}
	}
}
