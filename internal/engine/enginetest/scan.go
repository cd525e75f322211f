package enginetest

import (
	"fmt"
	"strings"

	"weir"
	"weir/internal/engine"
)

var scanCases = []testCase{
	{"a scan ends when the visitor returns false", []string{
		"Scan calls the function visit for the entries with a sequence of at least start, in increasing order and with their payloads, until visit returns false or there are no more entries.",
	}, scanStops},
	{"a scan sees the same entries in runs of any length", []string{
		"It reads about runBytes at a time, or large pieces if runBytes is 0.",
	}, scanRuns},
	{"a visitor may use the log", []string{
		"Scan holds no lock while visit runs.",
	}, scanUsesLog},
	{"a scan while entries are appended", []string{
		"It visits at least the entries that were durable when Scan was called.",
		"The payload belongs to the engine and is valid only until visit returns.",
	}, scanAppending},
	{"a scan leaves out entries that are trimmed before it reaches them", []string{
		"An entry that is trimmed before the scan reaches it is left out.",
	}, scanTrimmed},
	{"a scan during concurrent trims", []string{
		"An entry that is trimmed before the scan reaches it is left out.",
	}, scanTrimming},
}

func scanStops(s *store) {
	_, log := s.stream("stream", nil)
	s.append(log, batches(upTo(0, 49)...)...)
	for stop := 1; stop <= 50; stop += 7 {
		n := 0
		err := log.Scan(s.ctx, 0, 0, func(*engine.Entry) bool { n++; return n < stop })
		if err != nil || n != stop {
			s.Errorf("a scan that should stop after %d entries visited %d: %v", stop, n, err)
		}
		n = 0
		log.Headers(0, func(engine.Header) bool { n++; return n < stop })
		if n != stop {
			s.Errorf("Headers should stop after %d entries, but visited %d", stop, n)
		}
	}
}

func scanRuns(s *store) {
	_, log := s.stream("stream", nil)
	_, other := s.stream("other", nil)
	for seq := range weir.Seq(60) {
		if seq%10 == 4 {
			s.append(other, batches(seq)...)
			continue
		}
		s.append(log, batch(seq, strings.Repeat("x", int(seq*seq))))
	}
	for _, run := range []int{0, 1, 100, 1000, 3600, 1 << 20} {
		next := weir.Seq(0)
		err := log.Scan(s.ctx, 0, run, func(e *engine.Entry) bool {
			if next%10 == 4 {
				next++
			}
			if e.Seq != next || len(e.Payload) != int(next*next) {
				s.Fatalf("in runs of %d: got entry %d of %d bytes, want %d next", run, e.Seq, len(e.Payload), next)
			}
			next++
			return true
		})
		if err != nil || next != 60 {
			s.Errorf("in runs of %d: stopped at %d, %v", run, next, err)
		}
	}
}

func scanUsesLog(s *store) {
	_, log := s.stream("stream", nil)
	_, other := s.stream("other", nil)
	s.append(log, batches(upTo(10, 20)...)...)
	seen := weir.Seq(10)
	err := log.Scan(s.ctx, 0, 0, func(e *engine.Entry) bool {
		if e.Seq != seen {
			s.Fatalf("got entry %d, want %d next", e.Seq, seen)
		}
		seen++
		s.append(other, batches(e.Seq)...)
		got, err := log.Read(s.ctx, e.Seq)
		if err != nil {
			s.Fatalf("read %d: %v", e.Seq, err)
		}
		s.same(got, *batch(e.Seq, content(e.Seq)))
		s.append(log, batches(1000+e.Seq)...)
		s.trim(log, e.Seq, "note")
		n := 0
		if err := log.Scan(s.ctx, e.Seq, 0, func(*engine.Entry) bool { n++; return n < 3 }); err != nil {
			s.Fatalf("scan inside a scan: %v", err)
		}
		if _, err := s.Update(s.ctx, "stream", []byte("x"), 0); err == nil {
			s.Error("an update of revision 0 succeeded")
		}
		return e.Seq < 20
	})
	if err != nil || seen != 21 {
		s.Fatalf("scan up to %d: %v", seen, err)
	}
	s.checkSeqs(other, upTo(10, 20)...)
	s.checkSeqs(log, append([]weir.Seq{20}, upTo(1010, 1020)...)...)
}

func scanAppending(s *store) {
	const n = 150 // small, because every scan reads all entries again
	j := counting(1)
	_, log := s.stream("stream", j)
	durable := newCounter()
	s.parallel(4, func(i int) {
		if i == 0 {
			defer durable.set(n) // lets the readers end, also after an error
			for k := range n {
				e := batch(0, content(weir.Seq(k+1)))
				e.Time, e.Key = 0, ""
				if err := log.Append(s.ctx, e); err != nil {
					s.Errorf("append: %v", err)
					return
				}
				durable.set(weir.Seq(k + 1))
			}
			return
		}
		for least := weir.Seq(0); ; least = durable.after(least) {
			next := weir.Seq(1)
			err := log.Scan(s.ctx, 0, 0, func(e *engine.Entry) bool {
				if e.Seq != next || string(e.Payload) != content(e.Seq) {
					s.Errorf("got entry %d of %d bytes, want %d next", e.Seq, len(e.Payload), next)
					return false
				}
				next++
				return true
			})
			if err != nil || next <= least {
				s.Errorf("scan ended before %d, but %d was durable: %v", next, least, err)
				return
			}
			if least == n {
				return
			}
		}
	})
}

func scanTrimmed(s *store) {
	_, log := s.stream("stream", nil)
	s.append(log, batches(upTo(0, 99)...)...)
	var seen []weir.Seq
	err := log.Scan(s.ctx, 0, 0, func(e *engine.Entry) bool {
		seen = append(seen, e.Seq)
		switch e.Seq {
		case 10:
			s.trim(log, 50, "")
		case 60:
			s.trim(log, 200, "")
		}
		return true
	})
	want := append(upTo(0, 10), upTo(50, 60)...)
	if err != nil || fmt.Sprint(seen) != fmt.Sprint(want) {
		s.Fatalf("visited %v, %v\nwant %v", seen, err, want)
	}
}

func scanTrimming(s *store) {
	const n = 1000
	_, log := s.stream("stream", nil)
	s.append(log, batches(upTo(1, n)...)...)
	low := newCounter()
	s.parallel(4, func(i int) {
		if i == 0 {
			for at := weir.Seq(10); at <= n; at += 10 {
				if err := log.Trim(s.ctx, at, nil); err != nil {
					s.Errorf("trim: %v", err)
				}
				low.set(at)
			}
			return
		}
		for at := weir.Seq(0); at < n; at = low.after(at) {
			var before weir.Seq
			err := log.Scan(s.ctx, 0, 0, func(e *engine.Entry) bool {
				if e.Seq <= before || string(e.Payload) != content(e.Seq) {
					s.Errorf("got entry %d of %d bytes after entry %d", e.Seq, len(e.Payload), before)
				}
				before = e.Seq
				return true
			})
			if err != nil || before != n {
				s.Errorf("the scan ended with entry %d, %v", before, err)
				return
			}
		}
	})
	s.checkSeqs(log, n)
}
