package jetstream

import "testing"

// The purge of a dropped log must not reach the message that ends the log, which comes after the
// last trim. A purge below 0 would remove all messages.
func TestEmptyIndexKeepsItsBottom(t *testing.T) {
	x := index{entries: []entry{{seq: 5, js: 20}}, low: 5, note: 12, floor: 3}
	if x.empty(); len(x.entries) != 0 || x.bottom() != 12 {
		t.Errorf("%d entries are left, and purges go up to %d; want none and 12", len(x.entries), x.bottom())
	}
}
