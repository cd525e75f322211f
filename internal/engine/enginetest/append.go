package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"weir"
	"weir/internal/engine"
)

var appendCases = []testCase{
	{"entries are admitted in the order of their appends", []string{
		"Log is one ordered log.",
		"The engine calls Admit for every entry, in log order, before the entry becomes part of the log.",
		"The engine asks the judge (Judge.Admit) at the entry's position in the log's order, and the judge may complete the entry.",
	}, appendOrder},
	{"an append that begins after Placed was called comes later", []string{
		"Placeable is a Proposer that must know when its entry has a place in the order of the log.",
		"Append and Propose call Placed at most once, as soon as the entry has its place",
		"If another Append is called after Placed, the judge is asked about this entry first.",
	}, placed},
	{"an entry can be read once its append returned", []string{
		"If it was stored, the entry and everything admitted before it in this log are durable and can be read.",
		"An entry can be read as soon as its Append returned, and never before it is durable.",
	}, readYourWrites},
	{"thousands of appends on one log", []string{
		"Any number of appends may be in flight, also on one log. No append delays another for longer than one sync.",
		"It is called before the Appends of those entries return.",
		"Admit and Commit may run at the same time, because the engine asks about new entries while the disk is still busy with earlier ones.",
	}, manyOnOne},
	{"appends on many logs", []string{
		"Engine is one store: documents, and one log per document.",
		"Any number of appends may be in flight, also on one log. No append delays another for longer than one sync.",
		"The engine calls Admit for one entry at a time per log, and Commit for one group at a time, each in the log's order.",
	}, manyOnMany},
	{"a refusal is as durable as the entries it is based on", []string{
		"Append proposes an entry and waits for the outcome.",
		"When Append returns nil, the entry was either stored or refused.",
		"If the judge refused it, everything admitted before it is durable: a refusal, such as \"duplicate of entry 7\", is as durable as the entries it is based on.",
		"If Admit returns false, the entry is not stored.",
	}, refusal},
	{"sequences may arrive out of order", []string{
		"Scan calls the function visit for the entries with a sequence of at least start, in increasing order and with their payloads, until visit returns false or there are no more entries.",
		"headers of all entries that the log holds, in increasing order of sequence.",
	}, outOfOrder},
	{"an append whose context has ended", []string{
		"error of ctx unknown: ctx ended first, and the entry may still be appended",
	}, endedContext},
	{"a context that ends while its append is in flight", []string{
		"error of ctx unknown: ctx ended first, and the entry may still be appended",
	}, endingContext},
}

func appendOrder(s *store) {
	j := newJudge()
	_, log := s.stream("stream", j)
	want := upTo(1, 100)
	s.append(log, batches(want...)...)
	var got []weir.Seq
	for _, h := range j.order() {
		got = append(got, h.Seq)
	}
	if !slices.Equal(got, want) {
		s.Fatalf("admitted %v, want %v", got, want)
	}
	s.checkSeqs(log, want...)
}

// placement is the proposer of an entry. The channel done is closed when the entry has its place in
// the log, and the test then appends the next entry.
type placement struct{ done chan struct{} }

func (p *placement) Placed() { close(p.done) } // panics if it is called twice

func placed(s *store) {
	j := newJudge()
	_, log := s.stream("stream", j)
	const n = 300
	places := make([]placement, n)
	for i := range places {
		places[i].done = make(chan struct{})
	}
	s.parallel(n, func(i int) {
		if i > 0 {
			<-places[i-1].done
		}
		e := batch(weir.Seq(i), content(weir.Seq(i)))
		e.Proposer = &places[i]
		if err := log.Append(s.ctx, e); err != nil {
			s.Errorf("append %d: %v", i, err)
		}
	})
	for i, h := range j.order() {
		if h.Seq != weir.Seq(i) {
			s.Fatalf("entry %d was admitted as number %d", h.Seq, i)
		}
	}
}

func readYourWrites(s *store) {
	j := counting(1)
	_, log := s.stream("stream", j)
	s.parallel(32, func(i int) {
		for n := range 20 {
			text := fmt.Sprint("entry ", n, " of ", i)
			p := &place{}
			e := batch(0, text)
			e.Proposer = p
			if err := log.Append(s.ctx, e); err != nil {
				s.Errorf("append: %v", err)
				return
			}
			if err := j.settled(p); err != nil {
				s.Error(err)
			}
			got, err := log.Read(s.ctx, p.seq)
			if err != nil || string(got.Payload) != text {
				s.Errorf("read %d just after its append: got %q, %v", p.seq, got.Payload, err)
			}
			visited := false
			err = log.Scan(s.ctx, p.seq, 0, func(e *engine.Entry) bool { visited = e.Seq == p.seq; return false })
			if err != nil || !visited {
				s.Errorf("scan from %d just after its append: the entry is not first (%v)", p.seq, err)
			}
		}
	})
	s.checkSeqs(log, upTo(1, 640)...)
}

// flood appends n entries at the same time, each in its own goroutine, and checks the answers.
func (s *store) flood(log engine.Log, j *judge, n int) {
	s.parallel(n, func(i int) {
		p := &place{}
		e := batch(0, fmt.Sprint("flood ", i))
		e.Proposer = p
		if err := log.Append(s.ctx, e); err != nil {
			s.Errorf("append: %v", err)
		} else if err := j.settled(p); err != nil {
			s.Error(err)
		}
	})
}

func manyOnOne(s *store) {
	const n = 3000
	j := counting(1)
	doc, log := s.stream("stream", j)
	s.flood(log, j, n)
	check := func() {
		seen := make([]bool, n)
		next := weir.Seq(1)
		err := log.Scan(s.ctx, 0, 0, func(e *engine.Entry) bool {
			var i int
			if _, err := fmt.Sscanf(string(e.Payload), "flood %d", &i); err != nil || e.Seq != next || seen[i] {
				s.Fatalf("got entry %d, %q, want entry %d with a payload that was not seen before", e.Seq, e.Payload, next)
			}
			seen[i] = true
			next++
			return true
		})
		if err != nil || next != n+1 {
			s.Fatalf("found %d entries, want %d (%v)", next-1, n, err)
		}
	}
	check()
	s.reopen()
	log = s.open(doc.Created, newJudge())
	check()
}

func manyOnMany(s *store) {
	const logs, each = 50, 40
	docs := make([]engine.Document, logs)
	s.parallel(logs, func(i int) {
		j := counting(weir.Seq(i))
		doc, err := s.Create(s.ctx, fmt.Sprint("stream ", i), nil)
		if err != nil {
			s.Errorf("create: %v", err)
			return
		}
		s.watch(j)
		log, err := s.Open(s.ctx, doc.Created, j)
		if err != nil {
			s.Errorf("open: %v", err)
			return
		}
		docs[i] = doc
		s.flood(log, j, each)
		if got, want := s.seqs(log), upTo(weir.Seq(i), weir.Seq(i+each-1)); !slices.Equal(got, want) {
			s.Errorf("log %d holds %v, want %v", i, got, want)
		}
	})
	if s.Failed() {
		return
	}
	s.reopen()
	for i, doc := range docs {
		s.checkSeqs(s.open(doc.Created, newJudge()), upTo(weir.Seq(i), weir.Seq(i+each-1))...)
	}
}

func refusal(s *store) {
	const keys, times = 100, 8
	first := map[string]weir.Seq{}
	next := weir.Seq(0)
	j := newJudge()
	// For each proposal, answers holds the sequence under which it was stored, or the sequence of
	// the entry that it duplicates.
	answers := make([]weir.Seq, keys*times)
	j.admit = func(e *engine.Entry) bool {
		seq, known := first[e.Key]
		if !known {
			seq = next
			first[e.Key] = seq
			e.Seq = seq
			next++
		}
		var i int
		fmt.Sscan(string(e.Payload), &i)
		answers[i] = seq
		return !known
	}
	_, log := s.stream("stream", j)
	s.parallel(keys*times, func(i int) {
		p := &place{}
		e := batch(0, fmt.Sprint(i))
		e.Key, e.Proposer = fmt.Sprint("key ", i%keys), p
		if err := log.Append(s.ctx, e); err != nil {
			s.Errorf("append: %v", err)
			return
		}
		if err := j.settled(p); err != nil {
			s.Error(err)
		}
		got, err := log.Header(s.ctx, answers[i])
		if err != nil || got.Key != fmt.Sprint("key ", i%keys) {
			s.Errorf("the entry on which answer %d is based: %+v, %v; want one with the key of the proposal", i, got, err)
		}
	})
	s.checkSeqs(log, upTo(0, keys-1)...)
}

func outOfOrder(s *store) {
	doc, log := s.stream("stream", nil)
	order := []weir.Seq{500, 3, 501, 499, 0, 7, 1 << 40, 502, 2, 1, 8}
	s.append(log, batches(order...)...)
	for i := range weir.Seq(100) {
		s.append(log, batches(1000+i*7%100)...)
	}
	want := slices.Sorted(slices.Values(append(order, upTo(1000, 1099)...)))
	s.checkSeqs(log, want...)
	s.reopened(doc.Created, log, func(j *judge, log engine.Log) {
		if got := j.keptSeqs(); !slices.Equal(got, want) {
			s.Fatalf("Restore received %v", got)
		}
		s.checkSeqs(log, want...)
	})
}

func endedContext(s *store) {
	_, log := s.stream("stream", nil)
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if err := log.Append(ctx, batch(1, "one")); !errors.Is(err, context.Canceled) {
		s.Fatalf("append: %v", err)
	}
	s.append(log, batch(2, "two"))
	s.checkMaybe(log, 1, "one")
	got, err := log.Read(s.ctx, 2)
	if err != nil {
		s.Fatal(err)
	}
	s.same(got, *batch(2, "two"))
}

// checkMaybe checks that an entry is in the log exactly as it was appended, or not at all.
func (s *store) checkMaybe(log engine.Log, seq weir.Seq, payload string) (there bool) {
	s.Helper()
	got, err := log.Read(s.ctx, seq)
	if errors.Is(err, engine.ErrNotFound) {
		return false
	}
	if err != nil {
		s.Fatalf("read %d: %v", seq, err)
	}
	s.same(got, *batch(seq, payload))
	return true
}

// endingContext cancels the context of every second append. It does this inside Admit, so that the
// append is certainly in flight at that moment.
func endingContext(s *store) {
	const n = 200
	j := newJudge()
	j.admit = func(e *engine.Entry) bool {
		e.Proposer.(context.CancelFunc)()
		return true
	}
	doc, log := s.stream("stream", j)
	var stored [n]atomic.Bool
	s.parallel(n, func(i int) {
		ctx, cancel := context.WithCancel(s.ctx)
		defer cancel()
		e := batch(weir.Seq(i), content(weir.Seq(i)))
		e.Proposer = cancel
		if i%2 == 0 {
			ctx = s.ctx
		}
		err := log.Append(ctx, e)
		if err != nil && (i%2 == 0 || !errors.Is(err, context.Canceled)) {
			s.Errorf("append %d: %v", i, err)
		}
		stored[i].Store(err == nil)
	})
	s.closeLog(log) // Close waits for the appends in flight
	log = s.open(doc.Created, newJudge())
	for i := range weir.Seq(n) {
		if there := s.checkMaybe(log, i, content(i)); stored[i].Load() && !there {
			s.Errorf("entry %d was appended, but is missing", i)
		}
	}
}
