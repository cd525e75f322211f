package stream

import (
	"weir"
)

// keys remembers which batch was published with which idempotency key (D25). Only batches whose
// sequence the server chose have a key. The queue holds the keys in the order in which their
// batches were stored, so sequences and times both increase along the queue. The keys of evicted
// batches are therefore at the front of the queue. The first keys are also the first to be forgotten,
// when they are too old or when the queue holds too many keys of evicted batches.
type keys struct {
	queue queue
	place places // hash table that finds a key's position in queue by its digest
	// A restored state fills the hash table step by step, because filling it at once would delay
	// the first publish. Until the table is complete, a search reads through the keys that are not
	// in it.
	unplaced int    // number of keys at the front of the queue that are not in the table yet
	absent   digest // no key in the queue has this digest; zero if unknown
	searched bool   // a search has read through the unplaced keys
}

// keysOf returns the keys of the state, to which the caller can add some.
func keysOf(s *State) *keys {
	if s.keys == nil {
		s.keys = new(keys)
	}
	return s.keys
}

// placeStep is how many keys of a restored state enter the hash table each time a key is added.
// Entering them takes about as long as reading through a million keys.
const placeStep = 1 << 17

// key holds the digest of an idempotency key, and the values that an acknowledgement of its batch
// needs. They are packed into 32 bytes, because there may be millions of keys.
type key struct {
	digest digest
	// The field first holds 53 bits of the sequence, followed by the lower 11 bits of the number of
	// events. The field second holds 51 bits of the time, followed by the upper 13 bits of the
	// number of events.
	first, second uint64
}

const (
	firstBits  = 11
	secondBits = 13
	mostEvents = 1<<(firstBits+secondBits) - 1

	_ = uint(mostEvents - weir.MaxBody) // does not compile if a body can have more events than a key can hold
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

// ended reports whether the lifetime of the key has ended at the time now.
func (k *key) ended(now weir.Time) bool { return k.time().Add(weir.IdempotencyKeyLife) <= now }

// find returns the remembered key with this digest. The second result is false if there is none or
// if its lifetime has ended.
func (ks *keys) find(d digest, now weir.Time) (key, bool) {
	if ks == nil {
		return key{}, false
	}
	found := ks.lookUp(d)
	if found == nil {
		return key{}, false
	}
	return *found, !found.ended(now)
}

// lookUp returns the newest key with this digest, or nil.
func (ks *keys) lookUp(d digest) *key {
	if ks.place.used > 0 {
		if slot, ok := ks.locate(d); ok {
			return ks.queue.at(uint32(ks.place.slots[slot]))
		}
	}
	if ks.unplaced == 0 || d == ks.absent {
		return nil
	}
	// Sometimes nothing is stored for a long time, for example on a full disk. Then searches fill
	// the table.
	if ks.searched {
		ks.placeMore()
		if slot, ok := ks.locate(d); ok {
			return ks.queue.at(uint32(ks.place.slots[slot]))
		}
	}
	ks.searched = true
	if found := ks.queue.search(d, ks.unplaced); found != nil {
		return found
	}
	ks.absent = d // makes the second search quick: the key of a publish is looked up when it is decided on, and again when it is applied
	return nil
}

// locate returns the slot of a digest in the hash table. If the digest is not there, ok is false
// and slot is the free slot where the digest belongs.
func (ks *keys) locate(d digest) (slot int, ok bool) {
	return ks.place.find(d, func(pos uint32) bool { return ks.queue.at(pos).digest == d })
}

// add remembers the key of the newest batch. It replaces an expired entry for the same key.
func (ks *keys) add(h Header) {
	ks.placeMore()
	ks.absent = digest{}
	ks.place.reserve(1)
	slot, _ := ks.locate(h.Key)
	ks.place.set(slot, h.Key, ks.queue.push(keyOf(&h)))
}

// collect adds a key to a state that is being restored. The caller must call index after the last
// key.
func (ks *keys) collect(h *Header) { ks.queue.push(keyOf(h)) }

// index is called after the last call of collect. It drops the collected keys that the method forget
// would drop, and lets lookUp find the others. The parameters have the same meaning as in forget.
func (ks *keys) index(low weir.Seq, now weir.Time, most int) {
	if ks == nil {
		return
	}
	ks.queue.pop(ks.over(low, now, most))
	ks.unplaced = ks.queue.len()
}

// placeMore enters the newest of the unplaced keys into the hash table.
func (ks *keys) placeMore() {
	if ks.unplaced == 0 {
		return
	}
	if ks.place.slots == nil {
		ks.place.reserve(ks.unplaced)
	}
	n := min(ks.unplaced, placeStep)
	ks.unplaced -= n
	slots := make([]uint64, n)
	for i := range slots {
		pos := ks.queue.start() + uint32(ks.unplaced+i)
		slots[i] = tagOf(ks.queue.at(pos).digest) | uint64(pos)
	}
	ks.place.fill(slots, func(pos, other uint32) bool { return ks.queue.at(pos).digest == ks.queue.at(other).digest })
}

// evicted returns how many keys belong to batches below low.
func (ks *keys) evicted(low weir.Seq) int {
	if ks == nil {
		return 0
	}
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

// below returns the keys of batches below low.
func (ks *keys) below(low weir.Seq) queue {
	if ks == nil {
		return queue{}
	}
	return ks.queue.head(ks.evicted(low))
}

// over returns how many keys at the front of the queue are to be forgotten. These are the keys
// whose lifetime has ended at the time now. Of the keys of evicted batches (those below low), only
// the newest are kept, at most the number given by the parameter most.
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

// forget drops the keys whose lifetime has ended at the time now. Of the keys of evicted batches
// (those below low), it keeps only the newest, at most the number given by the parameter most.
func (ks *keys) forget(low weir.Seq, now weir.Time, most int) {
	if ks == nil {
		return
	}
	n := ks.over(low, now, most)
	for i := range n {
		ks.drop(i)
	}
	ks.unplaced = max(ks.unplaced-n, 0)
	if ks.queue.pop(n); ks.queue.len() == 0 {
		ks.place = places{}
	}
}

// drop removes the i-th key of the queue from the hash table, unless the key is not there yet or the
// slot already belongs to a newer entry for the same key.
func (ks *keys) drop(i int) {
	if i < ks.unplaced {
		return
	}
	pos := ks.queue.start() + uint32(i)
	if slot, ok := ks.locate(ks.queue.at(pos).digest); ok && uint32(ks.place.slots[slot]) == pos {
		ks.place.remove(slot)
	}
}

// takeBack forgets the newest n keys.
func (ks *keys) takeBack(n int) {
	if ks == nil {
		return
	}
	n = min(n, ks.queue.len())
	for i := ks.queue.len() - n; i < ks.queue.len(); i++ {
		ks.drop(i)
	}
	ks.queue.cut(n)
	ks.unplaced = min(ks.unplaced, ks.queue.len())
}
