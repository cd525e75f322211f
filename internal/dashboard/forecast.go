package dashboard

import (
	"fmt"
	"math"
	"time"
)

// forecast predicts when the disk will be full, from a straight line through its usage in the last
// day.
type forecast struct {
	Known   bool          // there are enough samples
	Growing bool          // usage grows, so Full is valid
	ByDay   float64       // growth in bytes per day
	Full    time.Duration // time until the disk is full
	Over    time.Duration // time that the samples cover
}

const (
	forecastLeast = 10 * time.Minute         // if the samples cover less time, there is no forecast
	forecastMost  = 2 * 365 * 24 * time.Hour // if the disk would be full only after a longer time, its usage counts as not growing
)

// foresee fits the line by least squares.
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
	slope := covariance / variance // bytes per second
	f.ByDay = slope * 24 * 3600
	if slope > 0 && free/slope < forecastMost.Seconds() {
		f.Growing, f.Full = true, time.Duration(free/slope)*time.Second
	}
	return f
}

// String returns the forecast as a sentence.
func (f forecast) String() string {
	over := roughly(f.Over)
	switch {
	case !f.Known:
		return "Not enough history yet to predict when the disk will be full."
	case f.Growing && f.Full < time.Minute:
		return "The disk is full, or will be within a minute."
	case f.Growing:
		return fmt.Sprintf("At the rate of the last %s, the disk will be full in about %s.", over, roughly(f.Full))
	case f.ByDay < -1<<20:
		return fmt.Sprintf("Disk usage is lower than %s ago.", over)
	}
	return fmt.Sprintf("Disk usage has barely grown in the last %s. At this rate the disk will not fill up.", over)
}

// roughly formats a duration in a single unit, such as "35 days".
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
