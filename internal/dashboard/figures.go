package dashboard

import (
	"sync"
	"time"

	"weir/internal/api"
	"weir/internal/hub"
	"weir/internal/meter"
)

// Store is how the store stands. What is not known is 0.
type Store struct {
	Syncs      meter.Distribution // how long each write and its sync took, since the start, in nanoseconds
	Journal    int64              // bytes of its files
	Live       int64              // bytes that are still needed
	Free, Size int64              // of the disk that it is on
}

// column is one of the figures of a sample.
type column int

// The columns of a sample. They are stored in this order, so that a new one goes to the end.
const (
	at          column = iota // when the sample was taken, Unix seconds
	span                      // over how many seconds it counts
	requests                  // under /v1
	failed                    // answered with 5xx
	refused                   // answered with 4xx, but 429
	limited                   // answered with 429
	published                 // batches
	delivered                 // batches, once for every subscriber
	received                  // bytes of requests
	sent                      // bytes of answers and subscriptions
	subscribers               // open, at the end
	syncMedian                // milliseconds
	syncSlow                  // milliseconds; one in a hundred took longer
	diskUsed                  // bytes, at the end
	diskFree                  // bytes, at the end
	columns
)

// columnNames are what scripts call them.
var columnNames = [columns]string{"at", "span", "requests", "failed", "refused", "limited", "published", "delivered", "received",
	"sent", "subscribers", "sync_median", "sync_slow", "disk_used", "disk_free"}

// isCount tells whether a column counts something over the span, and is shown by the second.
func (c column) isCount() bool { return c >= requests && c <= sent }

// sample is what happened in a span of time.
type sample [columns]float64

// counts are the counters of all rooms at a moment.
type counts struct {
	taken  time.Time
	sample sample // counts since the start, and gauges
	syncs  meter.Distribution
}

// readCounts adds everything up.
func readCounts(now time.Time, a api.Stats, h hub.Stats, s Store) counts {
	c := counts{taken: now, syncs: s.Syncs}
	v := &c.sample
	for _, r := range a.Requests {
		n := float64(r.Count)
		v[requests] += n
		switch {
		case r.Status == 429:
			v[limited] += n
		case r.Status >= 500:
			v[failed] += n
		case r.Status >= 400:
			v[refused] += n
		}
	}
	v[published], v[delivered] = float64(h.Published), float64(h.Delivered)
	v[received], v[sent] = float64(a.Received), float64(a.Sent+h.DeliveredBytes)
	v[subscribers] = float64(a.Subscribers)
	v[diskUsed], v[diskFree] = float64(s.Size-s.Free), float64(s.Free)
	return c
}

// since is the sample between two moments.
func (c *counts) since(before *counts) sample {
	s := c.sample
	s[at] = float64(c.taken.Unix())
	s[span] = max(c.taken.Sub(before.taken).Seconds(), 0.001)
	for i := range columns {
		if i.isCount() {
			s[i] = max(s[i]-before.sample[i], 0)
		}
	}
	syncs := c.syncs
	for i := range syncs.Counts {
		syncs.Counts[i] -= before.syncs.Counts[i]
	}
	s[syncMedian], s[syncSlow] = quantile(&syncs, 0.5)/1e6, quantile(&syncs, 0.99)/1e6
	return s
}

// quantile estimates below which value so much of a distribution lies, evenly within a range; 0 when there is nothing.
func quantile(d *meter.Distribution, q float64) float64 {
	all := float64(d.Count())
	if all == 0 {
		return 0
	}
	below := 0.0
	for i, n := range d.Counts {
		if n == 0 || below+float64(n) < q*all {
			below += float64(n)
			continue
		}
		low, high := 0.0, 0.0
		if i > 0 {
			low = float64(meter.Latencies[i-1])
		}
		if high = low; i < len(meter.Latencies) {
			high = float64(meter.Latencies[i])
		}
		return low + (high-low)*(q*all-below)/float64(n)
	}
	return float64(meter.Latencies[len(meter.Latencies)-1])
}

// The two rings: one that shows what happens now, and one for a day.
const (
	fineEvery   = 10 * time.Second
	fineKept    = 360
	coarseEvery = time.Minute
	coarseKept  = 1440
)

// figures are the rings of samples, and how often keys were used.
type figures struct {
	mu     sync.Mutex
	fine   ring
	coarse ring
	usage  usage
}

// ring is the last samples, oldest first.
type ring struct {
	every   time.Duration
	kept    int
	last    counts
	samples []sample
}

// take adds a sample if it is time for one.
func (r *ring) take(c *counts) bool {
	if r.last.taken.IsZero() {
		r.last = *c
		return false
	}
	if c.taken.Sub(r.last.taken) < r.every-r.every/20 { // a ticker may be a little early
		return false
	}
	r.add(c.since(&r.last))
	r.last = *c
	return true
}

func (r *ring) add(s sample) {
	if len(r.samples) >= r.kept {
		r.samples = append(r.samples[:0], r.samples[len(r.samples)-r.kept+1:]...)
	}
	r.samples = append(r.samples, s)
}

// between is the samples of a span of time that ends now.
func (f *figures) between(now time.Time, back time.Duration) []sample {
	from := float64(now.Add(-back).Unix())
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []sample
	upTo := float64(now.Unix()) + 1
	if back <= time.Hour && len(f.fine.samples) > 0 {
		upTo = f.fine.samples[0][at] - f.fine.samples[0][span] // before that: what was kept by the minute
	}
	for _, s := range f.coarse.samples {
		if s[at] > from && s[at] <= upTo {
			list = append(list, s)
		}
	}
	if back > time.Hour {
		return list
	}
	for _, s := range f.fine.samples {
		if s[at] > from {
			list = append(list, s)
		}
	}
	return list
}

// total adds a column of counts up.
func total(list []sample, c column) float64 {
	n := 0.0
	for i := range list {
		n += list[i][c]
	}
	return n
}

// usage is how many requests each key made, by the hour.
type usage struct {
	last  map[string]uint64           // since the start, when it was last looked at
	hours map[int64]map[string]uint64 // by Unix hour
}

// take adds what keys did since the last time.
func (u *usage) take(now time.Time, taken map[string]uint64) {
	hour := now.Unix() / 3600
	for id, n := range taken {
		if more := n - min(u.last[id], n); more > 0 {
			if u.hours[hour] == nil {
				u.hours[hour] = map[string]uint64{}
			}
			u.hours[hour][id] += more
		}
	}
	u.last = taken
	for h := range u.hours {
		if h <= hour-24 {
			delete(u.hours, h)
		}
	}
}

// keyUse is how many requests each key made in the last day: exact to the hour.
func (d *Dashboard) keyUse() map[string]uint64 {
	f := &d.figures
	f.mu.Lock()
	defer f.mu.Unlock()
	f.usage.take(d.Now(), d.Access.Taken())
	all := map[string]uint64{}
	for _, keys := range f.usage.hours {
		for id, n := range keys {
			all[id] += n
		}
	}
	return all
}
