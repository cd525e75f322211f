package dashboard

import (
	"strings"
	"testing"
	"time"

	"weir/internal/meter"
)

func TestForecast(t *testing.T) {
	line := func(n int, each float64) (list []sample) {
		for i := range n {
			var s sample
			s[at], s[diskUsed] = float64(i*60), 50e9+float64(i)*each
			s[diskFree] = 100e9 - s[diskUsed]
			list = append(list, s)
		}
		return list
	}
	for _, c := range []struct {
		samples []sample
		want    string
	}{
		{nil, "Not enough history"}, {line(5, 1e6), "Not enough history"}, {line(100, 0), "barely grown"}, {line(100, -1e6), "usage is lower"},
		{line(121, 1e6), "At the rate of the last 2 hours, the disk will be full in about 35 days."}, {line(100, 1e9), "full, or will be within a minute"},
	} {
		if got := foresee(c.samples).String(); !strings.Contains(got, c.want) {
			t.Errorf("%d samples: %s, want %s", len(c.samples), got, c.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	var h meter.Histogram
	var d meter.Distribution
	if q := quantile(&d, .5); q != 0 {
		t.Errorf("quantile of an empty distribution: %v, want 0", q)
	}
	h.Observe(&meter.Latencies, 150_000, 99)
	h.Observe(&meter.Latencies, int64(time.Minute), 1)
	d.Add(&h)
	if m, s := quantile(&d, .5), quantile(&d, .999); m < 100_000 || m > 250_000 || s != float64(10*time.Second) {
		t.Errorf("p50 %v, p99.9 %v; want 100 to 250 µs, and 10 s", m, s)
	}
}

// Merging samples into intervals of five minutes keeps the totals.
func TestThin(t *testing.T) {
	var list []sample
	for i := range 11 {
		var s sample
		s[at], s[span], s[requests], s[subscribers], s[syncSlow], s[syncMedian], s[diskUsed] = float64(60*i), 60, 10, float64(i%3), float64(i), 1, float64(i)
		list = append(list, s)
	}
	thinned := thin(list, plotDayEvery)
	if len(thinned) != 3 || total(thinned, requests) != 110 || total(thinned, span) != 660 {
		t.Fatalf("%d samples with %v requests in %v s, want 3 with 110 in 660", len(thinned), total(thinned, requests), total(thinned, span))
	}
	if s := thinned[1]; s[at] != 540 || s[span] != 300 || s[subscribers] != 2 || s[syncSlow] != 9 || s[syncMedian] != 1 || s[diskUsed] != 9 {
		t.Errorf("the second sample: %v", s)
	}
	if len(list) != 11 || list[0][requests] != 10 {
		t.Error("thin changed its input")
	}
}
