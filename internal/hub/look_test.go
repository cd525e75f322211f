package hub

import (
	"slices"
	"testing"

	"weir"
	"weir/internal/engine"
)

// Look describes the kept batches, the gaps and the subscribers. Glance returns the stream object
// without opening the log.
func TestLook(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		look := func() (Standing, []weir.Seq) {
			t.Helper()
			var seen []weir.Seq
			st, err := s.Look(ctx, 5, func(m Mark) { seen = append(seen, m.Seq) })
			if err != nil {
				t.Fatal(err)
			}
			return st, seen
		}
		if st, seen := look(); st.Batches != 0 || st.Oldest != nil || st.Newest != nil || st.Cut || seen != nil {
			t.Errorf("Look at an empty stream returned %+v", st)
		}
		for _, seq := range []weir.Seq{1, 2, 5, 6, 7, 8, 9} {
			publish(t, s, at(seq, "abc"))
		}
		sub, err := s.Subscribe(ctx, Head)
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		st, seen := look()
		if st.Batches != 7 || st.Missing != 2 || st.Subscribers != 1 || st.Oldest.Seq != 1 || st.Newest.Seq != 9 || st.Newest.Size != 3 {
			t.Errorf("Look returned %+v", st)
		}
		if !slices.Equal(st.Open, []Range{{First: 3, Last: 4}}) || st.Closed != nil {
			t.Errorf("open gaps %v, closed gaps %v; want 3 to 4 open", st.Open, st.Closed)
		}
		if !slices.Equal(seen, []weir.Seq{5, 6, 7, 8, 9}) || !st.Cut {
			t.Errorf("visited %v, Cut %t; want 5 to 9 and true", seen, st.Cut)
		}
		if st, err := s.Look(ctx, 9, func(Mark) {}); err != nil || st.Cut {
			t.Errorf("all batches were visited, but Cut is %t, %v", st.Cut, err)
		}
		object, updated, known := s.Glance()
		if !known || object != st.Object || updated != st.Updated || object.BytesStored != 21 {
			t.Errorf("Glance returned %+v, %v, known %v", object, updated, known)
		}
		if list := h.Streams(); len(list) != 1 || list[0] != s {
			t.Errorf("Streams returned %v", list)
		}
		if err := s.Delete(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Look(ctx, 5, func(Mark) {}); code(err) != weir.StreamNotFound {
			t.Errorf("Look at a deleted stream returned %v", err)
		}
	})
}

// Look visits all batches, even if there are more than lookRun, the number it examines at a time.
func TestLookInSeveralRuns(t *testing.T) {
	engines(t, func(t *testing.T, e engine.Engine) {
		h := open(t, e, Options{})
		defer h.Close()
		s := made(t, h, nil)
		const n = 2*lookRun + 10
		for seq := range weir.Seq(n) {
			publish(t, s, at(seq+1, "x"))
		}
		seen := 0
		st, err := s.Look(ctx, n, func(Mark) { seen++ })
		if err != nil || seen != n || st.Batches != n || st.Newest.Seq != n {
			t.Errorf("visited %d of %d batches: %+v, %v", seen, n, st, err)
		}
	})
}
