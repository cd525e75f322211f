package stream

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"weir"
)

// The test adds keys, removes keys from either end of the queue, and adds some of them again, while
// the hash table grows and shrinks. The method find must always return the same result as a map.
func TestPlacesAgreeWithAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	ks := &keys{queue: queue{base: 1<<32 - 300}} // so that positions, which have 32 bits, overflow during the test
	model := map[string]weir.Seq{}
	seq := weir.Seq(0)
	var names []string // the names of the keys, in the order of the queue
	for round := range 60 {
		for range rng.IntN(400) {
			seq++
			name := fmt.Sprint(rng.IntN(3000))
			if _, known := model[name]; known {
				continue
			}
			ks.add(Header{Key: weir.DigestKey(name), Seq: seq, Time: weir.Time(seq)})
			names = append(names, name)
			model[name] = seq
		}
		n := rng.IntN(len(names) + 1)
		if round%10 == 9 {
			n = len(names)
		}
		for _, name := range names[:n] {
			delete(model, name)
		}
		low := seq + 1
		if n < len(names) {
			low = model[names[n]]
		}
		ks.forget(low, 0, 0)
		names = names[n:]
		if len(names) > 3 {
			s := &State{keys: ks}
			back := s.Back(&State{}, 3)
			*ks = *back.keys
			for _, name := range names[len(names)-3:] {
				delete(model, name)
			}
			names = names[:len(names)-3]
		}
		for i := range 3000 {
			name := fmt.Sprint(i)
			got, ok := ks.find(weir.DigestKey(name), 0)
			if want, known := model[name]; ok != known || got.seq() != want {
				t.Fatalf("round %d: key %s has sequence %d (found: %t), want %d (found: %t)", round, name, got.seq(), ok, want, known)
			}
		}
		if ks.place.used != len(model) || len(ks.place.slots) > max(fewestSlots, 16*len(model)) {
			t.Fatalf("round %d: %d of %d slots are used for %d keys; want one used slot and at most 16 slots per key", round, ks.place.used, len(ks.place.slots), len(model))
		}
	}
}

// A restored state fills the hash table over several publishes, while keys are added and removed at
// both ends of the queue. Before and after the table is complete, find must return the newest key
// that has the given digest.
func TestKeysAreFoundWhileTheTableIsFilled(t *testing.T) {
	const count = 3*placeStep + 100
	name := func(i int) digest { return weir.DigestKey(fmt.Sprint(i)) }
	ks := &keys{queue: queue{base: 1<<32 - 300}}
	for i := range count {
		h := Header{Key: name(i), Seq: weir.Seq(i), Time: weir.Time(i)}
		if i == count-7 || i == count/2 {
			h.Key = name(50) // three keys have this digest, and only the newest of them is remembered
		}
		ks.collect(&h)
	}
	ks.index(20, 0, 0)
	low, next := 20, count
	check := func(what string) {
		t.Helper()
		for _, i := range []int{0, low - 1, low, low + 1, 50, placeStep, count / 2, 2 * placeStep, count - 7, count - 1, next - 1, next} {
			want, known := i, i >= low && i < next && i != count/2 && i != count-7
			if i == 50 && next > count-7 {
				want, known = count-7, true
			}
			if got, ok := ks.find(name(i), 0); ok != known || ok && got.seq() != weir.Seq(want) {
				t.Fatalf("%s: key %d has sequence %d (found: %t), want %d (found: %t)", what, i, got.seq(), ok, want, known)
			}
		}
	}
	check("before the first publish")
	for range 6 {
		ks.add(Header{Key: name(next), Seq: weir.Seq(next), Time: weir.Time(next)})
		next++
		check("after a publish")
		low += 1000
		ks.forget(weir.Seq(low), 0, 0)
		check("after an eviction")
		ks.takeBack(1)
		next--
		check("after an undone publish")
	}
	if ks.unplaced != 0 || ks.place.used != ks.queue.len()-1 {
		t.Errorf("%d keys are still unplaced, and the hash table has %d of %d keys; want all except the key that a newer one replaces",
			ks.unplaced, ks.place.used, ks.queue.len())
	}
	ks = &keys{queue: ks.queue}
	ks.index(0, 0, 0)
	ks.takeBack(ks.queue.len() - 5)
	next = low + 5
	check("after most keys were undone before they entered the table")
}

// Normally publishes fill the hash table. If nothing can be stored, searches fill it, so that later
// searches need not read through all keys.
func TestSearchesFillTheTable(t *testing.T) {
	ks := &keys{}
	for i := range 2*placeStep + 100 {
		ks.collect(&Header{Key: weir.DigestKey(fmt.Sprint(i)), Seq: weir.Seq(i)})
	}
	ks.index(0, 0, 0)
	for i := range 4 {
		if _, ok := ks.find(weir.DigestKey(fmt.Sprint("unknown ", i)), 0); ok {
			t.Error("found an unknown key")
		}
		if k, ok := ks.find(weir.DigestKey("5"), 0); !ok || k.seq() != 5 {
			t.Errorf("key 5 has sequence %d (found: %t), want 5 (found: true)", k.seq(), ok)
		}
	}
	if ks.unplaced != 0 {
		t.Errorf("%d keys are not in the hash table, want none", ks.unplaced)
	}
}
