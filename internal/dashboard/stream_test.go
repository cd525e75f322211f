package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir"
	"weir/internal/hub"
)

// The plot of a stream ends now and starts where its batches are known. It does not show evicted
// batches, or batches beyond the reading limit, as time without publishes.
func TestPlot(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	mark := func(ago time.Duration) hub.Mark { return hub.Mark{Time: weir.TimeOf(now.Add(-ago)), Size: 100} }
	every := func(each, back time.Duration) (marks []hub.Mark) {
		for ago := back; ago > 0; ago -= each {
			marks = append(marks, mark(ago-each/2))
		}
		return marks
	}
	for _, c := range []struct {
		what      string
		cut       bool
		retention int64
		marks     []hub.Mark
		points    int
		first     float64 // batches/s at the first point
		last      float64 // and at the last
	}{
		{"no batches", false, 3600, nil, 60, 0, 0},
		{"one batch just now", false, 3600, []hub.Mark{mark(0)}, 60, 0, 1. / 60},
		{"one batch after the request", false, 3600, []hub.Mark{mark(-time.Second)}, 60, 0, 1. / 60},
		{"one batch an hour ago", false, 7200, []hub.Mark{mark(time.Hour - time.Second)}, 60, 1. / 60, 0},
		{"one batch before that", false, 7200, []hub.Mark{mark(2 * time.Hour)}, 60, 0, 0},
		{"one batch per second, all but ten minutes evicted", true, 3600, every(time.Second, 10*time.Minute), 60, 1, 1},
		{"more batches than the limit", true, 3600, every(10*time.Millisecond, 30*time.Second), 29, 100, 100},
		{"all batches at one moment", true, 3600, []hub.Mark{mark(0), mark(0)}, 1, 2, 2},
		{"all batches evicted by age", true, 60, nil, 60, 0, 0},
		{"evicted, but not in the last hour", true, 7200, every(time.Minute, 90*time.Minute), 60, 1. / 60, 1. / 60},
	} {
		st := hub.Standing{Cut: c.cut, Object: weir.Stream{RetentionSeconds: c.retention}}
		r := plot(c.marks, plotFrom(&st, c.marks, now), now)
		if len(r.At) != c.points || r.At[len(r.At)-1] != now.Unix() {
			t.Errorf("%s: %d points, want %d; the last is %d s after now", c.what, len(r.At), c.points, r.At[len(r.At)-1]-now.Unix())
			continue
		}
		if first, last := r.Batches[0], r.Batches[len(r.Batches)-1]; math.Abs(first-c.first) > 0.12*c.first || math.Abs(last-c.last) > 0.12*c.last {
			t.Errorf("%s: first point %v, last %v, want %v and %v", c.what, first, last, c.first, c.last)
		}
	}
}

// A stream whose only batch has sequence 0 counts as published to, although its cursor is 0.
func TestOnlySequenceZero(t *testing.T) {
	h := newHouse(t)
	b := h.signedIn()
	page := "/dashboard/streams/" + string(h.stream)
	if text := b.see(page); !strings.Contains(text, "nothing published yet") || !strings.Contains(b.see("/dashboard/streams"), ">never<") {
		t.Errorf("before the first publish: %s", text)
	}
	if status, _ := h.v1("POST", "/v1/streams/"+string(h.stream)+"/0", h.key, `{"events":["x"]}`); status != http.StatusAccepted {
		t.Fatalf("publish: status %d, want 202", status)
	}
	if text := b.see(page); strings.Contains(text, "nothing published yet") || strings.Contains(b.see("/dashboard/streams"), ">never<") {
		t.Errorf("after publishing sequence 0: %s", text)
	}
}

// The figures of a stream include every part of the page that changes.
func TestStreamParts(t *testing.T) {
	h := newHouse(t)
	b := h.signedIn()
	page := "/dashboard/streams/" + string(h.stream)
	parts := func() map[string]string {
		t.Helper()
		var f struct{ Parts map[string]string }
		h.must(json.Unmarshal([]byte(b.see(page+"/figures")), &f))
		return f.Parts
	}
	before := parts()
	if !strings.Contains(before["updated"], "nothing published yet") || before["gap-line"] != "no open gaps" || before["gaps"] != "" {
		t.Errorf("parts before the first publish: %q", before)
	}
	for _, seq := range []int{1, 4} {
		h.v1("POST", fmt.Sprintf("/v1/streams/%s/%d", h.stream, seq), h.key, `{"events":["x"]}`)
	}
	after := parts()
	if !strings.Contains(after["updated"], "<time") || !strings.Contains(after["object"], "&#34;cursor&#34;: 4") || !strings.Contains(after["gaps"], `>2</td><td data-label="To">3</td>`) {
		t.Errorf("parts after publishing 1 and 4: %q", after)
	}
	for _, name := range streamParts {
		if !strings.Contains(b.see(page), `data-part="`+name+`"`) {
			t.Errorf("the stream's page has no element for the part %s", name)
		}
	}
	for _, name := range overviewParts {
		if !strings.Contains(b.see("/dashboard"), `data-part="`+name+`"`) {
			t.Errorf("the overview has no element for the part %s", name)
		}
	}
}

// Deleting a stream requires its name, typed as the page shows it, or its ID.
func TestDeleteByNameOrID(t *testing.T) {
	h := newHouse(t)
	b := h.signedIn()
	for _, c := range []struct{ name, typed string }{
		{"two\nlines", "two lines"}, {"wide   gap", "wide gap"}, {" around ", "around"}, {"\t", "id"}, {"plain", "id"}, {"plain", "plain"},
	} {
		o, err := h.hub.Create(context.Background(), hub.Spec{Project: h.project.ID, Name: c.name, RetentionSeconds: 60, MaxBytes: 1 << 20, Mode: weir.JSON})
		h.must(err)
		page := "/dashboard/streams/" + string(o.ID)
		if b.post(page+"/delete", "name", "other"); !strings.Contains(b.see(page+"/delete"), "Nothing was deleted") {
			t.Errorf("%q: a wrong name deletes the stream", c.name)
		}
		if c.typed == "id" {
			c.typed = string(o.ID)
		}
		b.post(page+"/delete", "name", c.typed)
		if status, _, _ := b.get(page); status != http.StatusNotFound {
			t.Errorf("typing %q does not delete the stream %q: status %d", c.typed, c.name, status)
		}
	}
}

// Merging samples to five minutes keeps the totals.
func TestThin(t *testing.T) {
	var list []sample
	for i := range 11 {
		var s sample
		s[at], s[span], s[requests], s[subscribers], s[syncSlow], s[syncMedian], s[diskUsed] = float64(60*i), 60, 10, float64(i%3), float64(i), 1, float64(i)
		list = append(list, s)
	}
	thinned := thin(list, plotDayEvery)
	if len(thinned) != 3 || total(thinned, requests) != 110 || total(thinned, span) != 660 {
		t.Fatalf("%d samples, want 3, or the totals differ: %v", len(thinned), thinned)
	}
	if s := thinned[1]; s[at] != 540 || s[span] != 300 || s[subscribers] != 2 || s[syncSlow] != 9 || s[syncMedian] != 1 || s[diskUsed] != 9 {
		t.Errorf("the second sample: %v", s)
	}
	if len(list) != 11 || list[0][requests] != 10 {
		t.Error("thin changed its input")
	}
}
