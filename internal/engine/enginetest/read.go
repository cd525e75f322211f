package enginetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"weir"
	"weir/internal/engine"
)

var readCases = []testCase{
	{"all methods that read agree", []string{
		"Header returns the entry without its payload. All fields are set, except KeySize and KeyDigest.",
		"Headers visits the same entries as Scan without their payloads, from memory: Seq, Time, Kind, Flags, Size and KeySize are set, and nothing else.",
	}, agreement},
	{"missing entries are not found", []string{
		"ErrNotFound: there is no such entry, or it was trimmed.",
	}, notThere},
	{"reads with an ended context", []string{
		"Read returns the entry with this sequence, payload included, as it was appended.",
	}, readsEnded},
}

func agreement(s *store) {
	rng := rand.New(rand.NewPCG(1, 2))
	doc, log := s.stream("stream", nil)
	var want []engine.Entry
	for _, seq := range rng.Perm(300) {
		e := batch(weir.Seq(seq)*3, content(weir.Seq(seq)))
		e.Flags = engine.Flags(seq % 2)
		want = append(want, *e)
		s.append(log, &engine.Entry{Header: e.Header, Payload: slices.Clone(e.Payload)})
	}
	slices.SortFunc(want, func(a, b engine.Entry) int { return int(a.Seq) - int(b.Seq) })
	s.checkEntries(log, want)
	for _, from := range []weir.Seq{0, 1, 2, 3, 449, 450, 451, 896, 897, 898, weir.MaxSeq} {
		rest := want[min(len(want), int(from+2)/3):]
		i := 0
		if err := log.Scan(s.ctx, from, 0, func(e *engine.Entry) bool {
			s.same(*e, rest[i])
			i++
			return true
		}); err != nil || i != len(rest) {
			s.Fatalf("scan from %d visits %d entries, want %d (%v)", from, i, len(rest), err)
		}
		i = 0
		log.Headers(from, func(h engine.Header) bool {
			if h.Seq != rest[i].Seq {
				s.Errorf("headers from %d: got %d, want %d", from, h.Seq, rest[i].Seq)
			}
			i++
			return true
		})
		if i != len(rest) {
			s.Fatalf("headers from %d visits %d entries, want %d", from, i, len(rest))
		}
	}
	s.reopen()
	s.checkEntries(s.open(doc.Created, newJudge()), want)
}

func notThere(s *store) {
	_, log := s.stream("stream", nil)
	missing := func(seqs ...weir.Seq) {
		s.Helper()
		for _, seq := range seqs {
			if _, err := log.Read(s.ctx, seq); !errors.Is(err, engine.ErrNotFound) {
				s.Errorf("read %d: %v", seq, err)
			}
			if _, err := log.Header(s.ctx, seq); !errors.Is(err, engine.ErrNotFound) {
				s.Errorf("header %d: %v", seq, err)
			}
		}
	}
	missing(0, 1, weir.MaxSeq)
	s.checkSeqs(log)
	s.append(log, batches(5, 7)...)
	missing(0, 4, 6, 8, weir.MaxSeq)
	// A closed gap is found only under its last sequence.
	s.append(log, &engine.Entry{Header: engine.Header{Kind: engine.GapClosed, First: 8, Seq: 10}})
	missing(8, 9, 11)
}

// readsEnded reads with a context that has ended. Package engine leaves the outcome open: a read
// may succeed or return the context's error.
func readsEnded(s *store) {
	_, log := s.stream("stream", nil)
	s.append(log, batches(1, 2, 3)...)
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	got, err := log.Read(ctx, 1)
	if err == nil {
		s.same(got, *batch(1, content(1)))
	} else if !errors.Is(err, context.Canceled) {
		s.Errorf("read: %v", err)
	}
	h, err := log.Header(ctx, 1)
	if err == nil && h != batch(1, content(1)).Header || err != nil && !errors.Is(err, context.Canceled) {
		s.Errorf("header: %+v, %v", h, err)
	}
	n := 0
	err = log.Scan(ctx, 0, 0, func(*engine.Entry) bool { n++; return true })
	if err == nil && n != 3 || err != nil && !errors.Is(err, context.Canceled) {
		s.Errorf("scan: %d entries, %v", n, err)
	}
	s.checkSeqs(log, 1, 2, 3)
}
