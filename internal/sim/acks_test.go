package sim

import (
	"slices"

	"weir"
)

// acks are the sequences of a stream whose batch was acknowledged.
type acks struct {
	sorted []weir.Seq
	order  map[weir.Seq]int // how many other sequences had been added before
}

func (a *acks) has(seq weir.Seq) bool {
	_, ok := a.order[seq]
	return ok
}

// add adds a sequence. It returns false if the sequence was there before.
func (a *acks) add(seq weir.Seq) bool {
	if a.has(seq) {
		return false
	}
	if a.order == nil {
		a.order = map[weir.Seq]int{}
	}
	a.order[seq] = len(a.sorted)
	at, _ := slices.BinarySearch(a.sorted, seq)
	a.sorted = slices.Insert(a.sorted, at, seq)
	return true
}

// between returns the sequences from the first to below the last, sorted.
func (a *acks) between(first, last weir.Seq) []weir.Seq {
	i, _ := slices.BinarySearch(a.sorted, first)
	k, _ := slices.BinarySearch(a.sorted, last)
	return a.sorted[i:max(i, k)]
}

// from returns the sequences from the first upwards, sorted.
func (a *acks) from(first weir.Seq) []weir.Seq {
	i, _ := slices.BinarySearch(a.sorted, first)
	return a.sorted[i:]
}

// earlier returns the first acks, as many as count says, without copying them.
func (a *acks) earlier(count int) earlier { return earlier{a, count} }

// earlier are the acks of an earlier time.
type earlier struct {
	acks  *acks
	count int
}

func (e earlier) has(seq weir.Seq) bool {
	at, ok := e.acks.order[seq]
	return ok && at < e.count
}

// all returns the sequences, sorted.
func (e earlier) all() []weir.Seq {
	return slices.DeleteFunc(slices.Clone(e.acks.sorted), func(seq weir.Seq) bool { return !e.has(seq) })
}
