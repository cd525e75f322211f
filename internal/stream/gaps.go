package stream

import (
	"slices"
	"sort"

	"weir"
)

// gaps are the missing sequences between the low mark and the cursor, as ranges.
//
// All closed ranges lie below all open ones, for three reasons. A new gap opens above the cursor,
// and so above every other gap. The grace of a higher gap never starts before the grace of a lower
// gap, so the gaps whose grace has ended are the lowest. And a marker, the log entry that closes
// gaps, closes every gap up to its own sequence.
//
// So the gaps are kept in two slices. The lowest open gap is always open[0], however many closed
// gaps there are.
type gaps struct {
	closed []gap // their graceStart is not used
	open   []gap
}

// gap is the range of missing sequences from..to, inclusive.
type gap struct {
	from, to   weir.Seq
	graceStart weir.Time // start of the grace period (D4)
}

// filling says what a sequence between the low mark and the cursor holds.
type filling uint8

const (
	filled filling = iota // a batch
	open                  // nothing yet
	closed                // nothing, permanently
)

// looked, if set, is called with the number of gaps or producers that an operation examines or
// moves. Tests use it to check the cost of operations, because measured times vary too much.
var looked func(n int)

func look(n int) {
	if looked != nil {
		looked(n)
	}
}

// search returns the index of the first range that ends at or above seq.
func search(ranges []gap, seq weir.Seq) int {
	return sort.Search(len(ranges), func(i int) bool {
		look(1)
		return ranges[i].to >= seq
	})
}

// at returns what the sequence seq holds.
func (g *gaps) at(seq weir.Seq) filling {
	if i := search(g.open, seq); i < len(g.open) && g.open[i].from <= seq {
		return open
	}
	if i := search(g.closed, seq); i < len(g.closed) && g.closed[i].from <= seq {
		return closed
	}
	return filled
}

// firstOpen returns the lowest open gap.
func (g *gaps) firstOpen() (gap, bool) {
	if len(g.open) == 0 {
		return gap{}, false
	}
	return g.open[0], true
}

// add opens a gap. The new gap must lie above all others.
func (g *gaps) add(from, to weir.Seq, graceStart weir.Time) {
	g.open = append(g.open, gap{from, to, graceStart})
}

// fill removes seq from its open gap. If that splits the gap, both parts keep the start of the
// grace period, because the remaining sequences have been missing for just as long as before.
func (g *gaps) fill(seq weir.Seq) {
	i := search(g.open, seq)
	switch f := &g.open[i]; {
	case f.from == f.to && i == 0:
		g.open = release(g.open, 1)
	case f.from == f.to:
		look(len(g.open) - i)
		g.open = slices.Delete(g.open, i, i+1)
	case seq == f.from:
		f.from++
	case seq == f.to:
		f.to--
	default:
		above := gap{seq + 1, f.to, f.graceStart}
		f.to = seq - 1
		look(len(g.open) - i)
		g.open = slices.Insert(g.open, i+1, above)
	}
}

// close closes all missing sequences up to last, inclusive.
func (g *gaps) close(last weir.Seq) {
	n := search(g.open, last+1)
	look(n)
	for _, o := range g.open[:n] {
		g.closeRange(o.from, o.to)
	}
	g.open = release(g.open, n)
	if len(g.open) > 0 && g.open[0].from <= last {
		g.closeRange(g.open[0].from, last)
		g.open[0].from = last + 1
	}
}

// closeRange adds a closed range, which must lie above all other closed ranges. It merges ranges
// that touch.
func (g *gaps) closeRange(from, to weir.Seq) {
	if n := len(g.closed); n > 0 && g.closed[n-1].to+1 == from {
		g.closed[n-1].to = to
		return
	}
	g.closed = append(g.closed, gap{from: from, to: to})
}

// drop forgets all ranges below low. No range straddles low, because the sequence just below low
// held a batch.
func (g *gaps) drop(low weir.Seq) {
	g.closed = release(g.closed, search(g.closed, low))
	g.open = release(g.open, search(g.open, low))
}

// release removes the first n ranges. Their memory is freed when no range is left, or when the
// slice next grows.
func release(ranges []gap, n int) []gap {
	if n == len(ranges) {
		return nil
	}
	return ranges[n:]
}

// rewind restarts the grace of gaps whose grace seems to start in the future, because the clock has
// stepped back. Without rewind, subscribers would wait until the clock shows the old time again.
func (g *gaps) rewind(now weir.Time) {
	for i := len(g.open) - 1; i >= 0 && g.open[i].graceStart > now; i-- {
		look(1)
		g.open[i].graceStart = now
	}
}

// pause delays the grace of all open sequences from seq upwards by the time from pausedAt to now.
// If a gap opened after pausedAt, its whole grace starts at now. If a gap contains seq and begins
// below it, pause splits the gap, because the grace of the lower part was not paused.
func (g *gaps) pause(seq weir.Seq, pausedAt, now weir.Time) {
	if pausedAt >= now {
		return
	}
	i := search(g.open, seq)
	if i < len(g.open) && g.open[i].from < seq {
		below := g.open[i]
		below.to, g.open[i].from = seq-1, seq
		g.open = slices.Insert(g.open, i, below)
		i++
	}
	look(len(g.open) - i)
	for ; i < len(g.open); i++ {
		g.open[i].graceStart = min(g.open[i].graceStart, pausedAt) + now - pausedAt
	}
}

// Range is a range of sequences, inclusive.
type Range struct{ First, Last weir.Seq }

// Missing returns the gaps between the low mark and the cursor: open ones, which can still be
// filled, and closed ones. It returns at most limit open ranges and at most limit closed ranges,
// the highest ones. The result total is the number of all missing and lost sequences.
func (s *State) Missing(limit int) (open, closed []Range, total uint64) {
	open, n := ranges(s.gaps.open, limit)
	closed, m := ranges(s.gaps.closed, limit)
	_, lost := ranges(s.lost, 0)
	return open, closed, n + m + lost
}

func ranges(gaps []gap, limit int) (list []Range, total uint64) {
	for i, g := range gaps {
		total += uint64(g.to-g.from) + 1
		if i >= len(gaps)-limit {
			list = append(list, Range{g.from, g.to})
		}
	}
	return list, total
}
