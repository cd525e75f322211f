package stream

import (
	"crypto/sha256"

	"weir"
)

// keys remember which batch came with which idempotency key (D25). Only publishes with a sequence of the server's
// choice have one, so along the order of storing both sequences and times rise, and whatever is to be forgotten, by
// age or by eviction, is at the front of the queue.
type keys struct {
	queue []key
	gone  uint64            // how many were taken off the front of the queue
	place map[digest]uint64 // position in the queue, those gone counted
}

type key struct {
	digest digest
	seq    weir.Seq
	time   weir.Time
}

// digest stands for a key of up to 255 characters: 128 bits of SHA-256, so that nobody can make two keys meet.
type digest [16]byte

func digestOf(k string) digest {
	sum := sha256.Sum256([]byte(k))
	return digest(sum[:16])
}

// ended tells whether k counts no more at now.
func (k key) ended(low weir.Seq, now weir.Time) bool {
	return k.seq < low || k.time.Add(weir.IdempotencyKeyLife) <= now
}

// find returns the sequence of the kept batch that came with k.
func (ks *keys) find(k string, low weir.Seq, now weir.Time) (weir.Seq, bool) {
	at, ok := ks.place[digestOf(k)]
	if !ok {
		return 0, false
	}
	found := ks.queue[at-ks.gone]
	return found.seq, !found.ended(low, now)
}

// add remembers the key of the newest batch. An earlier batch under the same key, whose life is over, is found no more.
func (ks *keys) add(k string, seq weir.Seq, time weir.Time) {
	d := digestOf(k)
	if ks.place == nil {
		ks.place = make(map[digest]uint64)
	}
	ks.place[d] = ks.gone + uint64(len(ks.queue))
	ks.queue = append(ks.queue, key{d, seq, time})
}

// forget drops the keys that count no more at now.
func (ks *keys) forget(low weir.Seq, now weir.Time) {
	n := 0
	for n < len(ks.queue) && ks.queue[n].ended(low, now) {
		if d := ks.queue[n].digest; ks.place[d] == ks.gone+uint64(n) {
			delete(ks.place, d)
		}
		n++
	}
	ks.gone += uint64(n)
	ks.queue = ks.queue[n:] // the memory in front comes back when the queue next grows
	if len(ks.queue) == 0 {
		ks.queue, ks.place = nil, nil // a map never shrinks by itself
	}
}
