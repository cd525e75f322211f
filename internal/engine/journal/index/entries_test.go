package index

import (
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/journal/segments"
)

// naive is a simple index, one sorted slice, to compare the real index with.
type naive []Item

func (n naive) search(seq weir.Seq) (int, bool) {
	return slices.BinarySearchFunc(n, seq, func(it Item, seq weir.Seq) int {
		return int(min(max(int64(it.Seq)-int64(seq), -1), 1))
	})
}

func (n *naive) insert(it Item) (old Item, replaced bool) {
	i, found := n.search(it.Seq)
	if found {
		old, (*n)[i] = (*n)[i], it
		return old, true
	}
	*n = slices.Insert(*n, i, it)
	return Item{}, false
}

func all(x *Entries) naive {
	var n naive
	x.Ascend(0, func(it Item) bool { n = append(n, it); return true })
	return n
}

func drawItem(t *rapid.T, seq weir.Seq) Item {
	day := weir.Time(86_400_000)
	return Item{
		Seq:   seq,
		Time:  rapid.SampledFrom([]weir.Time{0, 1, -day, day, 60 * day, -400 * day, 1 << 45}).Draw(t, "time") + weir.Time(seq&0xff),
		Place: Place{rapid.Uint32().Draw(t, "segment"), rapid.Uint32().Draw(t, "off")},
		Size:  rapid.Uint32Range(0, MaxPayload).Draw(t, "size"),
		Head:  rapid.Uint16().Draw(t, "head"),
		Kind:  rapid.SampledFrom([]segments.Kind{segments.KindBatch, segments.KindGapClosed}).Draw(t, "kind"),
		Flags: engine.Flags(rapid.Uint8Range(0, FlagMask).Draw(t, "flags")),
		Keyed: rapid.Bool().Draw(t, "keyed"),
	}
}

// TestIndexMatchesSortedSlice compares the index with a sorted slice after random operations:
// inserts at the end, below the end and far apart, replacements and cuts.
func TestIndexMatchesSortedSlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x Entries
		var n naive
		insert := func(t *rapid.T, seq weir.Seq) {
			it := drawItem(t, seq)
			gotOld, got := x.Insert(it)
			wantOld, want := n.insert(it)
			if got != want || got && gotOld != wantOld {
				t.Fatalf("insert(%d) replaced an item: %v (%+v), want %v (%+v)", seq, got, gotOld, want, wantOld)
			}
		}
		seqs := rapid.OneOf(rapid.Uint64Range(0, 300), rapid.Uint64Range(0, 1<<34), rapid.Just(uint64(1<<63-1)))
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				last := weir.Seq(0)
				if len(n) > 0 {
					last = n[len(n)-1].Seq
				}
				if last > 1<<62 {
					t.Skip("the last sequence is almost the highest possible one")
				}
				for range rapid.IntRange(1, 700).Draw(t, "n") {
					last++
					it := Item{Seq: last, Time: weir.Time(last), Kind: segments.KindBatch}
					x.Insert(it)
					n.insert(it)
				}
			},
			"late": func(t *rapid.T) { insert(t, weir.Seq(seqs.Draw(t, "seq"))) },
			"replace": func(t *rapid.T) {
				if len(n) == 0 {
					t.Skip("the index is empty")
				}
				insert(t, n[rapid.IntRange(0, len(n)-1).Draw(t, "i")].Seq)
			},
			"cut": func(t *rapid.T) {
				low := weir.Seq(seqs.Draw(t, "low"))
				i, _ := n.search(low)
				gone := x.Cut(low)
				if !slices.Equal(all(&gone), n[:i:i]) {
					t.Fatalf("cut at %d returns the wrong items", low)
				}
				kept := slices.Clone(n[i:])
				n = kept
				// An insert into x must not change the items that were cut off.
				if before := all(&gone); len(before) > 0 {
					x.Insert(drawItem(t, before[0].Seq))
					n.insert(all(&x)[0])
					if !slices.Equal(all(&gone), before) {
						t.Fatal("an insert into the index changed the items that were cut off")
					}
				}
			},
			"": func(t *rapid.T) {
				if got := all(&x); !slices.Equal(got, n) {
					t.Fatalf("the index has %d items, want %d; if these are equal, the items differ", len(got), len(n))
				}
				seq := weir.Seq(seqs.Draw(t, "seq"))
				i, found := n.search(seq)
				if it, ok := x.Find(seq); ok != found || ok && it != n[i] {
					t.Fatalf("find(%d) = %+v, %v; want found: %v", seq, it, ok, found)
				}
				first := Item{Seq: 1<<64 - 1}
				x.Ascend(seq, func(it Item) bool { first = it; return false })
				if i < len(n) && first != n[i] || i == len(n) && first.Seq != 1<<64-1 {
					t.Fatalf("ascend(%d) begins with sequence %d, want another item", seq, first.Seq)
				}
			},
		})
	})
}

// The index learns the size of a key, however many entries it has, and keeps it when the entry is
// inserted again.
func TestLearn(t *testing.T) {
	for entries := range weir.Seq(4) {
		var x Entries
		for seq := range entries {
			x.Insert(Item{Seq: seq + 1, Kind: segments.KindBatch, Keyed: true})
		}
		x.Learn([]KeySize{{0, 5}, {1, 6}, {3, 7}, {9, 8}})
		x.Insert(Item{Seq: 1, Kind: segments.KindBatch, Keyed: true})
		for seq, want := range map[weir.Seq]uint16{1: 6, 2: 0, 3: 7} {
			if it, ok := x.Find(seq); ok && it.Key != want && entries > 0 {
				t.Errorf("%d entries: the key of entry %d has %d bytes, want %d", entries, seq, it.Key, want)
			}
		}
	}
}

// TestIndexMemory measures the memory of a million entries, first in one log, then in ten thousand
// logs, then with one entry in each log.
func TestIndexMemory(t *testing.T) {
	const entries = 1_000_000
	for logs, most := range map[int]float64{1: 32, 10_000: 32, entries: 48} {
		before := heapInUse()
		all := make([]Entries, logs)
		for i := range entries {
			seq := weir.Seq(i / logs)
			all[i%logs].Insert(Item{Seq: seq, Time: weir.Time(1_700_000_000_000 + i), Kind: segments.KindBatch, Size: 100, Head: segments.RecordSize})
		}
		each := float64(heapInUse()-before) / entries
		t.Logf("%d logs: %.1f bytes per entry", logs, each)
		if each > most+0.1 {
			t.Errorf("%d logs: %.1f bytes per entry, want at most %v", logs, each, most)
		}
		runtime.KeepAlive(all)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
