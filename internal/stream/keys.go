package stream

import (
	"crypto/sha256"
	"math/bits"
	"slices"

	"weir"
)

// keys remember which batch was published with which idempotency key (D25). Only batches whose
// sequence the server chose have a key. Their sequences and times both increase in the order of
// storing, so the keys to forget, by age or by eviction, are always at the front of the queue.
type keys struct {
	queue []key
	gone  uint64 // number of keys removed from the front of the queue so far
	place places // index into queue, plus gone
}

type key struct {
	digest digest
	seq    weir.Seq
	time   weir.Time
}

// digest stands for an idempotency key of up to 255 characters: 128 bits of SHA-256, enough that no
// client can construct two keys with the same digest.
type digest [16]byte

func digestOf(k string) digest {
	sum := sha256.Sum256([]byte(k))
	return digest(sum[:16])
}

// ended reports whether k is no longer valid at now: its batch was evicted, or its life has ended.
func (k key) ended(low weir.Seq, now weir.Time) bool {
	return k.seq < low || k.time.Add(weir.IdempotencyKeyLife) <= now
}

// find returns the sequence of the kept batch that was published with k.
func (ks *keys) find(k string, low weir.Seq, now weir.Time) (weir.Seq, bool) {
	if len(ks.queue) == 0 {
		return 0, false
	}
	slot, ok := ks.locate(digestOf(k))
	if !ok {
		return 0, false
	}
	found := ks.queue[uint32(ks.place.slots[slot])-uint32(ks.gone)]
	return found.seq, !found.ended(low, now)
}

// locate returns the slot of a digest, or the free slot where it belongs.
func (ks *keys) locate(d digest) (slot int, ok bool) {
	return ks.place.find(d, func(pos uint32) bool { return ks.queue[pos-uint32(ks.gone)].digest == d })
}

// add remembers the key of the newest batch. It replaces an expired entry for the same key.
func (ks *keys) add(k string, seq weir.Seq, time weir.Time) {
	d := digestOf(k)
	ks.place.grow()
	slot, _ := ks.locate(d)
	ks.place.set(slot, d, ks.gone+uint64(len(ks.queue)))
	ks.queue = append(ks.queue, key{d, seq, time})
}

// collect is add for many keys, which are not found until index was called.
func (ks *keys) collect(k string, seq weir.Seq, time weir.Time) {
	if len(ks.queue) == cap(ks.queue) {
		ks.queue = slices.Grow(ks.queue, max(len(ks.queue), 8)) // append would copy millions of keys five times as often
	}
	ks.queue = append(ks.queue, key{digestOf(k), seq, time})
}

// index makes the collected keys known, without those that are no longer valid at now.
func (ks *keys) index(low weir.Seq, now weir.Time) {
	n := 0
	for n < len(ks.queue) && ks.queue[n].ended(low, now) {
		n++
	}
	ks.gone += uint64(n)
	if ks.queue = ks.queue[n:]; len(ks.queue) == 0 {
		ks.queue = nil
		return
	}
	ks.place.resize(1 << bits.Len(uint(len(ks.queue)*4/3)))
	for i := range ks.queue {
		d := ks.queue[i].digest
		slot, _ := ks.locate(d)
		ks.place.set(slot, d, ks.gone+uint64(i))
	}
}

// forget drops the keys that are no longer valid at now.
func (ks *keys) forget(low weir.Seq, now weir.Time) {
	n := 0
	for n < len(ks.queue) && ks.queue[n].ended(low, now) {
		ks.drop(n)
		n++
	}
	ks.gone += uint64(n)
	ks.queue = ks.queue[n:] // the memory in front is freed when the queue next grows
	if len(ks.queue) == 0 {
		ks.queue, ks.place = nil, places{}
	}
}

// drop forgets where the key at an index is, unless a newer one has taken its place.
func (ks *keys) drop(n int) {
	pos := uint32(ks.gone) + uint32(n)
	if slot, ok := ks.locate(ks.queue[n].digest); ok && uint32(ks.place.slots[slot]) == pos {
		ks.place.remove(slot)
	}
}
