package jetstream

import "testing"

// Each node counts the logs that it opens, and its writes that failed because another node had
// written first.
func TestCounts(t *testing.T) {
	s := server(t, quickDir(t))
	defer s.Stop()
	a, b := open(t, s, "store"), open(t, s, "store")
	defer a.Close()
	defer b.Close()
	doc, err := a.Create(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	first := attach(t, a, doc.Created, &follower{})
	second, _ := openUnattended(t, b, doc.Created)
	if err := first.Append(ctx, text("one")); err != nil {
		t.Fatal(err)
	}
	// The second node does not follow the log, so its judge does not know the first entry when it
	// decides.
	if err := second.Append(ctx, text("two")); err != nil {
		t.Fatal(err)
	}
	if got := a.Counts(); got != (Counts{Opens: 1}) {
		t.Errorf("the first node counted %+v, want one opened log", got)
	}
	if got := b.Counts(); got.Opens != 1 || got.Conflicts == 0 {
		t.Errorf("the second node counted %+v, want one opened log and a conflict", got)
	}
}
