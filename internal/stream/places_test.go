package stream

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"weir"
)

// The test adds keys, removes keys from either end of the queue, and adds some of them again, while
// the hash table grows, shrinks and wraps around. find must always return the same result as a map.
func TestPlacesAgreeWithAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	ks := &keys{queue: queue{base: 1<<32 - 300}} // so that positions wrap around during the test
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
			s := &State{keys: *ks}
			back := s.Back(&State{}, 3)
			*ks = back.keys
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
