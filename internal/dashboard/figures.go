package dashboard

import (
	"sync"
	"time"

	"weir/internal/api"
	"weir/internal/hub"
	"weir/internal/meter"
)

// Store describes the state of the store. Unknown values are 0.
type Store struct {
	Syncs      meter.Distribution // duration of each write with its sync, since the server started, in nanoseconds
	Journal    int64              // size of the journal files in bytes
	Live       int64              // bytes of the journal that are still needed
	Free, Size int64              // free and total space of the disk that holds the store, in bytes
	Scrub      *Scrub             // nil if nothing is read in the background
}

// Scrub is the progress of reading the stored data in the background to find damage.
type Scrub struct {
	Done, Total int64     // bytes of the current pass; both are 0 between passes
	Finished    time.Time // end of the last complete pass; zero if there was none
	Damaged     []string  // damaged data that is still needed
}

// column is an index into a sample.
type column int

// The columns of a sample. Samples are stored as arrays in this order, so new columns go to the
// end.
const (
	at            column = iota // end of the sample, Unix seconds
	span                        // length of the sample in seconds
	requests                    // number of requests under /v1
	failed                      // responses with status 5xx
	refused                     // responses with status 4xx other than 429
	limited                     // responses with status 429
	published                   // published batches
	delivered                   // delivered batches, counted once per subscriber
	received                    // bytes of requests
	sent                        // bytes of responses and subscriptions
	subscribers                 // subscriptions that are open at the end of the sample
	syncMedian                  // p50 of disk syncs, milliseconds
	syncSlow                    // p99 of disk syncs, milliseconds
	diskUsed                    // bytes at the end of the sample
	diskFree                    // bytes at the end of the sample
	publishMedian               // p50 of the time to publish, milliseconds; 0 if unknown (here and in the next three columns)
	publishSlow                 // p99 of the time to publish, milliseconds
	delayMedian                 // p50 of the time from publish to delivery, milliseconds
	delaySlow                   // p99 of the time from publish to delivery, milliseconds
	columns
)

// columnNames are the names of the columns in the JSON that scripts read.
var columnNames = [columns]string{"at", "span", "requests", "failed", "refused", "limited", "published", "delivered", "received",
	"sent", "subscribers", "sync_median", "sync_slow", "disk_used", "disk_free",
	"publish_median", "publish_slow", "delay_median", "delay_slow"}

// isCount reports whether a column counts events in the span of the sample. Such a column is shown
// as a rate per second.
func (c column) isCount() bool { return c >= requests && c <= sent }

// isTime reports whether a column is a quantile of durations. 0 then means that nothing was
// measured.
func (c column) isTime() bool {
	return c == syncMedian || c == syncSlow || c >= publishMedian && c <= delaySlow
}

// sample holds the figures of one span of time.
type sample [columns]float64

// counts is a snapshot of the counters of the API, the hub and the store.
type counts struct {
	taken  time.Time
	sample sample // counts since the server started; subscribers and disk figures are current values

	syncs, publishes, delays meter.Distribution
}

// readCounts takes a snapshot.
func readCounts(now time.Time, a api.Stats, h hub.Stats, s Store) counts {
	c := counts{taken: now, syncs: s.Syncs, publishes: a.Publishes, delays: h.Delays}
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

// since returns the sample for the time between an earlier snapshot and this one. If a count went
// down, the sample has 0 for it.
func (c *counts) since(before *counts) sample {
	s := c.sample
	s[at] = float64(c.taken.Unix())
	s[span] = max(c.taken.Sub(before.taken).Seconds(), 0.001)
	for i := range columns {
		if i.isCount() {
			s[i] = max(s[i]-before.sample[i], 0)
		}
	}
	s[syncMedian], s[syncSlow] = quantiles(c.syncs, &before.syncs)
	s[publishMedian], s[publishSlow] = quantiles(c.publishes, &before.publishes)
	s[delayMedian], s[delaySlow] = quantiles(c.delays, &before.delays)
	return s
}

// quantiles returns p50 and p99 of what was measured since an earlier snapshot, in milliseconds.
func quantiles(now meter.Distribution, before *meter.Distribution) (median, slow float64) {
	for i := range now.Counts {
		now.Counts[i] -= min(before.Counts[i], now.Counts[i])
	}
	return quantile(&now, 0.5) / 1e6, quantile(&now, 0.99) / 1e6
}

// quantile estimates the q-quantile of a distribution, assuming values are spread evenly within
// each bucket. It returns 0 for an empty distribution.
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

// There are two rings of samples: a fine one for the last hour and a coarse one for the last day.
const (
	fineEvery   = 10 * time.Second
	fineKept    = 360
	coarseEvery = time.Minute
	coarseKept  = 1440
)

// figures holds the samples and the request counts of keys.
type figures struct {
	mu     sync.Mutex
	fine   ring
	coarse ring
	usage  usage
}

// ring holds the latest samples, oldest first.
type ring struct {
	every   time.Duration // time between samples
	kept    int           // maximum number of samples
	last    counts        // snapshot at the end of the newest sample
	samples []sample
}

// take adds a sample if one is due, and reports whether it added one.
func (r *ring) take(c *counts) bool {
	if r.last.taken.IsZero() {
		r.last = *c
		return false
	}
	if c.taken.Sub(r.last.taken) < r.every-r.every/20 { // tolerates ticks that come slightly early
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

// between returns the samples of a period that ends now, oldest first. The parameter back is the
// length of the period. If it is an hour or less, the samples come from the fine ring. For the time
// before the first sample of that ring, for example after a restart, they come from the coarse
// ring.
func (f *figures) between(now time.Time, back time.Duration) []sample {
	from := float64(now.Add(-back).Unix())
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []sample
	upTo := float64(now.Unix()) + 1
	if back <= time.Hour && len(f.fine.samples) > 0 {
		upTo = f.fine.samples[0][at] - f.fine.samples[0][span] // coarse samples cover the time before the first fine one
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

// total returns the sum of a column.
func total(list []sample, c column) float64 {
	n := 0.0
	for i := range list {
		n += list[i][c]
	}
	return n
}

// usage counts the requests of each key per hour.
type usage struct {
	last  map[string]uint64           // totals since the server started, as of the last call of take
	hours map[int64]map[string]uint64 // by Unix hour, then by key ID
}

// take adds the requests since its last call to the current hour, and drops hours older than a day.
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

// keyUse returns the number of requests of each key in the last 24 hours, accurate to the hour.
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
