package enginetest

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"weir"
	"weir/internal/engine"
)

var trimCases = []testCase{
	{"trim removes all entries below low", []string{
		"Trim removes every entry whose sequence is below low, and stores the note. The removal and the note become durable together, before Trim returns.",
		"Removed entries are never seen again, not even after a restart.",
	}, trimRemoves},
	{"a trim to a lower sequence changes only the note", []string{
		"If low is not higher than in an earlier Trim, only the note changes.",
	}, trimLower},
	{"notes are stored", []string{
		"with the note of the last Trim (nil if there was none)",
	}, notes},
	{"the longest note is stored", []string{
		"A note has at most MaxNote bytes.",
	}, longestNote},
	{"trim of an empty log, and of all entries of a log", []string{
		"Trim removes every entry whose sequence is below low, and stores the note. The removal and the note become durable together, before Trim returns.",
	}, trimBeyond},
	{"memory follows the entries", []string{
		"Held returns about how many bytes of memory this process uses for the entries of a log and for the note of its last Trim.",
		"A log that is not open may use none.",
		"A log that was dropped, or that holds no entry and was never trimmed, uses none.",
		"Sized is a Log with a method that returns the same as Engine.Held, whether the log is open or not.",
	}, memoryHeld},
	{"an outline of a closed log", []string{
		"Outline describes the entries of a log that is not open.",
		"Outline describes the entries of a log.",
		"If Entries is 0, only Memory and Low may be set.",
	}, outline},
	{"trim while entries are appended", []string{
		"Trim removes every entry whose sequence is below low, and stores the note. The removal and the note become durable together, before Trim returns.",
		"All methods may be called from many goroutines at once.",
	}, trimAppending},
}

// reopened calls the function check after it has reopened the log and again, if the engine supports
// it, after it has reopened the whole store.
func (s *store) reopened(id engine.LogID, log engine.Log, check func(j *judge, log engine.Log)) {
	s.Helper()
	s.closeLog(log)
	j := newJudge()
	log = s.open(id, j)
	check(j, log)
	s.reopen()
	j = newJudge()
	check(j, s.open(id, j))
}

func (s *store) gone(log engine.Log, seqs ...weir.Seq) {
	s.Helper()
	for _, seq := range seqs {
		if _, err := log.Read(s.ctx, seq); !errors.Is(err, engine.ErrNotFound) {
			s.Errorf("read of the trimmed entry %d: %v", seq, err)
		}
		if _, err := log.Header(s.ctx, seq); !errors.Is(err, engine.ErrNotFound) {
			s.Errorf("header of the trimmed entry %d: %v", seq, err)
		}
	}
}

func trimRemoves(s *store) {
	doc, log := s.stream("stream", nil)
	_, other := s.stream("other", nil)
	s.append(log, batches(upTo(0, 30)...)...)
	s.append(other, batches(upTo(0, 5)...)...)
	s.append(log, &engine.Entry{Header: engine.Header{Kind: engine.GapClosed, First: 31, Seq: 40}})
	for _, low := range []weir.Seq{0, 1, 10, 10, 29} {
		s.trim(log, low, "note")
		s.checkSeqs(log, append(upTo(low, 30), 40)...)
		s.gone(log, upTo(0, low)[:low]...)
	}
	s.checkSeqs(other, upTo(0, 5)...)
	s.trim(log, 35, "note") // a closed gap that ends at or above low stays in the log
	s.append(log, batches(41, 43, 42)...)
	s.checkSeqs(log, 40, 41, 42, 43)
	s.reopened(doc.Created, log, func(j *judge, log engine.Log) {
		if len(j.kept) != 4 || j.kept[0].Seq != 40 {
			s.Errorf("Restore received %v", j.keptSeqs())
		}
		s.checkSeqs(log, 40, 41, 42, 43)
		s.gone(log, upTo(0, 39)...)
	})
}

func trimLower(s *store) {
	doc, log := s.stream("stream", nil)
	s.append(log, batches(upTo(1, 20)...)...)
	s.trim(log, 10, "first")
	s.trim(log, 5, "second")
	s.checkSeqs(log, upTo(10, 20)...)
	check := func(j *judge, log engine.Log) {
		if string(j.note) != "second" {
			s.Errorf("the note is %q", j.note)
		}
		s.checkSeqs(log, upTo(10, 20)...)
		s.gone(log, upTo(1, 9)...)
	}
	s.reopened(doc.Created, log, check)
	log = s.open(s.create("another", "").Created, newJudge())
	s.trim(log, 0, "of another")
	s.reopen()
	j := newJudge()
	check(j, s.open(doc.Created, j))
}

func notes(s *store) {
	for _, note := range []string{"", "x", "\x00\x01", strings.Repeat("note", 1<<14)} {
		j := newJudge()
		doc, log := s.stream("stream", j)
		if j.note != nil {
			s.Errorf("a fresh log has the note %q", j.note)
		}
		s.append(log, batches(1, 2)...)
		s.closeLog(log)
		j = newJudge()
		log = s.open(doc.Created, j)
		if j.note != nil {
			s.Errorf("a log that was not trimmed has the note %q", j.note)
		}
		s.trim(log, 0, "before")
		s.trim(log, 2, note)
		s.closeLog(log)
		j = newJudge()
		log = s.open(doc.Created, j)
		if string(j.note) != note {
			s.Errorf("the note is %.20q (%d bytes), want %.20q (%d bytes)", j.note, len(j.note), note, len(note))
		}
		s.checkSeqs(log, 2)
		if err := s.Delete(s.ctx, "stream", 0); err != nil {
			s.Fatal(err)
		}
	}
	s.checkNoteSurvives("survives")
	s.checkNoteSurvives(strings.Repeat("survives", 1<<13))
}

func longestNote(s *store) { s.checkNoteSurvives(strings.Repeat("survives", engine.MaxNote/8)) }

// checkNoteSurvives checks that a note is still there after the log and the store were opened
// again.
func (s *store) checkNoteSurvives(note string) {
	s.Helper()
	doc, log := s.stream(fmt.Sprint("kept", len(note)), nil)
	s.append(log, batches(1)...)
	s.trim(log, 1, "replaced")
	s.trim(log, 1, note)
	s.reopened(doc.Created, log, func(j *judge, _ engine.Log) {
		if string(j.note) != note {
			s.Errorf("the note is %.20q (%d bytes), want %.20q (%d bytes)", j.note, len(j.note), note, len(note))
		}
	})
}

func trimBeyond(s *store) {
	doc, log := s.stream("stream", nil)
	s.trim(log, 5, "empty")
	s.checkSeqs(log)
	s.append(log, batches(5, 6)...)
	s.trim(log, 100, "beyond")
	s.checkSeqs(log)
	s.append(log, batches(100, 200)...)
	s.reopened(doc.Created, log, func(j *judge, log engine.Log) {
		if string(j.note) != "beyond" {
			s.Errorf("the note is %q", j.note)
		}
		s.checkSeqs(log, 100, 200)
	})
}

func trimAppending(s *store) {
	const n = 1000
	j := counting(1)
	doc, log := s.stream("stream", j)
	var writing atomic.Int32
	writing.Store(8)
	s.parallel(9, func(i int) {
		if i > 0 {
			defer writing.Add(-1)
			for range n / 8 {
				if err := log.Append(s.ctx, batch(0, "payload")); err != nil {
					s.Errorf("append: %v", err)
				}
			}
			return
		}
		for writing.Load() > 0 {
			// The trims stay at or below the newest admitted sequence, because a judge does not
			// admit an entry that is already trimmed.
			if err := log.Trim(s.ctx, min(j.newest(), n/2), nil); err != nil {
				s.Errorf("trim: %v", err)
			}
		}
	})
	s.trim(log, n/2, "last")
	s.checkSeqs(log, upTo(n/2, n)...)
	s.reopened(doc.Created, log, func(_ *judge, log engine.Log) {
		s.checkSeqs(log, upTo(n/2, n)...)
	})
}

func outline(s *store) {
	doc, log := s.stream("stream", nil)
	check := func(want engine.Outline) {
		s.Helper()
		s.closeLog(log)
		want.Memory = s.Held(doc.Created)
		if got, known := s.Outline(doc.Created); known && got != want || got.Memory != want.Memory {
			s.Errorf("outline %+v, want %+v", got, want)
		}
		log = s.open(doc.Created, newJudge())
	}
	check(engine.Outline{})
	entries := batches(3, 7, 5)
	entries[1].Time -= 100
	s.append(log, entries...)
	want := engine.Outline{
		Entries: 3, First: 3, Last: 7, Oldest: entries[1].Time, Newest: entries[1].Time, Batches: 3,
		Bytes: int64(len(content(3)) + len(content(5)) + len(content(7))),
	}
	check(want)
	s.trim(log, 4, "note")
	want.Entries, want.Batches, want.Low, want.First, want.Bytes = 2, 2, 4, 5, want.Bytes-int64(len(content(3)))
	check(want)
	lost := batch(8, "")
	lost.Flags = engine.Lost
	s.append(log, lost)
	want.Entries, want.Last, want.Newest = 3, 8, lost.Time
	check(want)
	s.reopen()
	log = s.open(doc.Created, newJudge())
	check(want)
	s.trim(log, 9, "note")
	check(engine.Outline{Low: 9})
}

func memoryHeld(s *store) {
	doc, log := s.stream("stream", nil)
	if n := s.Held(doc.Created); n != 0 {
		s.Errorf("an empty log takes %d bytes of memory", n)
	}
	s.append(log, batches(upTo(1, 200)...)...)
	all := s.Held(doc.Created)
	if all < 200*16 {
		s.Errorf("200 entries take %d bytes of memory, want at least 16 for each", all)
	}
	s.trim(log, 151, "note")
	few := s.Held(doc.Created)
	if few < all/8 || few > all/2 {
		s.Errorf("after a trim from 200 to 50 entries, the log takes %d bytes of memory, want between an eighth and a half of %d", few, all)
	}
	s.append(log, batches(300, 250, 260)...) // out of order
	few = s.Held(doc.Created)
	if l, ok := log.(engine.Sized); ok && l.Held() != few {
		s.Errorf("Sized.Held: %d bytes of memory, want %d", l.Held(), few)
	}
	s.reopened(doc.Created, log, func(*judge, engine.Log) {
		if n := s.Held(doc.Created); n != few {
			s.Errorf("after reopening, the log takes %d bytes of memory, want %d as before", n, few)
		}
	})
	s.delete("stream", 0)
	if n := s.Held(doc.Created); n != 0 {
		s.Errorf("a dropped log takes %d bytes of memory", n)
	}
}
