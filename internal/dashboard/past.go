package dashboard

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"time"

	"weir"
	"weir/internal/access"
	"weir/internal/hub"
)

// pasts holds what single streams and single keys did in the last hour and the last day. It is kept
// in memory only, and begins when the server starts.
type pasts struct {
	mu      sync.Mutex
	taken   time.Time // end of the newest slots
	streams past
	keys    past
}

// past holds what each stream, or each key, did in the last hour and the last day. Its memory does
// not depend on the number of streams and keys.
type past struct {
	hour slots
	day  slots
}

// The lengths of slots. A minute is coarseEvery.
const daySlot = 15 * time.Minute

// maxRecords is the maximum number of records in each of the four lists of slots. So many records
// take 10 MB. If there are more, the oldest slots are dropped. With ten thousand streams to which
// clients publish all the time, the plot of an hour reaches back 25 minutes, and the plot of a day
// 6 hours.
const maxRecords = 250_000

// slots are consecutive spans of time, oldest first.
type slots struct {
	list    []slot
	records int // number of records in all slots
}

// slot has one record for each stream or key that did something in its time, sorted by id.
type slot struct {
	at      int64   // end of the slot, Unix seconds
	span    float64 // seconds that were counted
	records []record
}

// record is what one stream or key did in the time of a slot. It holds no pointers, so that the
// garbage collector need not look at the many records.
type record struct {
	id  recordID
	did [len(recordColumns)]float32
}

// recordID is the id of a stream or key, padded with zeros.
type recordID [22]byte

// recordColumns are the columns of a record.
var recordColumns = [...]column{requests, refused, published, received}

func idOf(text string) (id recordID) {
	copy(id[:], text)
	return id
}

func byID(a, b record) int { return bytes.Compare(a.id[:], b.id[:]) }

// take ends the current slot of a minute. It reads and resets the counters of all streams and keys.
func (p *pasts) take(now time.Time, h *hub.Hub, a *access.Access) {
	var streams, keys []record
	h.TakeWork(func(s *hub.Stream, batches, size uint64) {
		streams = append(streams, streamRecord(s, batches, size))
	})
	a.TakeWork(func(id string, w access.Work) { keys = append(keys, keyRecord(id, w)) })
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.taken.IsZero() {
		passed := max(now.Sub(p.taken).Seconds(), 0.001)
		p.streams.add(slot{now.Unix(), passed, streams}, maxRecords)
		p.keys.add(slot{now.Unix(), passed, keys}, maxRecords)
	}
	p.taken = now
}

func streamRecord(s *hub.Stream, batches, size uint64) record {
	return record{idOf(string(s.ID)), [...]float32{0, 0, float32(batches), float32(size)}}
}

func keyRecord(id string, w access.Work) record {
	return record{idOf(id), [...]float32{float32(w.Requests), float32(w.Refused), float32(w.Batches), float32(w.Bytes)}}
}

// add adds the slot of a minute. If the slot has more than most/4 records, add keeps only those of
// the busiest streams or keys, so that there is always room for several slots.
func (p *past) add(s slot, most int) {
	if len(s.records) > most/4 {
		busy := func(r record) float32 { return r.did[0] + r.did[2] }
		slices.SortFunc(s.records, func(a, b record) int { return cmp.Compare(busy(b), busy(a)) })
		s.records = slices.Clone(s.records[:most/4])
	}
	slices.SortFunc(s.records, byID)
	p.hour.list, p.hour.records = append(p.hour.list, s), p.hour.records+len(s.records)
	p.hour.trim(s.at-int64(time.Hour/time.Second), most)
	p.day.merge(s, most)
	p.day.trim(s.at-int64(24*time.Hour/time.Second), most)
}

// merge adds a slot to the newest slot if both are in the same interval of daySlot.
func (l *slots) merge(s slot, most int) {
	const interval = int64(daySlot / time.Second)
	n := len(l.list)
	if n == 0 || (l.list[n-1].at-1)/interval != (s.at-1)/interval {
		l.list, l.records = append(l.list, s), l.records+len(s.records)
		return
	}
	last := &l.list[n-1]
	before := len(last.records)
	last.at, last.span = s.at, last.span+s.span
	last.records = joined(last.records, s.records, most/4)
	l.records += len(last.records) - before
}

// joined merges two lists of records that are sorted by id, and adds up the records of the same id.
// It leaves out ids that only b has if the result would get longer than the parameter most.
func joined(a, b []record, most int) []record {
	both := make([]record, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && byID(a[0], b[0]) < 0:
			both, a = append(both, a[0]), a[1:]
		case len(a) == 0 || byID(b[0], a[0]) < 0:
			if len(both)+len(a) < most {
				both = append(both, b[0])
			}
			b = b[1:]
		default:
			sum := a[0]
			for i := range sum.did {
				sum.did[i] += b[0].did[i]
			}
			both, a, b = append(both, sum), a[1:], b[1:]
		}
	}
	return slices.Clone(both) // without the room for ids that both lists have
}

// trim drops the slots that ended before the given time, and the oldest slots as long as there are
// more records than the parameter most.
func (l *slots) trim(from int64, most int) {
	n := 0
	for n < len(l.list) && (l.list[n].at <= from || l.records > most) {
		l.records -= len(l.list[n].records)
		n++
	}
	l.list = slices.Delete(l.list, 0, n)
}

// samples returns the samples of one stream or key, oldest first. A slot without a record for it
// gives a sample of zeros. Slots that ended before the stream or key was created are left out,
// because a deleted stream may have had the same id.
func (l *slots) samples(id recordID, created weir.Time) []sample {
	want := record{id: id}
	list := make([]sample, 0, len(l.list)+1)
	for _, slot := range l.list {
		if slot.at <= created.Std().Unix() {
			continue
		}
		s := sample{at: float64(slot.at), span: slot.span}
		if i, ok := slices.BinarySearchFunc(slot.records, want, byID); ok {
			s.fill(slot.records[i])
		}
		list = append(list, s)
	}
	return list
}

func (s *sample) fill(r record) {
	for i, c := range recordColumns {
		s[c] = float64(r.did[i])
	}
}

// minCurrent is the shortest time since the last slot that is plotted. The rate of a shorter time
// would jump from one update to the next.
const minCurrent = 10 * time.Second

// samplesOf returns the samples of the last hour or day of one stream or key. The samples of an
// hour also include the time since the end of the last slot. The parameter current says what the
// stream or key has done in that time.
func (p *pasts) samplesOf(of *past, now time.Time, over string, created weir.Time, current record) []sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	if over == spanDay {
		return of.day.samples(current.id, created)
	}
	list := of.hour.samples(current.id, created)
	if passed := now.Sub(p.taken); passed >= minCurrent {
		s := sample{at: float64(now.Unix()), span: passed.Seconds()}
		s.fill(current)
		list = append(list, s)
	}
	return list
}
