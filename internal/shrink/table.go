package shrink

import "hash/maphash"

// Table finds values by a key that each value holds itself, such as its id. It stores only pointers
// to the values, and so takes half the memory of a map. It frees memory when values are deleted. The
// zero Table is not usable; call NewTable. It has no lock: calls of Set and Delete need one, and
// other calls may run side by side.
type Table[K ~string, V any] struct {
	key   func(*V) K
	seed  maphash.Seed
	parts [tableParts]tablePart[V] // by the highest bits of the hash
	n     int
}

// tablePart is a hash table with linear probing. A table grows one part at a time, so that it does
// not hold up its users: with a million values, a part has 4096 of them.
//
// A slot has a value and the part of its hash that says where the search for it begins. A search
// compares hashes first, because reading values, which are scattered in memory, is slow.
type tablePart[V any] struct {
	sums   []uint32 // hashes, by slot; 0: the slot is free
	values []*V     // by slot
	n      int      // number of values
}

const (
	tableParts = 256
	leastSlots = 8
)

// NewTable returns an empty table. The function key returns the key of a value. The key must not
// change while the value is in the table.
func NewTable[K ~string, V any](key func(*V) K) *Table[K, V] {
	return &Table[K, V]{key: key, seed: maphash.MakeSeed()}
}

// Len returns the number of values.
func (t *Table[K, V]) Len() int { return t.n }

// Get returns the value with a key, or nil if there is none.
func (t *Table[K, V]) Get(key K) *V {
	p, sum := t.part(key)
	if i, ok := t.find(p, key, sum); ok {
		return p.values[i]
	}
	return nil
}

// Set adds a value, or replaces the value with the same key.
func (t *Table[K, V]) Set(value *V) {
	p, sum := t.part(t.key(value))
	i, known := t.find(p, t.key(value), sum)
	if known {
		p.values[i] = value
		return
	}
	if t.n++; p.n+1 > len(p.sums)/5*4 {
		p.resize(max(leastSlots, len(p.sums)+len(p.sums)/4))
	}
	p.put(value, sum)
	p.n++
}

// Delete removes the value with a key, if there is one.
func (t *Table[K, V]) Delete(key K) {
	p, sum := t.part(key)
	i, ok := t.find(p, key, sum)
	if !ok {
		return
	}
	t.n--
	p.n--
	p.values[i], p.sums[i] = nil, 0
	// Move the values behind the free slot up, so that a search that begins before the slot still
	// finds them.
	for at := p.after(i); p.sums[at] != 0; at = p.after(at) {
		value, sum := p.values[at], p.sums[at]
		p.values[at], p.sums[at] = nil, 0
		p.put(value, sum)
	}
	if n := len(p.sums); n > leastSlots && p.n < n/4 {
		p.resize(max(leastSlots, p.n*2))
	}
}

func (t *Table[K, V]) part(key K) (*tablePart[V], uint32) {
	h := maphash.String(t.seed, string(key))
	return &t.parts[h>>56], uint32(h) | 1
}

// find returns the position of the value with a key, if there is one.
func (t *Table[K, V]) find(p *tablePart[V], key K, sum uint32) (int, bool) {
	if p.n == 0 {
		return 0, false
	}
	for i := p.start(sum); p.sums[i] != 0; i = p.after(i) {
		if p.sums[i] == sum && t.key(p.values[i]) == key {
			return i, true
		}
	}
	return 0, false
}

// start returns the position at which the search for a value begins. The order of the positions is
// the order of the sums, so that resize reads and writes the memory in order.
func (p *tablePart[V]) start(sum uint32) int { return int(uint64(sum) * uint64(len(p.sums)) >> 32) }

func (p *tablePart[V]) after(i int) int {
	if i++; i < len(p.sums) {
		return i
	}
	return 0
}

// put puts a value into the first free slot from its start on. There is always one.
func (p *tablePart[V]) put(value *V, sum uint32) {
	i := p.start(sum)
	for p.sums[i] != 0 {
		i = p.after(i)
	}
	p.values[i], p.sums[i] = value, sum
}

func (p *tablePart[V]) resize(n int) {
	values, sums := p.values, p.sums
	p.values, p.sums = make([]*V, n), make([]uint32, n)
	for i, sum := range sums {
		if sum != 0 {
			p.put(values[i], sum)
		}
	}
}
