package enginetest

import (
	"slices"

	"weir"
	"weir/internal/engine"
)

var judgeCases = []testCase{
	{"the judge completes entries", []string{
		"Judge applies rules to the entries of a log, in the log's order.",
		"Admit may set the entry's sequence, time, flags and count.",
	}, completes},
	{"committed entries are visible inside Commit", []string{
		"Commit reports that n more entries are durable and can be read: the first n of the admitted entries that no earlier Commit reported.",
		"The only engine method it may call is Log.Headers.",
	}, headersInCommit},
	{"a log of refusals stays empty", []string{
		"If Admit returns false, the entry is not stored.",
	}, onlyRefusals},
}

func completes(s *store) {
	j := newJudge()
	next := weir.Seq(10)
	j.admit = func(e *engine.Entry) bool {
		e.Seq, e.Time, e.Flags, e.Count = next, weir.Time(next)*1000, engine.Late, uint32(next)*3
		next += 10
		return true
	}
	doc, log := s.stream("stream", j)
	var want []engine.Entry
	for i := range weir.Seq(5) {
		e := engine.Entry{
			Header:  engine.Header{Kind: engine.Batch, Size: 3, ContentType: "text/plain", Key: "k"},
			Payload: []byte("abc"),
		}
		s.append(log, &e)
		seq := (i + 1) * 10
		h := e.Header
		h.Seq, h.Time, h.Flags, h.Count = seq, weir.Time(seq)*1000, engine.Late, uint32(seq)*3
		want = append(want, engine.Entry{Header: h, Payload: []byte("abc")})
	}
	s.checkEntries(log, want)
	s.closeLog(log)
	s.checkEntries(s.open(doc.Created, newJudge()), want)
	s.reopen()
	s.checkEntries(s.open(doc.Created, newJudge()), want)
}

func headersInCommit(s *store) {
	j := counting(1)
	j.commit = func() {
		var seen []weir.Seq
		(*j.log.Load()).Headers(0, func(h engine.Header) bool {
			seen = append(seen, h.Seq)
			return true
		})
		if n := j.durable(); !slices.Equal(seen, upTo(1, weir.Seq(n))) {
			j.fault("Commit reported entries up to %d, but Headers visits %d entries", n, len(seen))
		}
	}
	_, log := s.stream("stream", j)
	s.flood(log, j, 300)
	s.checkSeqs(log, upTo(1, 300)...)
}

func onlyRefusals(s *store) {
	j := newJudge()
	j.admit = func(*engine.Entry) bool { return false }
	doc, log := s.stream("stream", j)
	s.flood(log, j, 100)
	s.checkSeqs(log)
	s.closeLog(log)
	s.checkSeqs(s.open(doc.Created, newJudge()))
	s.reopen()
	s.checkSeqs(s.open(doc.Created, newJudge()))
}
