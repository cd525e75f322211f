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
type tablePart[V any] struct {
	slots []slot[V]
	n     int // number of values
}

// slot holds a value and the part of its hash that says where the search for it begins. A search
// compares hashes first, because reading values, which are scattered in memory, is slow.
type slot[V any] struct {
	value *V // nil: the slot is free
	sum   uint32
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
		return p.slots[i].value
	}
	return nil
}

// Set adds a value, or replaces the value with the same key.
func (t *Table[K, V]) Set(value *V) {
	p, sum := t.part(t.key(value))
	i, known := t.find(p, t.key(value), sum)
	if known {
		p.slots[i].value = value
		return
	}
	if t.n++; p.n+1 > len(p.slots)/5*4 {
		p.resize(max(leastSlots, len(p.slots)+len(p.slots)/4))
	}
	p.put(slot[V]{value, sum})
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
	p.slots[i] = slot[V]{}
	// Move the values behind the free slot up, so that a search that begins before the slot still
	// finds them.
	for at := p.after(i); p.slots[at].value != nil; at = p.after(at) {
		s := p.slots[at]
		p.slots[at] = slot[V]{}
		p.put(s)
	}
	if n := len(p.slots); n > leastSlots && p.n < n/4 {
		p.resize(max(leastSlots, p.n*2))
	}
}

func (t *Table[K, V]) part(key K) (*tablePart[V], uint32) {
	h := maphash.String(t.seed, string(key))
	return &t.parts[h>>56], uint32(h)
}

// find returns the position of the value with a key, if there is one.
func (t *Table[K, V]) find(p *tablePart[V], key K, sum uint32) (int, bool) {
	if p.n == 0 {
		return 0, false
	}
	for i := p.start(sum); p.slots[i].value != nil; i = p.after(i) {
		if s := &p.slots[i]; s.sum == sum && t.key(s.value) == key {
			return i, true
		}
	}
	return 0, false
}

// start returns the position at which the search for a value begins. The order of the positions is
// the order of the sums, so that resize reads and writes the memory in order.
func (p *tablePart[V]) start(sum uint32) int { return int(uint64(sum) * uint64(len(p.slots)) >> 32) }

func (p *tablePart[V]) after(i int) int {
	if i++; i < len(p.slots) {
		return i
	}
	return 0
}

// put puts a value into the first free slot from its start on. There is always one.
func (p *tablePart[V]) put(s slot[V]) {
	i := p.start(s.sum)
	for p.slots[i].value != nil {
		i = p.after(i)
	}
	p.slots[i] = s
}

func (p *tablePart[V]) resize(n int) {
	old := p.slots
	p.slots = make([]slot[V], n)
	for _, s := range old {
		if s.value != nil {
			p.put(s)
		}
	}
}
