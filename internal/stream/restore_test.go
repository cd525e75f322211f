package stream

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"weir"
)

func batch(seq weir.Seq) Header { return Header{Seq: seq, Time: 10, Size: 1} }

// marker returns a log entry that closes the missing sequences from first to last.
func marker(first, last weir.Seq) Header {
	return Header{Closed: true, First: first, Seq: last, Time: 10}
}

// noteOf returns the encoded checkpoint of a stream that stored these batches and evicted those
// below the sequence low.
func noteOf(t *testing.T, low weir.Seq, batches ...weir.Seq) []byte {
	s := New(wide, 0)
	for _, seq := range batches {
		publish(t, s, Publish{Chosen: true, Seq: seq}, 10)
	}
	s.low = max(low, s.low)
	return Encoded(s)
}

func TestRestoreRefusesImpossibleLogs(t *testing.T) {
	tests := []struct {
		name    string
		note    []byte
		entries []Header
		fault   string // part of the expected error; empty if Restore must succeed
	}{
		{"an empty log", nil, nil, ""},
		{"a log without a note", nil, []Header{batch(0), batch(1), batch(5)}, ""},
		{"a marker before the batch above its gap", nil, []Header{batch(1), marker(2, 4), batch(5)}, ""},
		{"all batches evicted", noteOf(t, 3, 1, 2), nil, ""},
		{"all batches evicted, then more stored", noteOf(t, 3, 1, 2), []Header{batch(5)}, ""},
		{"trimmed entries that were not reclaimed yet", noteOf(t, 3, 1, 2), []Header{batch(1), batch(2), batch(3)}, ""},
		{"the same batch twice", nil, []Header{batch(1), batch(1)}, "out of order"},
		{"decreasing sequences", nil, []Header{batch(3), batch(2)}, "out of order"},
		{"batch 0 after another batch", nil, []Header{batch(3), batch(0)}, "out of order"},
		{"a batch above the highest sequence", nil, []Header{batch(weir.MaxSeq + 1)}, "out of order"},
		{"a batch and a marker under one sequence", nil, []Header{batch(1), batch(3), marker(2, 3)}, "out of order"},
		{"a marker above the cursor", nil, []Header{batch(1), marker(2, 3)}, "marker 3"},
		{"a marker alone", nil, []Header{marker(1, 1)}, "marker 1"},
		{"the batch at the cursor is missing", noteOf(t, 2, 1, 2, 3), []Header{batch(2)}, "missing"},
		{"the batch at the cursor is missing, but later batches exist", noteOf(t, 2, 1, 2, 3), []Header{batch(2), batch(4)}, "missing"},
		{"all batches are missing", noteOf(t, 0, 1, 2, 3), nil, "missing"},
		{"all batches from 0 are missing", noteOf(t, 0, 0, 1), nil, "missing"},
		{"batch 0 is missing", noteOf(t, 0, 0, 1), []Header{batch(1)}, "missing"},
	}
	for _, test := range tests {
		s, err := Restore(wide, 0, test.note, refs(test.entries), 50)
		switch {
		case test.fault == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.fault == "":
			if err := s.CheckInvariants(); err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
		case err == nil || !strings.Contains(err.Error(), test.fault):
			t.Errorf("%s: got %v, want an error with %q", test.name, err, test.fault)
		}
	}
}

func TestNoteRoundTrip(t *testing.T) {
	for _, low := range []weir.Seq{0, 1, 5, 301} {
		s := New(wide, -7)
		publish(t, s, Publish{Chosen: true, Seq: 0}, 1<<41)
		publish(t, s, Publish{Chosen: true, Seq: 300}, 1<<42)
		publish(t, s, Publish{Chosen: true, Seq: 200}, 1<<43)
		s.low = low
		got := New(wide, -7)
		if err := got.load(Encoded(s)); err != nil {
			t.Fatal(err)
		}
		if got.ever != s.ever || got.zero != s.zero || got.cursor != s.cursor || got.low != s.low ||
			got.stored != s.stored || got.last != s.last {
			t.Errorf("the checkpoint of %+v decodes to %+v", s, got)
		}
	}
}

// keyedNote returns the note of a stream whose batches 1 to 3, each with an idempotency key, were
// evicted.
func keyedNote(t *testing.T) []byte {
	s := New(wide, 0)
	for i := range 4 {
		v := s.Decide(Publish{Key: fmt.Sprint("key ", i)}, weir.Time(1000*i))
		v.Header.Count = uint32(70 * i)
		s.Apply(v.Header)
	}
	s.low = 4
	return Encoded(s)
}

// A note without keys is written in version 1, which earlier releases can read. A note with keys is
// written in version 2. Both versions can be read.
func TestNotesWithAndWithoutKeys(t *testing.T) {
	if note := noteOf(t, 4, 1, 2, 3); note[0] != 1 {
		t.Errorf("a note without keys has version %d, want 1", note[0])
	}
	note := keyedNote(t)
	s := New(wide, 0)
	if err := s.load(note); err != nil || note[0] != 2 {
		t.Fatalf("load a note with keys: version %d, want 2; error %v", note[0], err)
	}
	s.keys.index(s.low, 5000, 1000)
	for i := range 3 {
		k, ok := s.keys.find(weir.DigestKey(fmt.Sprint("key ", i)), 5000)
		if !ok || k.seq() != weir.Seq(i+1) || k.time() != weir.Time(1000*i) || k.count() != uint32(70*i) {
			t.Errorf("key %d: found %+v, %v; want its sequence, time and number of events", i, k, ok)
		}
	}
	if got := Encoded(s); !slices.Equal(got, note) {
		t.Error("encoding the loaded state does not give the same note")
	}
}

// The longest possible note fits into the 4 MiB that engines can store. If an engine refused the
// note of a trim, the log would never be trimmed again.
func TestLongestNote(t *testing.T) {
	s := New(Rules{MaxBytes: 1 << 40, Retention: time.Hour, Keys: weir.MaxEvictedKeys}, 0)
	for i := range weir.MaxEvictedKeys + 10 {
		keysOf(s).add(Header{Key: weir.DigestKey(fmt.Sprint(i)), Seq: weir.Seq(i+1) << 33, Time: weir.Time(i) << 9, Count: 4 << 20})
	}
	s.ever, s.cursor, s.low = true, weir.MaxSeq, weir.MaxSeq
	s.keys.forget(s.low, 0, s.rules.Keys)
	for i := range MaxProducers {
		record(s, &Writer{fmt.Sprintf("%0256d", i), 1<<53 - 1, 1<<53 - 1, strings.Repeat("x", 512)}, 1<<41)
	}
	note := Encoded(s)
	got := New(s.rules, 0)
	if got.load(note) != nil || got.keys.queue.len() != weir.MaxEvictedKeys || len(note) > 4<<20 {
		t.Errorf("a note of %d bytes holds %d keys; want all keys in at most 4 MiB", len(note), got.keys.queue.len())
	}
	if n := got.wrote.producers.len(); n < MaxProducers/3 {
		t.Errorf("the note holds %d producers with the longest names, want more than a third of all", n)
	}
}

func TestRestoreRefusesDamagedNotes(t *testing.T) {
	good, keyed := noteOf(t, 2, 1, 2, 3), keyedNote(t)
	for _, note := range [][]byte{good, keyed} {
		for n := range note {
			if err := New(wide, 0).load(note[:n]); err == nil {
				t.Errorf("the first %d of %d bytes were accepted as a note", n, len(note))
			}
		}
	}
	bad := map[string][]byte{
		"trailing byte":              append(slices.Clone(good), 0),
		"trailing byte after keys":   append(slices.Clone(keyed), 0),
		"version 2 without keys":     append([]byte{2}, good[1:]...),
		"version 3":                  append([]byte{3}, good[1:]...),
		"key count above the length": append(slices.Clone(good), 255, 255, 255, 255, 15),
		"low above cursor+1":         {1, 1, 3, 5, 0, 0},
		"cursor but nothing stored":  {1, 0, 3, 0, 0, 0},
		"batch 0, nothing stored":    {1, 2, 0, 0, 0, 0},
		"unknown flag":               {1, 5, 3, 1, 0, 0},
		"0 kept but never stored":    {1, 1, 3, 0, 0, 0},
		"newest entry is too old":    {1, 1, 3, 1, 4, 2},
	}
	for name, note := range bad {
		if _, err := Restore(wide, 0, note, refs([]Header{}), 0); err == nil {
			t.Errorf("%s: the note was accepted", name)
		}
	}
}

// refs returns an iterator over the headers, as Restore needs it.
func refs(headers []Header) iter.Seq[*Header] {
	return func(yield func(*Header) bool) {
		for _, h := range headers {
			if !yield(&h) {
				return
			}
		}
	}
}

// A marker that ends inside a gap closes only the lower part of the gap. When the upper part is
// closed later, the two closed ranges are merged.
func TestClosePartOfAGap(t *testing.T) {
	s, err := Restore(wide, 0, nil, refs([]Header{batch(1), marker(2, 3), batch(6)}), 50)
	if err != nil {
		t.Fatal(err)
	}
	if s.Final() != 4 || s.gaps.at(3) != closed || s.gaps.at(4) != open {
		t.Errorf("Final is %d, gaps are %+v", s.Final(), s.gaps)
	}
	m, ok := s.Due(2050, NoneHeld)
	if !ok || m.First != 4 || m.Seq != 5 {
		t.Fatalf("Due returned %+v, %v; want 4 to 5", m, ok)
	}
	s.Apply(m)
	if err := s.CheckInvariants(); err != nil || len(s.gaps.closed) != 1 || s.Final() != 7 {
		t.Errorf("closed gaps are %+v, Final is %d: %v", s.gaps.closed, s.Final(), err)
	}
}

func TestApplyPanicsOnAContradiction(t *testing.T) {
	state := func() *State {
		s := New(wide, 0)
		for _, seq := range []weir.Seq{2, 4, 7, 9} { // the statements below evict everything below 3, and close 3; 5, 6 and 8 stay missing
			publish(t, s, Publish{Chosen: true, Seq: seq}, 10)
		}
		s.Apply(marker(1, 3))
		s.low = 3
		s.gaps.drop(3)
		publish(t, s, Publish{Key: "k"}, 10)
		return s
	}
	tests := []struct {
		name   string
		h      Header
		panics bool
	}{
		{"a late batch", Header{Seq: 5, Time: 10, Late: true}, false},
		{"the next batch", Header{Seq: 11, Time: 11}, false},
		{"a marker", marker(5, 6), false},
		{"a marker for a closed gap", marker(3, 3), false},
		{"a marker below the low mark", marker(1, 1), false},
		{"a stored batch again", Header{Seq: 4, Time: 10, Late: true}, true},
		{"the batch at the cursor again", Header{Seq: 10, Time: 10}, true},
		{"a batch in a closed gap", Header{Seq: 3, Time: 10, Late: true}, true},
		{"an evicted batch", Header{Seq: 2, Time: 10, Late: true}, true},
		{"a late batch without the flag", Header{Seq: 5, Time: 10}, true},
		{"a late flag above the cursor", Header{Seq: 11, Time: 10, Late: true}, true},
		{"an earlier time", Header{Seq: 11, Time: 9}, true},
		{"a known key", Header{Seq: 11, Time: 10, Key: weir.DigestKey("k")}, true},
		{"a key on a late batch", Header{Seq: 5, Time: 10, Late: true, Key: weir.DigestKey("l")}, true},
		{"a sequence above the highest", Header{Seq: weir.MaxSeq + 1, Time: 10}, true},
		{"a marker above the cursor", marker(8, 12), true},
		{"a marker that ends at a batch", marker(5, 7), true},
		{"a marker with its ends swapped", marker(6, 5), true},
	}
	for _, test := range tests {
		func() {
			defer func() {
				if r := recover(); (r != nil) != test.panics {
					t.Errorf("%s: panicked: %v (%v), want %v", test.name, r != nil, r, test.panics)
				}
			}()
			s := state()
			s.Apply(test.h)
			if err := s.CheckInvariants(); err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
		}()
	}
}
