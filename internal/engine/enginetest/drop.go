package enginetest

import (
	"errors"
	"fmt"
	"sync/atomic"

	"weir"
	"weir/internal/engine"
)

var dropCases = []testCase{
	{"a deleted document takes its log with it", []string{
		"and drops its log with all entries in the same step.",
		"Dropped reports that the log's document was deleted and the log with it. No method is called after it.",
	}, dropOpen},
	{"a log without a document cannot be opened", []string{
		"If the document does not exist or was deleted, Open returns ErrDropped.",
	}, dropUnknown},
	{"a document that is created again has an empty log", []string{
		"LogID names a log: the revision at which its document was created.",
		"It is never used twice. A document that is deleted and created again under the same key gets a fresh log without the old entries.",
	}, dropAgain},
	{"a document is deleted while entries are appended", []string{
		"ErrDropped not appended: the log was dropped",
		"Dropped reports that the log's document was deleted and the log with it. No method is called after it.",
	}, dropRace},
	{"an update leaves the log alone", []string{
		"the revision at which the document was created, which is also the id of its log",
	}, dropNot},
}

// noLog checks that every method of a dropped log fails or finds nothing.
func (s *store) noLog(log engine.Log) {
	s.Helper()
	if err := log.Append(s.ctx, batch(1<<20, "")); !errors.Is(err, engine.ErrDropped) {
		s.Errorf("append to a dropped log: %v", err)
	}
	if _, err := log.Read(s.ctx, 1); !errors.Is(err, engine.ErrDropped) && !errors.Is(err, engine.ErrNotFound) {
		s.Errorf("read from a dropped log: %v", err)
	}
	if _, err := log.Header(s.ctx, 1); !errors.Is(err, engine.ErrDropped) && !errors.Is(err, engine.ErrNotFound) {
		s.Errorf("header from a dropped log: %v", err)
	}
	err := log.Scan(s.ctx, 0, 0, func(e *engine.Entry) bool { s.Errorf("scan of a dropped log visits %d", e.Seq); return true })
	if err != nil && !errors.Is(err, engine.ErrDropped) {
		s.Errorf("scan of a dropped log: %v", err)
	}
	if got := s.seqs(log); got != nil {
		s.Errorf("headers of a dropped log: %v", got)
	}
	if err := log.Trim(s.ctx, 2, nil); err != nil && !errors.Is(err, engine.ErrDropped) {
		s.Errorf("trim of a dropped log: %v", err)
	}
}

func dropOpen(s *store) {
	j := newJudge()
	doc, log := s.stream("stream", j)
	_, other := s.stream("other", nil)
	s.append(log, batches(1, 2, 3)...)
	s.append(other, batches(1, 2, 3)...)
	if err := s.Delete(s.ctx, "stream", doc.Revision); err != nil {
		s.Fatal(err)
	}
	s.await(j.over, "Judge.Dropped")
	s.noLog(log)
	if _, err := s.Open(s.ctx, doc.Created, newJudge()); !errors.Is(err, engine.ErrDropped) {
		s.Errorf("open of a dropped log: %v", err)
	}
	if err := log.Close(); err != nil && !errors.Is(err, engine.ErrDropped) {
		s.Errorf("close of a dropped log: %v", err)
	}
	s.checkSeqs(other, 1, 2, 3)
	s.reopen()
	if _, err := s.Open(s.ctx, doc.Created, newJudge()); !errors.Is(err, engine.ErrDropped) {
		s.Errorf("open of a dropped log: %v", err)
	}
	if _, err := s.Get(s.ctx, "stream"); !errors.Is(err, engine.ErrNotFound) {
		s.Errorf("get of a deleted document: %v", err)
	}
}

func dropUnknown(s *store) {
	doc := s.create("stream", "")
	for _, id := range []engine.LogID{0, doc.Created + 1, 1 << 40} {
		j := newJudge()
		if _, err := s.Open(s.ctx, id, j); !errors.Is(err, engine.ErrDropped) {
			s.Errorf("open of log %d: %v", id, err)
		}
		if j.restored || j.dropped {
			s.Errorf("the judge of log %d, which does not exist, was called", id)
		}
	}
}

func dropAgain(s *store) {
	ids := map[engine.LogID]bool{}
	var before engine.Log
	for round := range 5 {
		j := newJudge()
		doc, log := s.stream("stream", j)
		if ids[doc.Created] {
			s.Fatalf("log %d was used before", doc.Created)
		}
		ids[doc.Created] = true
		if j.note != nil || len(j.kept) > 0 {
			s.Fatalf("round %d: the new log has the note %q and the entries %v, want neither", round, j.note, j.keptSeqs())
		}
		s.checkSeqs(log)
		s.append(log, batches(upTo(0, weir.Seq(10-round))...)...)
		s.trim(log, 1, fmt.Sprint("note ", round))
		if before != nil {
			s.noLog(before)
		}
		s.checkSeqs(log, upTo(1, weir.Seq(10-round))...)
		if round%2 == 0 {
			s.closeLog(log)
			log = nil
		}
		if err := s.Delete(s.ctx, "stream", 0); err != nil {
			s.Fatal(err)
		}
		before = log
	}
	s.reopen()
	j := newJudge()
	doc, log := s.stream("stream", j)
	if ids[doc.Created] || j.note != nil || len(j.kept) > 0 {
		s.Fatalf("after a restart: the new log %d (earlier logs: %v) has the note %q and the entries %v, want neither", doc.Created, ids, j.note, j.keptSeqs())
	}
	s.checkSeqs(log)
}

func dropRace(s *store) {
	const n = 200
	j := counting(1)
	_, log := s.stream("stream", j)
	s.append(log, batch(0, "first"))
	var deleted atomic.Bool
	s.parallel(n, func(i int) {
		if i == n/2 {
			if err := s.Delete(s.ctx, "stream", 0); err != nil {
				s.Errorf("delete: %v", err)
			}
			deleted.Store(true)
			return
		}
		late := deleted.Load()
		p := &place{}
		e := batch(0, "payload")
		e.Proposer = p
		err := log.Append(s.ctx, e)
		switch {
		case err == nil && late:
			s.Error("an entry was appended after the document was deleted")
		case err == nil:
			if err := j.settled(p); err != nil {
				s.Error(err)
			}
		case !errors.Is(err, engine.ErrDropped):
			s.Errorf("append: %v", err)
		}
	})
	s.await(j.over, "Judge.Dropped")
	s.noLog(log)
	_, log = s.stream("stream", nil)
	s.checkSeqs(log)
}

func dropNot(s *store) {
	doc, log := s.stream("stream", nil)
	s.append(log, batches(1)...)
	for i := range 3 {
		next, err := s.Update(s.ctx, "stream", fmt.Append(nil, i), doc.Revision)
		if err != nil || next.Created != doc.Created {
			s.Fatalf("update: %+v, %v", next, err)
		}
		doc = next
	}
	if err := s.Delete(s.ctx, "stream", doc.Revision-1); !errors.Is(err, engine.ErrConflict) {
		s.Fatalf("delete of an old revision: %v", err)
	}
	s.append(log, batches(2)...)
	s.reopened(doc.Created, log, func(_ *judge, log engine.Log) { s.checkSeqs(log, 1, 2) })
}
