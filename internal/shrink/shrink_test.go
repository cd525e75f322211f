package shrink_test

import (
	"maps"
	"runtime"
	"testing"

	"weir/internal/shrink"
)

// heap returns the bytes of the heap that are still needed.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestMap(t *testing.T) {
	const n = 200_000 // about 5 MB
	var m shrink.Map[int, int]
	before := heap()
	for i := range n {
		m.Set(i, -i)
	}
	for i := range n - 10 {
		m.Delete(i)
		m.Delete(i) // changes nothing
	}
	if more := heap() - before; more > 1<<20 {
		t.Errorf("a map with %d elements, of %d, takes %d bytes", m.Len(), n, more)
	}
	want := map[int]int{}
	for i := n - 10; i < n; i++ {
		want[i] = -i
		if v, ok := m.Lookup(i); !ok || v != -i || m.Get(i) != -i {
			t.Errorf("element %d is %d, %t", i, v, ok)
		}
	}
	if all := maps.Collect(m.All()); !maps.Equal(all, want) || m.Len() != len(want) {
		t.Errorf("%d elements %v, want %v", m.Len(), all, want)
	}
	if v, ok := m.Lookup(0); ok || v != 0 {
		t.Errorf("a deleted element is %d, %t", v, ok)
	}
}

// While the elements move to a smaller map, each of them is found, replaced, visited and deleted
// once.
func TestMoving(t *testing.T) {
	const n = 64_000
	var m shrink.Map[int, int]
	m.Reserve(n)
	want := map[int]int{}
	for i := range n {
		m.Set(i, i)
		want[i] = i
	}
	check := func() {
		t.Helper()
		all := map[int]int{}
		for k, v := range m.All() {
			if _, twice := all[k]; twice {
				t.Fatalf("element %d was visited twice", k)
			}
			if all[k] = v; m.Get(k) != v {
				t.Fatalf("element %d is %d, want %d", k, m.Get(k), v)
			}
		}
		if !maps.Equal(all, want) || m.Len() != len(want) {
			t.Fatalf("%d elements, %d visited, want %d", m.Len(), len(all), len(want))
		}
	}
	for i := range n {
		m.Delete(i)
		delete(want, i)
		if left := n - i; left <= n/8+2 && left%97 == 0 { // replaces and adds elements
			m.Set(n-1, -i)
			m.Set(n+i, i)
			want[n-1], want[n+i] = -i, i
			check()
		}
	}
	check()
}

// The copies take time in proportion to the number of deletions: a map that grows and shrinks a
// little is not copied at each deletion.
func TestFewCopies(t *testing.T) {
	var m shrink.Map[int, int]
	for i := range 100_000 {
		m.Set(i, i)
	}
	for i := range 90_000 {
		m.Delete(i)
	}
	if n := testing.AllocsPerRun(1000, func() {
		m.Delete(99_999)
		m.Set(99_999, 0)
	}); n > 0 {
		t.Errorf("%v allocations per deletion", n)
	}
}

func TestSlice(t *testing.T) {
	s := make([]int, 100_000)
	s[3] = 3
	if got := shrink.Slice(s[:20_000]); cap(got) != cap(s) {
		t.Errorf("a slice of a fifth was copied to a capacity of %d", cap(got))
	}
	if got := shrink.Slice(s[:4]); cap(got) > 100 || len(got) != 4 || got[3] != 3 {
		t.Errorf("a slice of 4 elements is %v, with a capacity of %d", got, cap(got))
	}
	if got := shrink.Slice(s[:0]); cap(got) > 100 {
		t.Errorf("an empty slice has a capacity of %d", cap(got))
	}
}
