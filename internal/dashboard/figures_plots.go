package dashboard

import (
	"strconv"
	"time"
)

// plotDayEvery is the distance between the points in the plot of a day. More points would look the
// same on the screen, and their data would be larger than the rest of the page.
const plotDayEvery = 5 * time.Minute

// plots returns the columns of the last hour or day by name, for the plots of the overview.
func (v *visit) plots(over string) map[string][]any {
	back := spanOf(over)
	list := v.figures.between(v.now, back)
	if over == spanDay {
		list = thin(list, plotDayEvery)
	}
	all := make([]column, 0, columns)
	for c := range columns {
		if c != at && c != span && c != diskFree { // not plotted
			all = append(all, c)
		}
	}
	return plotsOf(list, v.now, back, all...)
}

// The names of the time spans of plots.
const (
	spanHour = "hour"
	spanDay  = "day"
)

// spanName returns the time span that the visitor chose.
func (v *visit) spanName() string {
	if v.query("span") == spanDay {
		return spanDay
	}
	return spanHour
}

func spanOf(name string) time.Duration {
	if name == spanDay {
		return 24 * time.Hour
	}
	return time.Hour
}

// plotsOf returns the given columns of the samples by name, with counts as rates per second. The
// plots show a period that ends now, even the part of it before the first sample. The parameter back
// is the length of the period. For a time without samples the columns have one null value, so that
// the plot shows a hole there instead of a line.
func plotsOf(list []sample, now time.Time, back time.Duration, show ...column) map[string][]any {
	const hole = 1.5 * float64(coarseEvery/time.Second) // a longer time without a sample is shown as a hole; in seconds
	to := float64(now.Unix())
	plots := map[string][]any{"range": {to - back.Seconds(), to}}
	for _, c := range append([]column{at}, show...) {
		values := make([]any, 0, len(list))
		for i := range list {
			if i > 0 && list[i][at]-list[i][span]-list[i-1][at] > hole {
				var nothing any
				if c == at {
					nothing = list[i-1][at] + 1
				}
				values = append(values, nothing)
			}
			n := list[i][c]
			switch {
			case c.isTime() && n == 0: // nothing was measured
				values = append(values, nil)
				continue
			case c.isCount():
				n /= list[i][span]
			}
			if c != at {
				n = rounded(n)
			}
			values = append(values, n)
		}
		plots[columnNames[c]] = values
	}
	return plots
}

// rounded rounds a number to five digits to keep the response small. A plot cannot show more.
func rounded(n float64) float64 {
	n, _ = strconv.ParseFloat(strconv.FormatFloat(n, 'g', 5, 64), 64)
	return n
}

// thin merges the samples of each interval of the given length into one sample.
func thin(list []sample, every time.Duration) []sample {
	var joined []sample
	last := int64(-1)
	for i := range list {
		if slot := int64(list[i][at]) / int64(every/time.Second); slot != last {
			joined, last = append(joined, list[i]), slot
		} else {
			joined[len(joined)-1].join(&list[i])
		}
	}
	return joined
}

// join merges the sample next, which directly follows s, into s. Counts are added, medians are
// weighted by time, p99 and subscribers get the larger value, and the disk figures come from next.
// If a median was measured in only one of the two samples, join takes that one.
func (s *sample) join(next *sample) {
	both := s[span] + next[span]
	for _, median := range []column{syncMedian, publishMedian, delayMedian} {
		slow := median + 1
		switch {
		case s[median] == 0:
			s[median] = next[median]
		case next[median] != 0:
			s[median] = (s[median]*s[span] + next[median]*next[span]) / both
		}
		s[slow] = max(s[slow], next[slow])
	}
	s[subscribers] = max(s[subscribers], next[subscribers])
	for c := range columns {
		if c.isCount() {
			s[c] += next[c]
		}
	}
	s[at], s[span], s[diskUsed], s[diskFree] = next[at], both, next[diskUsed], next[diskFree]
}
