package stream

import (
	"crypto/sha256"

	"weir"
)

// keys remember which batch was published with which idempotency key (D25). Only batches whose
// sequence the server chose have a key. Their sequences and times both increase in the order of
// storing, so the keys to forget, by age or by eviction, are always at the front of the queue.
type keys struct {
	queue []key
	gone  uint64            // number of keys removed from the front of the queue so far
	place map[digest]uint64 // index into queue, plus gone
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
	at, ok := ks.place[digestOf(k)]
	if !ok {
		return 0, false
	}
	found := ks.queue[at-ks.gone]
	return found.seq, !found.ended(low, now)
}

// add remembers the key of the newest batch. It replaces an expired entry for the same key.
func (ks *keys) add(k string, seq weir.Seq, time weir.Time) {
	d := digestOf(k)
	if ks.place == nil {
		ks.place = make(map[digest]uint64)
	}
	ks.place[d] = ks.gone + uint64(len(ks.queue))
	ks.queue = append(ks.queue, key{d, seq, time})
}

// forget drops the keys that are no longer valid at now.
func (ks *keys) forget(low weir.Seq, now weir.Time) {
	n := 0
	for n < len(ks.queue) && ks.queue[n].ended(low, now) {
		if d := ks.queue[n].digest; ks.place[d] == ks.gone+uint64(n) {
			delete(ks.place, d)
		}
		n++
	}
	ks.gone += uint64(n)
	ks.queue = ks.queue[n:] // the memory in front is freed when the queue next grows
	if len(ks.queue) == 0 {
		ks.queue, ks.place = nil, nil // a map never shrinks on its own
	}
}
