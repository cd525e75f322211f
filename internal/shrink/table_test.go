package shrink_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"weir/internal/shrink"
)

type named struct {
	name string
}

func newTable() *shrink.Table[string, named] {
	return shrink.NewTable(func(v *named) string { return v.name })
}

// A table agrees with a map after random operations, while it grows and while it shrinks.
func TestTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	table, want := newTable(), map[string]*named{}
	for _, share := range []int{9, 1, 7, 5, 0} { // how many of ten operations add a value
		for range 30_000 {
			name := fmt.Sprint(rng.IntN(20_000))
			if rng.IntN(10) < share {
				v := &named{name: name}
				table.Set(v)
				want[name] = v
			} else {
				table.Delete(name)
				delete(want, name)
			}
			if got := table.Get(name); got != want[name] {
				t.Fatalf("value of %s: %v, want %v", name, got, want[name])
			}
		}
		for i := range 20_000 {
			if name := fmt.Sprint(i); table.Get(name) != want[name] {
				t.Fatalf("value of %s: %v, want %v", name, table.Get(name), want[name])
			}
		}
		if table.Len() != len(want) {
			t.Fatalf("%d values, want %d", table.Len(), len(want))
		}
	}
}

// A table takes at most 32 bytes per value, and gives the memory back.
func TestTableMemory(t *testing.T) {
	const n = 200_000
	values := make([]named, n)
	for i := range values {
		values[i].name = fmt.Sprint(i)
	}
	before := heap()
	table := newTable()
	for i := range values {
		table.Set(&values[i])
	}
	if each := (heap() - before) / n; each > 32 {
		t.Errorf("%d bytes per value", each)
	}
	for i := range values {
		table.Delete(values[i].name)
	}
	if left := heap() - before; left > 256<<10 {
		t.Errorf("an empty table takes %d bytes", left)
	}
	runtime.KeepAlive(table)
	runtime.KeepAlive(values)
}
