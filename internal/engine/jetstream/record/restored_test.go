package record

import (
	"fmt"
	"testing"

	"weir"
	"weir/internal/engine"
)

// The judge receives every header once and in order, with the digest of its key, however many there
// are and however early the judge stops. It receives no key and no digest of an older entry.
func TestRestored(t *testing.T) {
	t.Parallel()
	const since = 100
	for _, n := range []int{0, 1, perBlock + 1, 4 * perBlock, 9*perBlock + 3} {
		for _, most := range []int{n, n / 2} {
			all := make([]engine.Header, n)
			for i := range all {
				all[i] = engine.Header{Kind: engine.Batch, Seq: weir.Seq(i), Time: since + weir.Time(i%3) - 1, Count: 7, ContentType: "a/b"}
				if i%5 > 0 {
					all[i].Key = fmt.Sprint("key ", i)
				}
			}
			want := make([]engine.Header, n)
			for i, h := range all {
				h.ContentType, h.KeySize = "", uint16(len(h.Key))
				if h.Key == "" || h.Time < since {
					h.Count = 0
				} else {
					h.KeyDigest = weir.DigestKey(h.Key)
				}
				h.Key = ""
				want[i] = h
			}
			got := 0
			for h := range Restored(n, since, func(i int) *engine.Header { return &all[i] }) {
				if got == most {
					break
				}
				if *h != want[got] {
					t.Fatalf("header %d of %d is %+v, want %+v", got, n, *h, want[got])
				}
				got++
			}
			if got != most {
				t.Errorf("the judge received %d of %d headers, want %d", got, n, most)
			}
		}
	}
}
