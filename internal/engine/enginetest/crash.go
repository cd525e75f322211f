package enginetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"weir"
	"weir/internal/engine"
)

var crashCases = []testCase{
	{"acknowledged changes survive a crash", []string{
		"If it was stored, the entry and everything admitted before it in this log are durable and can be read.",
		"Trim removes every entry whose sequence is below low, and stores the note. The removal and the note become durable together, before Trim returns.",
		"Every change is durable when the call returns, and visible to every call that starts after that.",
	}, crashAnswered},
	{"a crash while appends are in flight", []string{
		"If it was stored, the entry and everything admitted before it in this log are durable and can be read.",
		"If the judge refused it, everything admitted before it is durable",
	}, crashInFlight},
	{"revisions never repeat after a crash", []string{
		"It is never used twice and never 0.",
	}, crashRevisions},
}

func crashAnswered(s *store) {
	docs := map[string]engine.Document{}
	lows := map[string]weir.Seq{}
	for round := range 4 {
		for i := range 5 {
			key := fmt.Sprint("stream ", i)
			j := newJudge()
			doc, known := docs[key]
			if !known {
				doc = s.create(key, "")
			}
			log := s.open(doc.Created, j)
			if known {
				if string(j.note) != fmt.Sprint("note of ", round-1) {
					s.Errorf("%s: the note is %q", key, j.note)
				}
				s.checkSeqs(log, upTo(lows[key], weir.Seq(10*round-1))...)
			}
			s.append(log, batches(upTo(weir.Seq(10*round), weir.Seq(10*round+9))...)...)
			lows[key] = weir.Seq(3*round + i)
			s.trim(log, lows[key], fmt.Sprint("note of ", round))
			docs[key] = s.update(doc, fmt.Sprint("round ", round))
		}
		if round == 2 {
			s.delete("stream 3", 0)
			delete(docs, "stream 3")
			docs["stream 3"] = s.create("stream 3", "again")
			s.delete("stream 3", 0)
			delete(docs, "stream 3")
		}
		s.crash()
		if got := names(s.list("", "", 100)); !slices.Equal(got, slices.Sorted(maps.Keys(docs))) {
			s.Fatalf("after the crash the store has %q", got)
		}
		for _, doc := range docs {
			s.document(doc)
		}
	}
}

func crashInFlight(s *store) {
	if s.fixture.Crash == nil {
		s.crash() // skips the case and says why
	}
	doc := s.create("stream", "")
	next := weir.Seq(0)
	acked := map[string]weir.Seq{}
	for round := range 6 {
		before := newJudge()
		log := s.open(doc.Created, before)
		s.checkSurvived(log, before, acked)
		if n := len(before.kept); n > 0 {
			next = before.kept[n-1].Seq + 1
		}
		acked = s.appendAndCrash(log, counting(next), doc, round, acked)
	}
	j := newJudge()
	s.checkSurvived(s.open(doc.Created, j), j, acked)
}

// checkSurvived checks that everything in acked is in the log, and that every entry found is
// intact.
func (s *store) checkSurvived(log engine.Log, j *judge, acked map[string]weir.Seq) {
	s.Helper()
	found := map[string]weir.Seq{}
	err := log.Scan(s.ctx, 0, 0, func(e *engine.Entry) bool {
		if string(e.Payload) != e.Key {
			s.Errorf("entry %d with the key %q has a wrong payload of %d bytes", e.Seq, e.Key, len(e.Payload))
		}
		found[e.Key] = e.Seq
		return true
	})
	if err != nil || len(found) != len(j.kept) {
		s.Fatalf("scan found %d entries, Restore received %d: %v", len(found), len(j.kept), err)
	}
	for key, seq := range acked {
		if got, ok := found[key]; !ok || got != seq {
			s.Errorf("entry %d with the key %q was durable before the crash; after the crash: found %[4]v, sequence %[3]d", seq, key, got, ok)
		}
	}
}

// appendAndCrash appends from many goroutines and crashes the store in the middle. It returns the
// entries that were certainly durable before the crash.
func (s *store) appendAndCrash(log engine.Log, j *judge, doc engine.Document, round int, acked map[string]weir.Seq) map[string]weir.Seq {
	s.closeLog(log)
	log = s.open(doc.Created, j)
	var mu sync.Mutex
	all := maps.Clone(acked)
	enough := make(chan struct{})
	fresh := 0
	var writers sync.WaitGroup
	for w := range 16 {
		writers.Go(func() {
			for n := range 1000 {
				p := &place{}
				e := batch(0, fmt.Sprintf("round %d writer %d entry %d", round, w, n))
				e.Key, e.Proposer = string(e.Payload), p
				key := e.Key
				if err := log.Append(s.ctx, e); err != nil {
					return // the engine crashed; any error is possible
				}
				mu.Lock()
				all[key] = p.seq
				if fresh++; fresh == 50+round*10 {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	s.await(enough, "enough answers to appends")
	mu.Lock()
	certain := maps.Clone(all)
	mu.Unlock()
	s.crash()
	writers.Wait()
	return certain
}

func crashRevisions(s *store) {
	var last engine.Revision
	for round := range 4 {
		doc := s.create("a", "")
		if doc.Revision <= last {
			s.Fatalf("got revision %d after revision %d, want a higher one", doc.Revision, last)
		}
		last = s.update(doc, "x").Revision
		s.delete("a", 0)
		if round%2 == 0 {
			last = s.create("b", "").Revision
			s.delete("b", 0)
		}
		s.crash()
		if _, err := s.Get(s.ctx, "a"); !errors.Is(err, engine.ErrNotFound) {
			s.Errorf("get of a deleted document: %v", err)
		}
	}
}
