package dashboard

import (
	"fmt"
	"math"
	"time"
)

// forecast says when the disk will be full, if it goes on as in the last day: a straight line through what was used. It is
// silent about what is too far away or too short to tell.
type forecast struct {
	Known   bool
	Growing bool
	ByDay   float64       // bytes
	Full    time.Duration // from now
	Over    time.Duration // what it rests on
}

const (
	forecastLeast = 10 * time.Minute         // of samples
	forecastMost  = 2 * 365 * 24 * time.Hour // beyond that it is not growing
)

// foresee fits the line.
func foresee(samples []sample) forecast {
	n, sumT, sumU := 0.0, 0.0, 0.0
	first, last := math.Inf(1), math.Inf(-1)
	free := 0.0
	for i := range samples {
		if s := &samples[i]; s[diskUsed] > 0 {
			n++
			sumT += s[at]
			sumU += s[diskUsed]
			first, last, free = min(first, s[at]), max(last, s[at]), s[diskFree]
		}
	}
	if n < 2 || last-first < forecastLeast.Seconds() {
		return forecast{}
	}
	covariance, variance := 0.0, 0.0
	for i := range samples {
		if s := &samples[i]; s[diskUsed] > 0 {
			covariance += (s[at] - sumT/n) * (s[diskUsed] - sumU/n)
			variance += (s[at] - sumT/n) * (s[at] - sumT/n)
		}
	}
	f := forecast{Known: true, Over: time.Duration(last-first) * time.Second}
	slope := covariance / variance // bytes a second
	f.ByDay = slope * 24 * 3600
	if slope > 0 && free/slope < forecastMost.Seconds() {
		f.Growing, f.Full = true, time.Duration(free/slope)*time.Second
	}
	return f
}

// String is what people read.
func (f forecast) String() string {
	over := roughly(f.Over)
	switch {
	case !f.Known:
		return "There is not enough history yet to say when the disk will be full."
	case f.Growing && f.Full < time.Minute:
		return "The disk is full, or will be within a minute."
	case f.Growing:
		return fmt.Sprintf("At the pace of the last %s the disk is full in about %s.", over, roughly(f.Full))
	case f.ByDay < -1<<20:
		return fmt.Sprintf("Less of the disk is used than %s ago.", over)
	}
	return fmt.Sprintf("In the last %s the use of the disk has hardly grown: it will not fill at this pace.", over)
}

// roughly is a duration in one unit.
func roughly(d time.Duration) string {
	unit := func(n float64, one string) string {
		if n = math.Round(n); n == 1 {
			return "1 " + one
		}
		return fmt.Sprintf("%.0f %ss", n, one)
	}
	switch {
	case d < 90*time.Second:
		return unit(d.Seconds(), "second")
	case d < 90*time.Minute:
		return unit(d.Minutes(), "minute")
	case d < 36*time.Hour:
		return unit(d.Hours(), "hour")
	}
	return unit(d.Hours()/24, "day")
}
