package enginetest

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"weir"
	"weir/internal/engine"
)

var restoreCases = []testCase{
	{"Open calls Restore once, before any other method of the judge", []string{
		"Open attaches a judge to the log of a document and returns the log.",
		"The id of the log is the field Created of the document.",
		"Before Open returns, it calls the judge once: either Returning.Resume, or Judge.Restore with everything that the log holds.",
		"Restore is called once, before any other method, with the note of the last Trim (nil if there was none) and the headers of all entries that the log holds, in increasing order of sequence. ContentType and Publisher are not set; Tag is set. The header of an entry with a key has Count, KeySize and KeyDigest, but not Key.",
	}, restoreFirst},
	{"a judge may do without old keys", []string{
		"Forgetful is a Judge that does not need the keys of old entries, so that an engine can open a log without reading these keys.",
		"The engine calls KeysSince before Restore. Headers of entries that were stored before the returned time may come without their KeyDigest and Count.",
	}, restoreRecentKeys},
	{"Restore may stop reading the entries, or return an error", []string{
		"Before Open returns, it calls the judge once: either Returning.Resume, or Judge.Restore with everything that the log holds.",
	}, restoreStops},
	{"a log is open once at a time", []string{
		"A log can be open only once at a time: opening it again before Log.Close is a bug in the caller and panics.",
	}, openTwice},
	{"a log can be opened again", []string{
		"Close detaches the judge after the appends in flight have finished. The log can be opened again.",
	}, openAgain},
	{"a log is closed while appends are in flight", []string{
		"Close detaches the judge after the appends in flight have finished. The log can be opened again.",
		"ErrClosed not appended: the log or the store was closed",
	}, closeInFlight},
}

// asRestored returns a header in the form that Restore receives.
func asRestored(h engine.Header) engine.Header {
	return h.Restored()
}

func restoreFirst(s *store) {
	j := newJudge()
	doc, log := s.stream("stream", j)
	if !j.restored || j.note != nil || len(j.kept) != 0 {
		s.Fatalf("a fresh log: restored %v, note %q, %d entries", j.restored, j.note, len(j.kept))
	}
	var want []engine.Header
	for _, e := range batches(7, 3, 5, 9) {
		s.append(log, e)
		want = append(want, asRestored(e.Header))
	}
	tagged := batch(8, "")
	tagged.Tag = "\x00tag"
	s.append(log, tagged)
	want = append(want, asRestored(tagged.Header))
	gap := engine.Header{Kind: engine.GapClosed, First: 10, Seq: 12, Time: 4, Tag: "of a gap"}
	s.append(log, &engine.Entry{Header: gap})
	want = append(want, gap)
	s.trim(log, 5, "note")
	slices.SortFunc(want, func(a, b engine.Header) int { return int(a.Seq) - int(b.Seq) })
	want = want[1:]
	s.reopened(doc.Created, log, func(j *judge, _ engine.Log) {
		if !j.restored || string(j.note) != "note" || !slices.Equal(j.kept, want) {
			s.Errorf("restored %v, note %q, entries\n     %+v\nwant %+v", j.restored, j.note, j.kept, want)
		}
	})
}

// forgetful is a judge that needs only the keys of recent entries.
type forgetful struct {
	*judge
	since weir.Time
}

func (f forgetful) KeysSince() weir.Time { return f.since }

func restoreRecentKeys(s *store) {
	doc, log := s.stream("stream", nil)
	const n = 1300 // more entries than the journal reads at once
	key := func(seq weir.Seq) string {
		if seq%5 == 0 {
			return ""
		}
		return fmt.Sprint("key of ", seq)
	}
	var all []*engine.Entry
	for seq := weir.Seq(1); seq <= n; seq++ {
		h := engine.Header{Kind: engine.Batch, Seq: seq, Time: weir.Time(seq), Key: key(seq)}
		payload := make([]byte, int(seq)%7*100)
		if seq%500 == 0 {
			payload = make([]byte, 20<<10)
		}
		h.Size = uint32(len(payload))
		all = append(all, &engine.Entry{Header: h, Payload: payload})
	}
	s.append(log, all...)
	if err := log.Close(); err != nil {
		s.Fatal(err)
	}
	for _, since := range []weir.Time{0, 600, n + 1} {
		j := forgetful{newJudge(), since}
		log, err := s.Open(s.Context(), doc.Created, j)
		if err != nil {
			s.Fatal(err)
		}
		if len(j.kept) != n {
			s.Fatalf("Restore received %d entries of %d", len(j.kept), n)
		}
		for i, h := range j.kept {
			want := all[i].Header
			if h.Seq != want.Seq || h.Time != want.Time || h.Size != want.Size || int(h.KeySize) != len(want.Key) ||
				h.KeyDigest != want.Restored().KeyDigest && (h.KeyDigest != weir.KeyDigest{} || h.Time >= since) {
				s.Errorf("with keys since %d, Restore received %+v, want %+v", since, h, want)
			}
		}
		if err := log.Close(); err != nil {
			s.Fatal(err)
		}
	}
}

func restoreStops(s *store) {
	doc, log := s.stream("stream", nil)
	s.append(log, batches(1, 2, 3)...)
	s.closeLog(log)

	refused := errors.New("refused by the judge")
	j := newJudge()
	j.restore = func(entries iter.Seq[*engine.Header]) error {
		for range entries {
			return refused
		}
		return nil
	}
	s.watch(j)
	if _, err := s.Open(s.ctx, doc.Created, j); !errors.Is(err, refused) {
		s.Fatalf("open with a judge that refuses: %v", err)
	}
	j = newJudge()
	j.restore = func(iter.Seq[*engine.Header]) error { return nil }
	log = s.open(doc.Created, j)
	s.append(log, batches(4)...)
	s.checkSeqs(log, 1, 2, 3, 4)
}

func openTwice(s *store) {
	doc, log := s.stream("stream", nil)
	func() {
		defer func() {
			if recover() == nil {
				s.Error("opening a log twice did not panic")
			}
		}()
		s.Open(s.ctx, doc.Created, newJudge())
	}()
	s.append(log, batches(1)...)
	s.checkSeqs(log, 1)
}

func openAgain(s *store) {
	doc, log := s.stream("stream", nil)
	var want []weir.Seq
	for seq := range weir.Seq(10) {
		s.append(log, batches(seq)...)
		s.closeLog(log)
		if err := log.Append(s.ctx, batch(1000, "")); !errors.Is(err, engine.ErrClosed) {
			s.Fatalf("append to a closed log: %v", err)
		}
		j := newJudge()
		old := log
		log = s.open(doc.Created, j)
		want = append(want, seq)
		if got := j.keptSeqs(); !slices.Equal(got, want) {
			s.Fatalf("Restore received %v, want %v", got, want)
		}
		if err := old.Append(s.ctx, batch(1000, "")); !errors.Is(err, engine.ErrClosed) {
			s.Fatalf("append to a closed log after the log was opened again: %v", err)
		}
	}
	s.checkSeqs(log, want...)
}

func closeInFlight(s *store) {
	const n = 500
	j := counting(0)
	doc, log := s.stream("stream", j)
	places := make([]place, n)
	stored := make([]bool, n)
	s.parallel(n, func(i int) {
		if i == n/2 {
			if err := log.Close(); err != nil {
				s.Errorf("close: %v", err)
			}
			return
		}
		e := batch(0, "payload")
		e.Proposer = &places[i]
		err := log.Append(s.ctx, e)
		if err != nil && !errors.Is(err, engine.ErrClosed) {
			s.Errorf("append: %v", err)
		}
		stored[i] = err == nil
		if err == nil {
			if err := j.settled(&places[i]); err != nil {
				s.Error(err)
			}
		}
	})
	asked := len(j.order())
	var want []weir.Seq
	for i := range places {
		if stored[i] {
			want = append(want, places[i].seq)
		} else if places[i].asked > 0 {
			s.Errorf("entry %d was admitted but not appended", places[i].seq)
		}
	}
	slices.Sort(want)
	after := newJudge()
	log = s.open(doc.Created, after)
	if got := after.keptSeqs(); !slices.Equal(got, want) || asked != len(want) {
		s.Fatalf("Restore received %v, want %v; %d entries were admitted", got, want, asked)
	}
	s.checkSeqs(log, want...)
}
