// Package shrink gives memory back after most elements of a large map or slice were removed. A Go
// map never gets smaller when elements are deleted, and a slice keeps its capacity.
package shrink

import "iter"

const (
	// worthwhile is the number of elements up to which a map or slice is left as it is.
	worthwhile = 4096
	// A map or slice is copied when it has shrunk to less than 1/part of its largest size.
	part = 8
	// atOnce is the number of elements that one call of Delete moves to a smaller map. Moving all
	// of them at once would hold up other users of a map that had a million elements.
	atOnce = 16
)

// Map is a map that frees memory when most of its elements were deleted. The zero Map is empty and
// ready to use. It has no lock of its own: Set, Delete and Reserve need exclusive access, and the
// other methods may run concurrently.
type Map[K comparable, V any] struct {
	of   map[K]V
	most int     // the largest number of elements since m.of was made, as seen by Delete
	old  map[K]V // a large map whose elements Delete moves to m.of, a few at a time; mostly nil
}

// Get returns the value of a key, or the zero value if the map does not have the key.
func (m *Map[K, V]) Get(key K) V {
	v, _ := m.Lookup(key)
	return v
}

// Lookup is like Get, and also reports whether the map has the key.
func (m *Map[K, V]) Lookup(key K) (V, bool) {
	v, ok := m.of[key]
	if !ok && m.old != nil {
		v, ok = m.old[key]
	}
	return v, ok
}

// Len returns the number of elements.
func (m *Map[K, V]) Len() int { return len(m.of) + len(m.old) }

// All returns an iterator over the elements, in a random order. The map must not change during the
// iteration.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, part := range [...]map[K]V{m.of, m.old} {
			for k, v := range part {
				if !yield(k, v) {
					return
				}
			}
		}
	}
}

// Reserve makes room for n elements in an empty map.
func (m *Map[K, V]) Reserve(n int) { m.of = make(map[K]V, n) }

// Set adds an element or replaces the value of its key.
func (m *Map[K, V]) Set(key K, value V) {
	if m.of == nil {
		m.of = make(map[K]V)
	}
	m.of[key] = value
	delete(m.old, key)
}

// Delete removes the element with a key, if there is one.
func (m *Map[K, V]) Delete(key K) {
	m.most = max(m.most, m.Len())
	delete(m.of, key)
	delete(m.old, key)
	if m.old == nil && m.most > worthwhile && len(m.of) < m.most/part {
		m.old, m.of, m.most = m.of, make(map[K]V), 0
	}
	moved := 0
	for k, v := range m.old {
		if moved++; moved > atOnce {
			return
		}
		m.of[k] = v
		delete(m.old, k)
	}
	m.old = nil
}

// Slice returns s, or a copy of it if its capacity is much larger than its length. Call it after
// elements were removed.
func Slice[S ~[]E, E any](s S) S {
	if cap(s) > worthwhile && len(s) < cap(s)/part {
		return append(make(S, 0, len(s)), s...)
	}
	return s
}
