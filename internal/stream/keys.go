package stream

import (
	"weir"
)

// keys remember which batch was published with which idempotency key (D25). Only batches whose
// sequence the server chose have a key. Their sequences and times both increase in the order of
// storing. So the keys of evicted batches are in front of all others in the queue, and the keys to
// forget, by age or because too many of their batches were evicted, are in front of those.
type keys struct {
	queue queue
	place places // positions in queue
}

// key is the digest of an idempotency key and what an acknowledgement of its batch says. It takes 32
// bytes: there may be millions.
type key struct {
	digest digest
	// From the high bits: 53 of the sequence and 11 of the number of events; 51 of the time and the
	// upper 13 of the number of events.
	first, second uint64
}

const (
	firstBits  = 11
	secondBits = 13
	mostEvents = 1<<(firstBits+secondBits) - 1

	_ = uint(mostEvents - weir.MaxBody) // does not compile if a body can have more events
	_ = uint(1<<(64-firstBits) - 1 - weir.MaxSeq)
)

func keyOf(h *Header) key {
	n := uint64(min(h.Count, mostEvents))
	return key{
		digest: h.Key,
		first:  uint64(h.Seq)<<firstBits | n&(1<<firstBits-1),
		second: uint64(h.Time)<<secondBits | n>>firstBits,
	}
}

func (k *key) seq() weir.Seq   { return weir.Seq(k.first >> firstBits) }
func (k *key) time() weir.Time { return weir.Time(int64(k.second) >> secondBits) }

// count returns the number of events in the batch.
func (k *key) count() uint32 {
	return uint32(k.first&(1<<firstBits-1) | k.second&(1<<secondBits-1)<<firstBits)
}

type digest = weir.KeyDigest

// ended reports whether the life of k has ended at now.
func (k *key) ended(now weir.Time) bool { return k.time().Add(weir.IdempotencyKeyLife) <= now }

// find returns the batch that was published with the key of this digest, and false if there is none
// or if its key has ended.
func (ks *keys) find(d digest, now weir.Time) (key, bool) {
	if ks.queue.len() == 0 {
		return key{}, false
	}
	slot, ok := ks.locate(d)
	if !ok {
		return key{}, false
	}
	found := *ks.queue.at(uint32(ks.place.slots[slot]))
	return found, !found.ended(now)
}

// locate returns the slot of a digest, or the free slot where it belongs.
func (ks *keys) locate(d digest) (slot int, ok bool) {
	return ks.place.find(d, func(pos uint32) bool { return ks.queue.at(pos).digest == d })
}

// add remembers the key of the newest batch. It replaces an expired entry for the same key.
func (ks *keys) add(h Header) {
	ks.place.grow()
	slot, _ := ks.locate(h.Key)
	ks.place.set(slot, h.Key, ks.queue.push(keyOf(&h)))
}

// collect is add for many keys, which are not found until index was called.
func (ks *keys) collect(h *Header) { ks.queue.push(keyOf(h)) }

// index makes the collected keys known, without those that forget would drop.
func (ks *keys) index(low weir.Seq, now weir.Time, most int) {
	ks.queue.pop(ks.over(low, now, most))
	n := ks.queue.len()
	if n == 0 {
		return
	}
	slots, pos, skip := make([]uint64, 0, n), ks.queue.start(), ks.queue.first
	for _, piece := range ks.queue.pieces {
		for i := range piece[skip:] {
			slots = append(slots, tagOf(piece[skip+i].digest)|uint64(pos))
			pos++
		}
		skip = 0
	}
	ks.place.build(slots, func(pos, other uint32) bool { return ks.queue.at(pos).digest == ks.queue.at(other).digest })
}

// evicted returns how many keys belong to batches below low.
func (ks *keys) evicted(low weir.Seq) int {
	from, to := 0, ks.queue.len()
	for from < to {
		if mid := (from + to) / 2; ks.queue.index(mid).seq() < low {
			from = mid + 1
		} else {
			to = mid
		}
	}
	return from
}

// over returns how many keys are to be forgotten: those that have ended at now, and of the batches
// below low all but the newest most.
func (ks *keys) over(low weir.Seq, now weir.Time, most int) int {
	n := 0
	for n < ks.queue.len() && ks.queue.index(n).ended(now) {
		n++
	}
	if ks.queue.len()-n > most {
		n = max(n, ks.evicted(low)-most)
	}
	return n
}

// forget drops the keys that have ended at now, and of the batches below low all but the newest
// most.
func (ks *keys) forget(low weir.Seq, now weir.Time, most int) {
	n := ks.over(low, now, most)
	for i := range n {
		ks.drop(i)
	}
	if ks.queue.pop(n); ks.queue.len() == 0 {
		ks.place = places{}
	}
}

// drop forgets where the key at an index is, unless a newer one has taken its place.
func (ks *keys) drop(i int) {
	pos := ks.queue.start() + uint32(i)
	if slot, ok := ks.locate(ks.queue.at(pos).digest); ok && uint32(ks.place.slots[slot]) == pos {
		ks.place.remove(slot)
	}
}

// takeBack forgets the newest n keys.
func (ks *keys) takeBack(n int) {
	n = min(n, ks.queue.len())
	for i := ks.queue.len() - n; i < ks.queue.len(); i++ {
		ks.drop(i)
	}
	ks.queue.cut(n)
}
