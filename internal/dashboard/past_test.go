package dashboard

import (
	"fmt"
	"testing"
	"time"

	"weir"
)

// The memory for the plots of single streams and keys is bounded, even if others are active every
// minute. The newest and the busiest are kept.
func TestPastIsBounded(t *testing.T) {
	const most = 4000
	var p past
	start := time.Now().Truncate(daySlot).Unix()
	name := func(minute, i int) string { return fmt.Sprintf("%022d", minute*10_000+i) }
	minute := 0
	for ; minute < 5*60; minute++ {
		all := make([]record, 0, 701)
		for i := range 700 {
			all = append(all, record{id: idOf(name(minute, i)), did: [4]float32{1}})
		}
		all = append(all, record{id: idOf("always"), did: [4]float32{10, 1, 2, 3}})
		p.add(slot{start + int64(60*(minute+1)), 60, all}, most)
	}
	for what, l := range map[string]*slots{"hour": &p.hour, "day": &p.day} {
		n := 0
		for _, s := range l.list {
			n += len(s.records)
		}
		if n != l.records || n > most || n < most/2 {
			t.Errorf("%s: %d records, counted as %d; want at most %d", what, n, l.records, most)
		}
		list := l.samples(idOf("always"), 0)
		if s := list[len(list)-1]; s[requests]/s[span] != 10./60 || s[refused]/s[span] != 1./60 || s[received] == 0 {
			t.Errorf("%s: the newest sample is %v", what, s)
		}
	}
	if s := p.hour.samples(idOf(name(minute-1, 5)), 0); s[len(s)-1][requests] != 1 || s[0][requests] != 0 {
		t.Errorf("samples of a key that was used in the last minute: %v", s)
	}
	crowd := make([]record, 0, 10_000)
	for i := range 10_000 {
		crowd = append(crowd, record{id: idOf(name(minute, i)), did: [4]float32{float32(i)}})
	}
	p.add(slot{start + int64(60*(minute+1)), 60, crowd}, most)
	if s := p.hour.samples(idOf(name(minute, 9999)), 0); s[len(s)-1][requests] != 9999 || p.hour.records > most {
		t.Errorf("the busiest key of a crowd has %v requests; %d records", s[len(s)-1][requests], p.hour.records)
	}
}

// Slots older than an hour or a day are dropped, and the slots of a day keep the totals.
func TestPastEnds(t *testing.T) {
	var p past
	start := time.Now().Truncate(daySlot).Unix()
	for minute := range 25 * 60 {
		p.add(slot{start + int64(60*(minute+1)), 60, []record{{id: idOf("a"), did: [4]float32{2}}}}, maxRecords)
	}
	hour, day := p.hour.samples(idOf("a"), 0), p.day.samples(idOf("a"), 0)
	if len(hour) != 60 || total(hour, requests) != 120 || len(day) != 96 || total(day, requests) != 2*24*60 || total(day, span) != 24*3600 {
		t.Errorf("%d samples with %v requests in the hour, %d with %v in the day", len(hour), total(hour, requests), len(day), total(day, requests))
	}
	if s := p.hour.samples(idOf("b"), 0); len(s) != 60 || total(s, requests) != 0 {
		t.Errorf("a key that did nothing has %d samples with %v requests", len(s), total(s, requests))
	}
	created := weir.TimeOf(time.Unix(start, 0).Add(24*time.Hour + 40*time.Minute))
	if s := p.hour.samples(idOf("a"), created); len(s) != 20 {
		t.Errorf("%d samples since 20 minutes ago, want 20", len(s))
	}
}
