package client_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir"
	"weir/client"
)

// seqs reads batches and returns their sequence numbers. For a gap, the result contains the last
// sequence number of the gap, as a negative number.
func seqs(t *testing.T, c *client.Client, id weir.StreamID, o client.PageOptions) (all []int) {
	t.Helper()
	for b, err := range c.Batches(t.Context(), id, o) {
		switch {
		case err != nil:
			t.Fatal(err)
		case b.Gap != nil:
			all = append(all, -int(b.Gap.To))
		default:
			all = append(all, int(b.Seq))
		}
	}
	return all
}

// Batches reads page by page from any start up to the cursor, and reports evicted batches.
func TestBatches(t *testing.T) {
	svc := startService(t, nil)
	c := svc.client(client.Options{})
	id := newStream(t, c, client.NewStream{})
	var middle time.Time
	for i := range 7 {
		if _, err := c.Publish(t.Context(), id, client.Events(i)); err != nil {
			t.Fatal(err)
		}
		if i == 3 {
			b, err := c.Batch(t.Context(), id, 4)
			if err != nil {
				t.Fatal(err)
			}
			middle = b.Time.Std()
		}
	}
	for _, limit := range []int{0, 1, 3, 1000} {
		for want, o := range map[string]client.PageOptions{
			"[1 2 3 4 5 6 7]": {}, "[5 6 7]": {From: 5}, "[]": {Head: true}, "[6 7]": {Last: 2},
		} {
			o.Limit = limit
			if got := fmt.Sprint(seqs(t, c, id, o)); got != want {
				t.Errorf("%+v: got %s, want %s", o, got, want)
			}
		}
		if got := seqs(t, c, id, client.PageOptions{Since: middle, Limit: limit}); !slices.Contains(got, 4) || got[len(got)-1] != 7 {
			t.Errorf("since %v: got %v, want 4 to 7", middle, got)
		}
	}
	p, err := c.Page(t.Context(), id, client.PageOptions{From: 3, Limit: 2})
	if err != nil || len(p.Batches) != 2 || p.Next != 5 || p.Cursor != 7 || string(p.Batches[0].Events[0]) != "2" {
		t.Errorf("got %+v, %v", p, err)
	}
	if _, err := c.Page(t.Context(), id, client.PageOptions{From: 3, Last: 2}); client.CodeOf(err) != weir.InvalidRequest {
		t.Errorf("both From and Last: %v, want invalid_request_error", err)
	}
	// The service may take longer than Options.Timeout to answer a request that waits.
	quick := svc.client(client.Options{Timeout: 200 * time.Millisecond})
	if p, err := quick.Page(t.Context(), id, client.PageOptions{Head: true, Wait: time.Second}); err != nil || len(p.Batches) != 0 || p.Next != 8 {
		t.Errorf("waiting for a batch: %+v, %v", p, err)
	}
}

// Changing a stream returns its new state, and evicted batches are reported as a gap. A page can
// have a raw batch of the largest size.
func TestUpdateStream(t *testing.T) {
	svc := startService(t, nil)
	c := svc.client(client.Options{})
	id := newStream(t, c, client.NewStream{Mode: weir.Raw})
	for range 3 {
		if _, err := c.Publish(t.Context(), id, client.Bytes([]byte(strings.Repeat("x", weir.MaxBody)))); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.UpdateStream(t.Context(), id, client.StreamChange{Name: "new", RetentionSeconds: 3600, MaxBytes: weir.MaxBody})
	if err != nil || s.Name != "new" || s.RetentionSeconds != 3600 || s.MaxBytes != weir.MaxBody || s.BytesStored != weir.MaxBody {
		t.Errorf("got %+v, %v", s, err)
	}
	if got := seqs(t, c, id, client.PageOptions{From: 1}); !slices.Equal(got, []int{-2, 3}) {
		t.Errorf("got %v, want the gap up to 2, and batch 3", got)
	}
	if _, err := c.UpdateStream(t.Context(), id, client.StreamChange{RetentionSeconds: 1}); client.CodeOf(err) != weir.RetentionOutOfRange {
		t.Errorf("a retention of one second: %v", err)
	}
}
