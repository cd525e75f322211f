package stream

import (
	"cmp"
	"encoding/binary"
	"maps"

	"weir"
)

// Writer is the client that wrote an entry, with the numbers that the client gave the entry. It is
// part of the entry, so even after a crash a state knows the writers of exactly the entries that it
// contains.
//
// A producer numbers its batches from 0, in each of its epochs. The next batch of a producer has the
// next number of the same epoch, or number 0 of a higher epoch. A batch with a known number is a
// duplicate, and a batch of a lower epoch is refused: a newer instance of the producer is at work.
//
// Independent of its producer, an entry may have an order mark (Stream-Seq of the Durable Streams
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
	Fenced              // the epoch is lower than that of the producer
	BadStart            // a new epoch does not begin with 0
	Skipped             // numbers are missing before this one
	Disorder            // the order mark is not greater than the last one
)

// Standing is what a state knows about a writer.
type Standing struct {
	Conflict   Conflict
	Epoch, Seq uint64 // last batch of the producer, which is this batch if there is no conflict; if Skipped, Seq is the expected number
}

// producer describes the last batch of a producer.
type producer struct {
	epoch, seq uint64
	used       weir.Time
}

// writers are the producers of a stream, and the last order mark.
type writers struct {
	producers map[string]producer
	order     string
}

// MaxProducers is the number of producers that a stream remembers. Beyond it, the producer that has
// not written for the longest time is forgotten.
const MaxProducers = 10_000

// judge compares a writer with the state. The first result is true if its batch is a duplicate.
func (w *writers) judge(p *Writer) (duplicate bool, s Standing) {
	if p.Producer != "" {
		last, known := w.producers[p.Producer]
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

// take records the writer of an entry.
func (w *writers) take(p *Writer, at weir.Time) {
	if p == nil {
		return
	}
	if p.Producer != "" {
		if w.producers == nil {
			w.producers = map[string]producer{}
		}
		w.producers[p.Producer] = producer{p.Epoch, p.Seq, at}
		w.forget()
	}
	w.order = cmp.Or(p.Order, w.order)
}

// forget drops the producer that has not written for the longest time, if there are too many.
func (w *writers) forget() {
	if len(w.producers) <= MaxProducers {
		return
	}
	oldest, found := "", false
	for id, p := range w.producers {
		o := w.producers[oldest]
		if !found || p.used < o.used || p.used == o.used && id < oldest {
			oldest, found = id, true
		}
	}
	delete(w.producers, oldest)
}

func (w *writers) clone() writers { return writers{maps.Clone(w.producers), w.order} }

func (w *writers) empty() bool { return len(w.producers) == 0 && w.order == "" }

// size returns about how many bytes the writers take, in memory and in a note.
func (w *writers) size() int {
	n := len(w.order)
	for id := range w.producers {
		n += len(id) + 64
	}
	return n
}

// encode appends the writers to a note.
func (w *writers) encode(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(w.producers)))
	for id, p := range w.producers {
		b = appendText(b, id)
		b = binary.AppendUvarint(b, p.epoch)
		b = binary.AppendUvarint(b, p.seq)
		b = binary.AppendVarint(b, int64(p.used))
	}
	return appendText(b, w.order)
}

// writers reads the writers of a note.
func (d *decoder) writers() (w writers) {
	n := d.unsigned()
	if n > MaxProducers {
		d.bad = true
		return w
	}
	for range n {
		id := d.text()
		p := producer{epoch: d.unsigned(), seq: d.unsigned(), used: weir.Time(d.signed())}
		if d.bad {
			return w
		}
		if w.producers == nil {
			w.producers = map[string]producer{}
		}
		w.producers[id] = p
	}
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
