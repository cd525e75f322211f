package journal

import (
	"sync/atomic"
	"time"

	"weir/internal/meter"
)

// counters count what the journal did since it was opened. The fields have the meaning of the
// fields of Stats with similar names. A group is the set of records that one write and one sync
// make durable.
type counters struct {
	groups  atomic.Uint64
	records atomic.Uint64
	bytes   atomic.Uint64
	syncing atomic.Int64 // in nanoseconds
	copied  atomic.Uint64
	freed   atomic.Uint64 // number of segments freed
	sizes   meter.Histogram
	syncs   meter.Histogram
}

func (c *counters) group(records, bytes int, took time.Duration) {
	c.groups.Add(1)
	c.records.Add(uint64(records))
	c.bytes.Add(uint64(bytes))
	c.syncing.Add(int64(took))
	c.sizes.Observe(&meter.Sizes, int64(records), 1)
	c.syncs.Observe(&meter.Latencies, int64(took), 1)
}

// appended returns the number of bytes written, without the copies that the reclaimer made. (To
// free a segment, the reclaimer first copies its needed records to another segment.)
func (c *counters) appended() uint64 { return c.bytes.Load() - c.copied.Load() }

// Stats describes what the journal has done since it was opened, and what it stores now.
type Stats struct {
	Groups   uint64        // groups written; each is one write and one sync
	Records  uint64        // records in those groups
	Bytes    uint64        // bytes of those groups
	Syncing  time.Duration // sum over those groups: time from handing the group to the writer until its records could be acknowledged
	Copied   uint64        // bytes copied by the reclaimer
	Freed    uint64        // segments freed by the reclaimer
	Segments int           // segment files, including ready (prepared) and dead (freed) ones
	Disk     int64         // size of all segment files in bytes
	Live     int64         // bytes of records that are still needed
	Used     int           // segment files that hold records
	Saved    int64         // bytes by which compression makes the segment files smaller
	Scrub    Scrub

	Sizes meter.Distribution // records per group
	Syncs meter.Distribution // nanoseconds from handing a group to the writer until its records could be acknowledged
}

// Stats returns the current statistics.
func (j *Journal) Stats() Stats {
	s := Stats{
		Groups: j.counts.groups.Load(), Records: j.counts.records.Load(), Bytes: j.counts.bytes.Load(),
		Syncing: time.Duration(j.counts.syncing.Load()), Copied: j.counts.copied.Load(),
		Freed: j.counts.freed.Load(), Scrub: j.scrub.progress(),
	}
	s.Sizes.Add(&j.counts.sizes)
	s.Syncs.Add(&j.counts.syncs)
	all := j.store.allSegments()
	for _, seg := range all {
		s.Live += seg.live.Load()
		s.Saved += j.dir.Size - seg.Stored()
	}
	s.Used = len(all)
	s.Segments = len(all) + j.prepare.files()
	if j.reclaim.building.Load() > 0 {
		s.Segments++
	}
	s.Disk = int64(s.Segments)*j.dir.Size - s.Saved
	return s
}

// Ready returns the number of segments that are prepared for use after the active one.
func (j *Journal) Ready() int {
	j.prepare.mu.Lock()
	defer j.prepare.mu.Unlock()
	return len(j.prepare.ready)
}
