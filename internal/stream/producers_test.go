package stream

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"weir"
)

// by returns a publish to which the producer gave the number seq.
func by(name string, seq uint64) Publish { return Publish{Writer: &Writer{Producer: name, Seq: seq}} }

// A stream remembers the producers that have written last. A producer that it has forgotten must
// begin with 0 again.
func TestForgottenProducer(t *testing.T) {
	s := New(wide, 0)
	for i := range MaxProducers {
		publish(t, s, by(fmt.Sprint(i), 0), 1) // all have the same time, so only the order of the log says which producer wrote last
	}
	publish(t, s, by("0", 1), 1)
	publish(t, s, by("new", 0), 1)
	for name, want := range map[string]Verdict{
		"0":    {Outcome: Duplicate, Writer: Standing{Seq: 1}},
		"2":    {Outcome: Duplicate},
		"9999": {Outcome: Duplicate},
		"new":  {Outcome: Duplicate},
		"1":    {Outcome: Refused, Writer: Standing{Conflict: Skipped}},
	} {
		p := by(name, 0)
		if name == "1" {
			p = by(name, 1)
		}
		if got := s.Decide(p, 1); got.Outcome != want.Outcome || got.Writer != want.Writer {
			t.Errorf("producer %s: got %+v, want %+v", name, got, want)
		}
	}
}

// A new producer costs the same, however many producers the stream remembers. Otherwise it would
// take long to open a log, because opening applies every entry again.
func TestProducerCost(t *testing.T) {
	s := New(wide, 0)
	for i := range MaxProducers {
		publish(t, s, by(fmt.Sprint(i), 0), weir.Time(i))
	}
	const more = 100
	n := steps(func() {
		for i := range more {
			publish(t, s, by(fmt.Sprint("new", i), 0), weir.Time(MaxProducers+i))
		}
	})
	if n > 10*more {
		t.Errorf("%d new producers examined %d producers, want at most 10 for each", more, n)
	}
}

// A state that is restored from a note (the checkpoint that is stored with a trim) and the entries
// above it remembers the same producers in the same order as the state in memory, whatever was
// trimmed, and however many producers were forgotten.
func TestRestoredProducers(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, c := range []struct{ pool, width int }{{100, 3}, {MaxProducers + 10, 5}, {3 * MaxProducers, 36}, {MaxProducers, 256}} {
		s := New(wide, 0)
		numbers := map[string]uint64{}
		var log []Header
		var note []byte
		for i := range 4 * MaxProducers {
			name := fmt.Sprintf("%0*d", c.width, rng.IntN(c.pool))
			p := by(name, numbers[name])
			v := s.Decide(p, weir.Time(i/50))
			if v.Writer.Conflict == Skipped { // the producer was forgotten
				p = by(name, 0)
				v = s.Decide(p, weir.Time(i/50))
			}
			if v.Outcome != Stored {
				t.Fatalf("publish by %s: got %+v, want Stored", name, v)
			}
			numbers[name] = p.Writer.Seq + 1
			s.Apply(v.Header)
			log = append(log, v.Header)
			if i%9000 == 8999 {
				low := s.low + weir.Seq(rng.IntN(int(s.next()-s.low)))
				s.EvictBelow(low, func(from weir.Seq, visit func(Header) bool) {
					for _, h := range log[from-1:] {
						if !visit(h) {
							return
						}
					}
				})
				note = Encoded(s)
			}
			if i%7000 != 6999 {
				continue
			}
			restored, err := Restore(wide, 0, note, refs(log), weir.Time(i/50))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(Encoded(restored), Encoded(s)) {
				t.Fatalf("%+v, %d entries: the restored state differs", c, len(log))
			}
		}
	}
}

// Earlier versions wrote longer notes. A state that reads such a note remembers only the newest of
// the producers in the note.
func TestTooManyNotedProducers(t *testing.T) {
	s := New(wide, 0)
	publish(t, s, Publish{Writer: &Writer{Order: "o"}}, 1)
	note := Encoded(s)
	note = binary.AppendUvarint(note[:len(note)-len("\x00\x01o")], MaxProducers)
	for i := range MaxProducers {
		note = appendText(note, fmt.Sprintf("%0256d", i))
		note = binary.AppendVarint(append(note, 0, 0), int64(i))
	}
	restored := New(wide, 0)
	if err := restored.load(appendText(note, "o")); err != nil {
		t.Fatal(err)
	}
	var names []string
	for p := range restored.wrote.producers.all() {
		names = append(names, p.name)
	}
	most := maxNoted / (256 + 24)
	if len(names) != most || names[0] != fmt.Sprintf("%0256d", MaxProducers-most) {
		t.Errorf("the state remembers %d producers, beginning with %q; want the newest %d", len(names), names[:min(len(names), 1)], most)
	}
}

// Earlier versions wrote the producers of a note in no order.
func TestUnorderedProducers(t *testing.T) {
	s := New(wide, 0)
	for i, name := range []string{"c", "a", "b"} {
		publish(t, s, by(name, 0), weir.Time(i))
	}
	note := Encoded(s)
	at := bytes.Index(note, []byte("\x01c"))
	one := slices.Clone(note[at : at+5]) // a name of one byte, epoch, number and time
	copy(note[at:], note[at+5:at+15])
	copy(note[at+10:], one)
	restored := New(wide, 0)
	if err := restored.load(note); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(Encoded(restored), Encoded(s)) {
		t.Errorf("%q was read as %q, want %q", note, Encoded(restored), Encoded(s))
	}
}
