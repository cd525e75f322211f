package stream

import (
	"cmp"
	"encoding/binary"
	"iter"
	"maps"
	"slices"

	"weir"
)

// producers remembers the last batch of each producer of a stream, in the order of these batches.
// If there are too many producers, it forgets the one whose last batch is the oldest. Taking a
// batch costs the same for any number of producers. This matters because, once a stream has reached
// the limit, every new producer takes the place of another one.
//
// The order of the log alone decides which producers are remembered, and a note holds them in that
// order. So after a restart, the restored state remembers the same producers as the state before.
type producers struct {
	at   map[string]int32 // the index of each producer in ring
	ring []producer       // a ring whose links are producer.before and producer.after; element 0 lies between the newest and the oldest producer
	free int32            // index of the first unused element of ring, 0 if there is none; producer.after leads to the next unused one

	noted int // upper limit of the bytes that these producers take in a note
}

// producer describes the last batch of a producer.
type producer struct {
	name          string
	epoch, seq    uint64
	used          weir.Time
	before, after int32 // the next older and the next newer producer
}

// MaxProducers is the number of producers that a stream remembers. Beyond it, the producer that has
// not written for the longest time is forgotten. If names are longer than 80 bytes on average, the
// stream remembers fewer producers, because they may take at most maxNoted bytes of a note. So a
// note that also holds weir.MaxEvictedKeys keys, of up to 27 bytes each, is not longer than
// engine.MaxNote.
const (
	MaxProducers = 10_000
	maxNoted     = 1 << 20
)

// noted returns how many bytes of a note the producer may take: its name, and at most 24 bytes for
// the length of the name, two numbers up to 2^53 and the time.
func (p *producer) noted() int { return len(p.name) + 24 }

func (ps *producers) len() int { return len(ps.at) }

func (ps *producers) find(name string) (producer, bool) {
	i, ok := ps.at[name]
	if !ok {
		return producer{}, false
	}
	return ps.ring[i], true
}

// take records the newest batch of the stream.
func (ps *producers) take(p producer) {
	i, known := ps.at[p.name]
	if known {
		p.name = ps.ring[i].name // keeps one copy of the name
		ps.unlink(i)
	} else {
		i = ps.unused()
		ps.at[p.name] = i
		ps.noted += p.noted()
	}
	newest := ps.ring[0].before
	p.before, p.after = newest, 0
	ps.ring[i] = p
	ps.ring[newest].after, ps.ring[0].before = i, i
	for len(ps.at) > MaxProducers || ps.noted > maxNoted {
		ps.forget(ps.ring[0].after)
	}
}

func (ps *producers) unlink(i int32) {
	look(1)
	p := &ps.ring[i]
	ps.ring[p.before].after, ps.ring[p.after].before = p.after, p.before
}

func (ps *producers) forget(i int32) {
	ps.unlink(i)
	ps.noted -= ps.ring[i].noted()
	delete(ps.at, ps.ring[i].name)
	ps.ring[i] = producer{after: ps.free}
	ps.free = i
}

// unused returns the index of an unused element.
func (ps *producers) unused() int32 {
	if ps.at == nil {
		ps.at, ps.ring = map[string]int32{}, make([]producer, 1, 2)
	}
	if i := ps.free; i > 0 {
		ps.free = ps.ring[i].after
		return i
	}
	ps.ring = append(ps.ring, producer{})
	return int32(len(ps.ring) - 1)
}

// all returns the producers in the order of their last batches, the oldest first.
func (ps *producers) all() iter.Seq[*producer] {
	return func(yield func(*producer) bool) {
		if ps.at == nil {
			return
		}
		for i := ps.ring[0].after; i > 0 && yield(&ps.ring[i]); {
			i = ps.ring[i].after
		}
	}
}

func (ps *producers) clone() producers {
	return producers{maps.Clone(ps.at), slices.Clone(ps.ring), ps.free, ps.noted}
}

// size returns about how many bytes the producers take, in memory and in a note.
func (ps *producers) size() int { return ps.noted + 64*ps.len() }

// encode appends the producers to a note.
func (ps *producers) encode(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(ps.len()))
	for p := range ps.all() {
		b = appendText(b, p.name)
		b = binary.AppendUvarint(b, p.epoch)
		b = binary.AppendUvarint(b, p.seq)
		b = binary.AppendVarint(b, int64(p.used))
	}
	return b
}

// producers reads the producers of a note.
func (d *decoder) producers() (ps producers) {
	n := d.unsigned()
	if n > MaxProducers {
		d.bad = true
		return ps
	}
	var list []producer
	for range n {
		p := producer{name: d.text(), epoch: d.unsigned(), seq: d.unsigned(), used: weir.Time(d.signed())}
		if d.bad {
			return ps
		}
		list = append(list, p)
	}
	// Earlier versions wrote the producers in no order. Times never decrease along the log, so
	// sorting changes nothing in a note of this version.
	slices.SortStableFunc(list, func(a, b producer) int { return cmp.Compare(a.used, b.used) })
	for _, p := range list {
		ps.take(p)
	}
	return ps
}
