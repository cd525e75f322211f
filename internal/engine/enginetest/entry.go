package enginetest

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"weir"
	"weir/internal/engine"
)

var entryCases = []testCase{
	{"entries of every size are stored", []string{
		"Read returns the entry with this sequence, payload included, as it was appended.",
		"Header returns the entry without its payload. All fields are set, except KeySize and KeyDigest.",
	}, everySize},
	{"every field of an entry is stored", []string{
		"Read returns the entry with this sequence, payload included, as it was appended.",
		"Flags are set by the judge and returned in headers.",
	}, everyField},
	{"a closed gap is stored", []string{
		"for a GapClosed: the last sequence it closes",
		"for a GapClosed: the first sequence it closes",
	}, closedGap},
	{"the engine keeps its own copy", []string{
		"The engine owns e and its payload until Append returns nil or an error that is not from ctx. After an error from ctx the engine owns them for good.",
		"The caller owns it.",
	}, ownCopy},
	{"the proposer is for Admit alone", []string{
		"Proposer carries any value of Append's caller to Admit. It is not stored. It is nil for an entry that another process proposed.",
	}, proposer},
}

// batch returns a batch of one event.
func batch(seq weir.Seq, payload string) *engine.Entry {
	return &engine.Entry{
		Header: engine.Header{
			Kind: engine.Batch, Seq: seq, Time: 1_763_164_800_000 + weir.Time(seq), Count: 1, Size: uint32(len(payload)),
			ContentType: "application/json", Key: fmt.Sprint("key ", seq),
		},
		Payload: []byte(payload),
	}
}

// batches returns batches with these sequences. Each sequence has its own payload.
func batches(seqs ...weir.Seq) []*engine.Entry {
	var entries []*engine.Entry
	for _, seq := range seqs {
		entries = append(entries, batch(seq, content(seq)))
	}
	return entries
}

// content returns the payload that the function batches uses for a sequence: the sequence in
// brackets, repeated 0 to 599 times.
func content(seq weir.Seq) string {
	return strings.Repeat(fmt.Sprintf("[%d]", seq), int(seq*37%600))
}

// same compares an entry that was read with the one that was appended.
func (s *store) same(got, want engine.Entry) {
	s.Helper()
	if got.Header != want.Header {
		s.Fatalf("entry %d: header\n     %+v\nwant %+v", want.Seq, got.Header, want.Header)
	}
	if !bytes.Equal(got.Payload, want.Payload) {
		s.Fatalf("entry %d: the payload of %d bytes differs from the %d bytes that were appended", want.Seq, len(got.Payload), len(want.Payload))
	}
	if got.Proposer != nil {
		s.Fatalf("entry %d has a proposer", want.Seq)
	}
}

// checkEntries checks with every read method that the log holds exactly these entries, in this
// order.
func (s *store) checkEntries(log engine.Log, want []engine.Entry) {
	s.Helper()
	var seqs []weir.Seq
	for _, w := range want {
		seqs = append(seqs, w.Seq)
		got, err := log.Read(s.ctx, w.Seq)
		if err != nil {
			s.Fatalf("read %d: %v", w.Seq, err)
		}
		s.same(got, w)
		h, err := log.Header(s.ctx, w.Seq)
		if err != nil || h != w.Header {
			s.Fatalf("header %d: %v\n     %+v\nwant %+v", w.Seq, err, h, w.Header)
		}
	}
	s.checkSeqs(log, seqs...)
	i := 0
	err := log.Scan(s.ctx, 0, 0, func(e *engine.Entry) bool {
		s.same(*e, want[i])
		i++
		return true
	})
	if err != nil {
		s.Fatalf("scan: %v", err)
	}
	i = 0
	log.Headers(0, func(h engine.Header) bool {
		w := want[i]
		if (h != engine.Header{Seq: w.Seq, Time: w.Time, Kind: w.Kind, Flags: w.Flags, Size: w.Size, KeySize: uint16(len(w.Key))}) {
			s.Errorf("Headers visits entry %d as %+v", w.Seq, h)
		}
		i++
		return true
	})
}

// roundTrip appends entries, whose sequences must increase, and reads them three times: at once,
// after reopening the log, and after reopening the store.
func roundTrip(s *store, entries []engine.Entry) {
	doc, log := s.stream("stream", nil)
	for _, e := range entries {
		s.append(log, &engine.Entry{Header: e.Header, Payload: bytes.Clone(e.Payload)})
	}
	s.checkEntries(log, entries)
	s.closeLog(log)

	restored := func() {
		j := newJudge()
		log = s.open(doc.Created, j)
		if len(j.kept) != len(entries) {
			s.Fatalf("Restore received %d entries of %d", len(j.kept), len(entries))
		}
		for i, h := range j.kept {
			if want := asRestored(entries[i].Header); h != want {
				s.Fatalf("Restore received\n     %+v\nwant %+v", h, want)
			}
		}
		s.checkEntries(log, entries)
	}
	restored()
	s.reopen()
	restored()
}

func everySize(s *store) {
	var entries []engine.Entry
	for i, size := range []int{0, 1, 1 << 10, 1 << 20, 8 << 20, 3, 0} {
		payload := make([]byte, size)
		for j := range payload {
			payload[j] = byte(j * (j >> 8) >> 3)
		}
		e := *batch(weir.Seq(i), "")
		e.Payload, e.Size = payload, uint32(size)
		entries = append(entries, e)
	}
	roundTrip(s, entries)
}

func everyField(s *store) {
	headers := []engine.Header{
		{Kind: engine.Batch, Seq: 0},
		{Kind: engine.Batch, Seq: 1, Time: 1, Count: 1, Flags: engine.Late, ContentType: "a", Key: "b"},
		{Kind: engine.Batch, Seq: 2, Time: 1_763_164_800_123, Count: 1000, Flags: 15},
		{Kind: engine.Batch, Seq: 3, Count: math.MaxUint32, ContentType: strings.Repeat("x", engine.MaxContentType)},
		{Kind: engine.Batch, Seq: 4, Key: strings.Repeat("k", weir.MaxIdempotencyKey)},
		{Kind: engine.Batch, Seq: 5, Key: strings.Repeat("𝄞", engine.MaxKey/4), ContentType: "text/plain; charset=\"utf-8\""},
		{Kind: engine.GapClosed, Seq: 8, First: 6, Time: 5},
		{Kind: engine.Batch, Seq: 1 << 32, Key: "key 7", Time: 1 << 52},
		{Kind: engine.Batch, Seq: weir.MaxSeq - 3, Publisher: "p"},
		{Kind: engine.Batch, Seq: weir.MaxSeq - 2, Publisher: strings.Repeat("~", weir.MaxPublisher), ContentType: "text/plain", Key: "k"},
		{Kind: engine.Batch, Seq: weir.MaxSeq - 1, Tag: strings.Repeat("t", engine.MaxTag)},
		{Kind: engine.Batch, Seq: weir.MaxSeq, Key: "\x00\n\"\\", Publisher: "!", Tag: "\x00"},
	}
	var entries []engine.Entry
	for i, h := range headers {
		var payload []byte
		if h.Kind == engine.Batch {
			payload = []byte(content(weir.Seq(i)))
		}
		h.Size = uint32(len(payload))
		entries = append(entries, engine.Entry{Header: h, Payload: payload})
	}
	roundTrip(s, entries)
}

func closedGap(s *store) {
	entries := []engine.Entry{
		*batch(3, "three"),
		{Header: engine.Header{Kind: engine.GapClosed, First: 4, Seq: 4, Time: 7}},
		*batch(5, "five"),
		{Header: engine.Header{Kind: engine.GapClosed, First: 6, Seq: 999, Time: 8}},
		*batch(1000, "thousand"),
	}
	roundTrip(s, entries)
}

func ownCopy(s *store) {
	_, log := s.stream("stream", nil)
	var want []engine.Entry
	var reused engine.Entry
	payload := make([]byte, 3000)
	for seq := range weir.Seq(20) {
		fresh := batch(seq, content(seq))
		want = append(want, *fresh)
		reused = engine.Entry{Header: fresh.Header, Payload: append(payload[:0], fresh.Payload...)}
		s.append(log, &reused)
		clear(payload)
	}
	s.checkEntries(log, want)
	for _, w := range want {
		got, err := log.Read(s.ctx, w.Seq)
		if err != nil {
			s.Fatal(err)
		}
		clear(got.Payload[:cap(got.Payload)])
	}
	s.checkEntries(log, want)
}

func proposer(s *store) {
	type mark struct{ n int }
	var seen []any
	j := newJudge()
	j.admit = func(e *engine.Entry) bool { seen = append(seen, e.Proposer); return true }
	_, log := s.stream("stream", j)
	e := batch(1, "one")
	e.Proposer = &mark{1}
	s.append(log, e, batch(2, "two"))
	if len(seen) != 2 || seen[0] != e.Proposer || seen[1] != nil {
		s.Fatalf("Admit saw the proposers %v", seen)
	}
	s.checkEntries(log, []engine.Entry{*batch(1, "one"), *batch(2, "two")})
}
