package stream_test

import (
	"testing"
	"time"

	"weir"
	"weir/internal/stream"
)

// The grace period of a gap is the time in which the gap can still be filled. If another process
// left the gap, the grace period starts when this process learns of the gap, by the clock of this
// process.
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
			// This process learned of the first gap (2 to 4) one second after the first batch, and
			// of the second gap (6 to 8) after another second. Due returns a marker (a log entry
			// that closes gaps) when a grace period has ended.
			for _, c := range []struct {
				after time.Duration
				last  weir.Seq // end of the last gap whose grace period has ended; 0 if none
			}{{2900 * time.Millisecond, 0}, {3 * time.Second, 4}, {3900 * time.Millisecond, 4}, {4 * time.Second, 8}} {
				if m, due := s.Due(begun.Add(c.after), stream.NoneHeld); due != (c.last > 0) || m.Seq != c.last {
					t.Errorf("%v after the start: Due returned %v and a marker up to %d, want a marker up to %d", c.after, due, m.Seq, c.last)
				}
			}
		})
	}
}
