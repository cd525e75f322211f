package stream

import (
	"cmp"
	"encoding/binary"

	"weir"
)

// Writer is the client that wrote an entry, with the numbers that the client gave the entry. It is
// part of the entry, so even after a crash a state knows the writers of exactly the entries that it
// contains.
//
// A producer numbers its batches from 0, in each of its epochs. The next batch of a producer has
// the next number of the same epoch, or number 0 of a higher epoch. A batch with a known number is
// a duplicate, and a batch of a lower epoch is refused, because a newer instance of the producer is
// at work.
//
// Independently of its producer, an entry may have an order mark (Stream-Seq of the Durable Streams
// protocol). It must be greater than all earlier marks of the stream, compared byte by byte.
type Writer struct {
	Producer string // empty if the entry has no producer
	Epoch    uint64
	Seq      uint64
	Order    string // empty if the entry has no order mark
}

// Conflict says how the numbers of a writer disagree with the state.
type Conflict uint8

// The conflicts.
const (
	NoConflict Conflict = iota
	Fenced              // the epoch is lower than the current one of the producer
	BadStart            // a new epoch does not begin with 0
	Skipped             // numbers are missing before this one
	Disorder            // the order mark is not greater than the last one
)

// Standing is what a state knows about a writer.
type Standing struct {
	Conflict   Conflict
	Epoch, Seq uint64 // last batch of the producer, which is this batch if there is no conflict; if Skipped, Seq is the expected number
}

// writers are the producers of a stream, and the last order mark.
type writers struct {
	producers producers
	order     string
}

// judge compares a writer with the state. The first result is true if its batch is a duplicate.
func (w *writers) judge(p *Writer) (duplicate bool, s Standing) {
	if w == nil {
		w = &writers{}
	}
	if p.Producer != "" {
		last, known := w.producers.find(p.Producer)
		s = Standing{Epoch: last.epoch, Seq: last.seq}
		switch {
		case !known && p.Seq > 0:
			return false, Standing{Conflict: Skipped, Epoch: p.Epoch}
		case !known:
		case p.Epoch < last.epoch:
			s.Conflict = Fenced
			return false, s
		case p.Epoch > last.epoch && p.Seq > 0:
			s.Conflict = BadStart
			return false, s
		case p.Epoch == last.epoch && p.Seq <= last.seq:
			return true, s
		case p.Epoch == last.epoch && p.Seq > last.seq+1:
			return false, Standing{Conflict: Skipped, Epoch: last.epoch, Seq: last.seq + 1}
		}
	}
	if p.Order != "" && p.Order <= w.order {
		s.Conflict = Disorder
		return false, s
	}
	return false, Standing{Epoch: p.Epoch, Seq: p.Seq}
}

// record remembers the writer of an entry. There may be none.
func record(s *State, p *Writer, at weir.Time) {
	if p == nil {
		return
	}
	if s.wrote == nil {
		s.wrote = new(writers)
	}
	s.wrote.take(p, at)
}

func (w *writers) take(p *Writer, at weir.Time) {
	if p.Producer != "" {
		w.producers.take(producer{name: p.Producer, epoch: p.Epoch, seq: p.Seq, used: at})
	}
	w.order = cmp.Or(p.Order, w.order)
}

func (w *writers) clone() writers {
	if w == nil {
		return writers{}
	}
	return writers{w.producers.clone(), w.order}
}

func (w *writers) empty() bool { return w.producers.len() == 0 && w.order == "" }

// size returns about how many bytes the writers take, in memory and in a note.
func (w *writers) size() int {
	if w == nil {
		return 0
	}
	return len(w.order) + w.producers.size()
}

// encode appends the writers to a note.
func (w *writers) encode(b []byte) []byte { return appendText(w.producers.encode(b), w.order) }

// writers reads the writers of a note.
func (d *decoder) writers() (w writers) {
	w.producers = d.producers()
	w.order = d.text()
	return w
}

// Tag returns the encoding of a writer that is stored with the entry. It is empty if w is nil.
func (w *Writer) Tag() string {
	if w == nil {
		return ""
	}
	b := appendText(nil, w.Producer)
	b = binary.AppendUvarint(b, w.Epoch)
	b = binary.AppendUvarint(b, w.Seq)
	return string(appendText(b, w.Order))
}

// ParseTag returns the writer that Tag has encoded. It returns nil if the tag is empty or malformed.
func ParseTag(tag string) *Writer {
	if tag == "" {
		return nil
	}
	d := decoder{b: []byte(tag)}
	w := &Writer{Producer: d.text(), Epoch: d.unsigned(), Seq: d.unsigned()}
	w.Order = d.text()
	if d.bad || len(d.b) > 0 {
		return nil
	}
	return w
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func (d *decoder) text() string {
	n := d.unsigned()
	if d.bad || n > uint64(len(d.b)) {
		d.bad = true
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}
