package dashboard

import (
	"math"
	"testing"
	"time"

	"weir"
	"weir/internal/hub"
)

// The plot of a stream ends now and starts at the oldest batch that is known. It leaves out the time
// whose batches were evicted, or not read because of the limit, because that time would look like
// time without publishes.
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
		last      float64 // batches/s at the last point
	}{
		{"no batches", false, 3600, nil, 60, 0, 0},
		{"one batch just now", false, 3600, []hub.Mark{mark(0)}, 60, 0, 1. / 60},
		{"one batch after the request", false, 3600, []hub.Mark{mark(-time.Second)}, 60, 0, 1. / 60},
		{"one batch an hour ago", false, 7200, []hub.Mark{mark(time.Hour - time.Second)}, 60, 1. / 60, 0},
		{"one batch more than an hour ago", false, 7200, []hub.Mark{mark(2 * time.Hour)}, 60, 0, 0},
		{"one batch per second, all but ten minutes evicted", true, 3600, every(time.Second, 10*time.Minute), 59, 1, 1},
		{"more batches than the limit", true, 3600, every(10*time.Millisecond, 40*time.Second), 3, 100, 100},
		{"a batch every 1.3 seconds for two minutes", true, 3600, every(1300*time.Millisecond, 2*time.Minute), 11, 1 / 1.3, 1 / 1.3},
		{"three seconds", true, 3600, every(100*time.Millisecond, 3*time.Second), 1, 10, 10},
		{"all batches at one moment", true, 3600, []hub.Mark{mark(0), mark(0)}, 1, 2, 2},
		{"all batches evicted by age", true, 60, nil, 6, 0, 0},
		{"batches evicted, but none from the last hour", true, 7200, every(time.Minute, 90*time.Minute), 60, 1. / 60, 1. / 60},
	} {
		st := hub.Standing{Cut: c.cut, Object: weir.Stream{RetentionSeconds: c.retention}}
		r := plot(c.marks, plotFrom(&st, c.marks, now, time.Hour), now)
		end := r[len(r)-1]
		if len(r) != c.points || int64(end[at]) != now.Unix() {
			t.Errorf("%s: %d points, want %d; the last is %d s after now", c.what, len(r), c.points, int64(end[at])-now.Unix())
			continue
		}
		if first, last := r[0][published]/r[0][span], end[published]/end[span]; math.Abs(first-c.first) > 0.12*c.first || math.Abs(last-c.last) > 0.12*c.last {
			t.Errorf("%s: first point %v, last %v, want %v and %v", c.what, first, last, c.first, c.last)
		}
	}
}
