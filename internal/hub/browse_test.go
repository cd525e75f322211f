package hub

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"weir"
	"weir/internal/engine"
)

// In either direction, Browse visits every stored batch once, also those above an open gap,
// whatever the limits of a step are.
func TestBrowse(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		var stored []weir.Seq
		for seq := weir.Seq(1); seq < 6000; seq += 1 + seq%7*seq%150 {
			publish(t, s, at(seq, strings.Repeat("x", 1+int(seq%11))))
			stored = append(stored, seq)
		}
		none := func(int) error { return nil }
		for _, w := range []Window{
			{Below: 1 << 40, Limit: 1000, Bytes: 1 << 20}, {Below: 1 << 40, Limit: 7, Bytes: 1 << 20},
			{Below: 1 << 40, Limit: 1000, Bytes: 20}, {From: 1000, Below: 4000, Limit: 5, Bytes: 12}, {From: stored[3], Below: stored[4], Limit: 1, Bytes: 1},
			{From: stored[9] + 1, Below: stored[9] + 1, Limit: 1, Bytes: 1},
		} {
			want := slices.DeleteFunc(slices.Clone(stored), func(seq weir.Seq) bool { return seq < w.From || seq >= w.Below })
			for _, w.Down = range []bool{false, true} {
				var got []weir.Seq
				for rest := w; !rest.IsEmpty(); {
					var step []weir.Seq
					bytes := 0
					done, err := Browse(ctx, s, rest, none, func(b *weir.Batch) {
						step = append(step, b.Seq)
						bytes += len(b.Payload)
					})
					if err != nil {
						t.Fatal(err)
					}
					if len(step) != done.Batches || bytes != done.Bytes || len(step) > w.Limit || bytes > w.Bytes && len(step) > 1 {
						t.Fatalf("%+v: a step visited %d batches with %d bytes and returned %+v", rest, len(step), bytes, done)
					}
					if rest = done.Rest; w.Down {
						slices.Reverse(step)
					}
					got = append(got, step...)
				}
				if w.Down {
					slices.Reverse(got)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%+v: visited %v, want %v", w, got, want)
				}
			}
		}
		failure := errors.New("no memory")
		if _, err := Browse(ctx, s, Window{Below: 9, Limit: 9, Bytes: 9}, func(int) error { return failure }, func(*weir.Batch) {
			t.Error("Browse read a batch without memory")
		}); err != failure {
			t.Errorf("without memory the error is %v", err)
		}
		since, err := FirstSince(ctx, s, 0)
		if err != nil || since > stored[0] {
			t.Errorf("the first batch since the beginning is %d, %v; want at most %d", since, err, stored[0])
		}
		if err := s.Delete(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := Browse(ctx, s, Window{Below: 9, Limit: 9, Bytes: 9}, none, func(*weir.Batch) {}); code(err) != weir.StreamNotFound {
			t.Errorf("browsing a deleted stream: %v", err)
		}
	})
}
