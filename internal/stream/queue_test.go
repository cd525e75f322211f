package stream

import (
	"math/rand/v2"
	"testing"

	"weir"
)

// The test compares a queue with a slice. The queue must hold the same keys, must have memory for
// at most a few times as many keys, and must not change a queue that its method head returned
// earlier.
func TestQueueAgreesWithASlice(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var q queue
	var want []weir.Seq
	next, start := weir.Seq(0), uint32(0)
	for round := range 400 {
		for range rng.IntN(50 + round%7*300) {
			next++
			if pos := q.push(keyOf(&Header{Seq: next, Time: -weir.Time(next), Count: uint32(next)})); pos != start+uint32(len(want)) {
				t.Fatalf("round %d: key %d is at position %d, want %d", round, next, pos, start+uint32(len(want)))
			}
			want = append(want, next)
		}
		n := rng.IntN(len(want) + 1)
		head, held := q.head(n), want[:n]
		gone := rng.IntN(n + 1)
		q.pop(gone)
		start += uint32(gone)
		want = want[gone:]
		if cut := rng.IntN(len(want) - (n - gone) + 1); cut > 0 { // cut must not remove keys that are in head
			q.cut(cut)
			want = want[:len(want)-cut]
		}
		q.push(keyOf(&Header{Seq: next + 1}))
		q.cut(1)
		for i, seq := range held {
			if got := head.index(i); got.seq() != seq {
				t.Fatalf("round %d: key %d of the head has sequence %d, want %d", round, i, got.seq(), seq)
			}
		}
		if q.len() != len(want) || head.len() != len(held) {
			t.Fatalf("round %d: the queue has %d keys, want %d; the head has %d, want %d", round, q.len(), len(want), head.len(), len(held))
		}
		for i, seq := range want {
			got := q.at(start + uint32(i))
			if got != q.index(i) || got.seq() != seq || got.time() != -weir.Time(seq) || got.count() != uint32(seq) {
				t.Fatalf("round %d: key %d has sequence %d, time %d and %d events; want %d, %d and %d", round, i, got.seq(), got.time(), got.count(), seq, -weir.Time(seq), seq)
			}
		}
		if q.capacity() > 2*len(want)+2*pieceKeys {
			t.Fatalf("round %d: the queue has memory for %d keys, but holds only %d", round, q.capacity(), len(want))
		}
	}
}
