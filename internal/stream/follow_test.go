package stream_test

import (
	"testing"
	"time"

	"weir"
	"weir/internal/stream"
)

// The grace of a gap that another process left runs from when this process learned of it, whatever
// the other clock says.
func TestGraceRunsByOwnClock(t *testing.T) {
	const begun = weir.Time(1_000_000)
	for name, off := range map[string]time.Duration{
		"other clock ahead": 3 * time.Second, "other clock behind": -3 * time.Second, "same clock": 0,
	} {
		t.Run(name, func(t *testing.T) {
			s := stream.New(stream.Rules{MaxBytes: 1 << 20, Retention: time.Hour, GapGrace: 2 * time.Second}, begun.Add(-time.Minute))
			now := begun
			for _, seq := range []weir.Seq{1, 5, 9} {
				s.Follow(stream.Header{Seq: seq, Time: now.Add(off), Size: 1}, now)
				if err := s.CheckInvariants(); err != nil {
					t.Fatal(err)
				}
				now = now.Add(time.Second)
			}
			// 2 to 4 have been missing since 1 s after begun, 6 to 8 since 2 s.
			for _, c := range []struct {
				after time.Duration
				last  weir.Seq // highest sequence that is due; 0: none
			}{{2900 * time.Millisecond, 0}, {3 * time.Second, 4}, {3900 * time.Millisecond, 4}, {4 * time.Second, 8}} {
				if m, due := s.Due(begun.Add(c.after), stream.NoneHeld); due != (c.last > 0) || m.Seq != c.last {
					t.Errorf("after %v: due %v, up to %d; want up to %d", c.after, due, m.Seq, c.last)
				}
			}
		})
	}
}
