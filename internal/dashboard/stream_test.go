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

// The plot of a stream ends now, and begins where something is known: batches that were evicted, or were too many to look at, do
// not count as nothing published.
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
		first     float64 // batches a second, at the first point and at the last
		last      float64
	}{
		{"nothing", false, 3600, nil, 60, 0, 0},
		{"one just now", false, 3600, []hub.Mark{mark(0)}, 60, 0, 1. / 60},
		{"one since it was asked", false, 3600, []hub.Mark{mark(-time.Second)}, 60, 0, 1. / 60},
		{"one an hour ago", false, 7200, []hub.Mark{mark(time.Hour - time.Second)}, 60, 1. / 60, 0},
		{"one before that", false, 7200, []hub.Mark{mark(2 * time.Hour)}, 60, 0, 0},
		{"a second each, of which ten minutes are left", true, 3600, every(time.Second, 10*time.Minute), 60, 1, 1},
		{"more than can be looked at", true, 3600, every(10*time.Millisecond, 30*time.Second), 29, 100, 100},
		{"all of one moment", true, 3600, []hub.Mark{mark(0), mark(0)}, 1, 2, 2},
		{"all are too old", true, 60, nil, 60, 0, 0},
		{"evicted, but an hour is there", true, 7200, every(time.Minute, 90*time.Minute), 60, 1. / 60, 1. / 60},
	} {
		st := hub.Standing{Cut: c.cut, Object: weir.Stream{RetentionSeconds: c.retention}}
		r := plot(c.marks, plotFrom(&st, c.marks, now), now)
		if len(r.At) != c.points || r.At[len(r.At)-1] != now.Unix() {
			t.Errorf("%s: %d points, the last %d s after now", c.what, len(r.At), r.At[len(r.At)-1]-now.Unix())
			continue
		}
		if first, last := r.Batches[0], r.Batches[len(r.Batches)-1]; math.Abs(first-c.first) > 0.12*c.first || math.Abs(last-c.last) > 0.12*c.last {
			t.Errorf("%s: from %v to %v, want from %v to %v", c.what, first, last, c.first, c.last)
		}
	}
}

// A stream that has batch 0 alone was published to.
func TestOnlySequenceZero(t *testing.T) {
	h := newHouse(t)
	b := h.signedIn()
	page := "/dashboard/streams/" + string(h.stream)
	cursor := func() string { return b.see(page + "/tail/cursor") }
	if text := b.see(page); !strings.Contains(text, "nothing was published yet") || !strings.Contains(b.see("/dashboard/streams"), ">never<") {
		t.Errorf("before: %s", text)
	}
	if got := cursor(); got != `{"cursor":0,"published":false}` {
		t.Errorf("before: %s", got)
	}
	if status, _ := h.v1("POST", "/v1/streams/"+string(h.stream)+"/0", h.key, `{"events":["x"]}`); status != http.StatusAccepted {
		t.Fatalf("publishing gives %d", status)
	}
	if text := b.see(page); strings.Contains(text, "nothing was published yet") || strings.Contains(b.see("/dashboard/streams"), ">never<") {
		t.Errorf("after: %s", text)
	}
	if got := cursor(); got != `{"cursor":0,"published":true}` {
		t.Errorf("after: %s", got)
	}
}

// Figures bring every part of the page that moves.
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
	if !strings.Contains(before["updated"], "nothing was published") || before["gap-line"] != "no gap is open" || before["gaps"] != "" {
		t.Errorf("before: %q", before)
	}
	for _, seq := range []int{1, 4} {
		h.v1("POST", fmt.Sprintf("/v1/streams/%s/%d", h.stream, seq), h.key, `{"events":["x"]}`)
	}
	after := parts()
	if !strings.Contains(after["updated"], "<time") || !strings.Contains(after["object"], "&#34;cursor&#34;: 4") || !strings.Contains(after["gaps"], "<td>2</td><td>3</td>") {
		t.Errorf("after: %q", after)
	}
	for _, name := range streamParts {
		if !strings.Contains(b.see(page), `data-part="`+name+`"`) {
			t.Errorf("the page has no %s", name)
		}
	}
	for _, name := range overviewParts {
		if !strings.Contains(b.see("/dashboard"), `data-part="`+name+`"`) {
			t.Errorf("the overview has no %s", name)
		}
	}
}

// A name is typed as the page shows it, or the id instead.
func TestDeleteByNameOrID(t *testing.T) {
	h := newHouse(t)
	b := h.signedIn()
	for _, c := range []struct{ name, typed string }{
		{"two\nlines", "two lines"}, {"wide   gap", "wide gap"}, {" around ", "around"}, {"\t", "id"}, {"plain", "id"}, {"plain", "plain"},
	} {
		o, err := h.hub.Create(context.Background(), hub.Spec{Project: h.project.ID, Name: c.name, RetentionSeconds: 60, MaxBytes: 1 << 20, Mode: weir.JSON})
		h.must(err)
		page := "/dashboard/streams/" + string(o.ID)
		if b.post(page+"/delete", "name", "other"); !strings.Contains(b.see(page+"/delete"), "nothing was deleted") {
			t.Errorf("%q: another name deletes", c.name)
		}
		if c.typed == "id" {
			c.typed = string(o.ID)
		}
		b.post(page+"/delete", "name", c.typed)
		if status, _, _ := b.get(page); status != http.StatusNotFound {
			t.Errorf("%q is not deleted by %q: %d", c.name, c.typed, status)
		}
	}
}

// Days are plotted by five minutes, and lose nothing that was counted.
func TestThin(t *testing.T) {
	var list []sample
	for i := range 11 {
		var s sample
		s[at], s[span], s[requests], s[subscribers], s[syncSlow], s[syncMedian], s[diskUsed] = float64(60*i), 60, 10, float64(i%3), float64(i), 1, float64(i)
		list = append(list, s)
	}
	thinned := thin(list, plotDayEvery)
	if len(thinned) != 3 || total(thinned, requests) != 110 || total(thinned, span) != 660 {
		t.Fatalf("%d samples: %v", len(thinned), thinned)
	}
	if s := thinned[1]; s[at] != 540 || s[span] != 300 || s[subscribers] != 2 || s[syncSlow] != 9 || s[syncMedian] != 1 || s[diskUsed] != 9 {
		t.Errorf("the second: %v", s)
	}
	if len(list) != 11 || list[0][requests] != 10 {
		t.Error("the samples themselves were changed")
	}
}
