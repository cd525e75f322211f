package stream

import (
	"slices"
	"sort"

	"weir"
)

// gaps are the missing sequences between the low mark and the cursor, as ranges.
//
// All closed ranges lie below all open ones: a gap opens above the cursor, so above every other; the moments since
// which gaps are open never decrease along the sequences, so those whose grace is over come first, and a marker
// closes every gap up to its own sequence. Two slices say that better than a flag in one, and make the lowest open gap
// the first element of the second however many closed ones are kept.
type gaps struct {
	closed []gap // since is not used
	open   []gap
}

// gap is the range of missing sequences from..to, inclusive.
type gap struct {
	from, to weir.Seq
	since    weir.Time // the grace of D4 runs from here
}

// filling is what there is at a sequence between the low mark and the cursor.
type filling uint8

const (
	filled filling = iota // a batch
	open                  // nothing yet
	closed                // nothing, for good
)

// looked, when set, is told of every gap that is looked at or moved: a test holds the cost of operations with it,
// because a clock could not.
var looked func(n int)

func look(n int) {
	if looked != nil {
		looked(n)
	}
}

// search returns the index of the first range that reaches up to seq or beyond.
func search(ranges []gap, seq weir.Seq) int {
	return sort.Search(len(ranges), func(i int) bool {
		look(1)
		return ranges[i].to >= seq
	})
}

// at tells what there is at seq.
func (g *gaps) at(seq weir.Seq) filling {
	if i := search(g.open, seq); i < len(g.open) && g.open[i].from <= seq {
		return open
	}
	if i := search(g.closed, seq); i < len(g.closed) && g.closed[i].from <= seq {
		return closed
	}
	return filled
}

// firstOpen is the lowest open gap.
func (g *gaps) firstOpen() (gap, bool) {
	if len(g.open) == 0 {
		return gap{}, false
	}
	return g.open[0], true
}

// add opens a gap above all others.
func (g *gaps) add(from, to weir.Seq, since weir.Time) {
	g.open = append(g.open, gap{from, to, since})
}

// fill takes seq out of its open gap. A gap that is split keeps its moment on both sides: what is still missing has
// been waited for as long as before.
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
		above := gap{seq + 1, f.to, f.since}
		f.to = seq - 1
		look(len(g.open) - i)
		g.open = slices.Insert(g.open, i+1, above)
	}
}

// close closes everything that is missing up to through.
func (g *gaps) close(through weir.Seq) {
	n := search(g.open, through+1)
	look(n)
	for _, o := range g.open[:n] {
		g.closeRange(o.from, o.to)
	}
	g.open = release(g.open, n)
	if len(g.open) > 0 && g.open[0].from <= through {
		g.closeRange(g.open[0].from, through)
		g.open[0].from = through + 1
	}
}

// closeRange puts a range above all closed ones, and makes one of two that touch.
func (g *gaps) closeRange(from, to weir.Seq) {
	if n := len(g.closed); n > 0 && g.closed[n-1].to+1 == from {
		g.closed[n-1].to = to
		return
	}
	g.closed = append(g.closed, gap{from: from, to: to})
}

// drop forgets everything below low. No range straddles it: just below it was a batch.
func (g *gaps) drop(low weir.Seq) {
	g.closed = release(g.closed, search(g.closed, low))
	g.open = release(g.open, search(g.open, low))
}

// release cuts off the first n ranges. Their memory comes back when the last one goes, or when the slice next grows.
func release(ranges []gap, n int) []gap {
	if n == len(ranges) {
		return nil
	}
	return ranges[n:]
}

// rewind starts the grace of gaps anew that seem to be open since a moment to come: the clock stepped back, and
// otherwise subscribers would wait until it is where it was.
func (g *gaps) rewind(now weir.Time) {
	for i := len(g.open) - 1; i >= 0 && g.open[i].since > now; i-- {
		look(1)
		g.open[i].since = now
	}
}

// Range is a range of sequences, inclusive.
type Range struct{ First, Last weir.Seq }

// Missing is what is missing between the low mark and the cursor, as far as the last most ranges of each sort: open gaps,
// which can still be filled, and closed ones. all is how many sequences are missing or lost altogether.
func (s *State) Missing(most int) (open, closed []Range, all uint64) {
	open, n := ranges(s.gaps.open, most)
	closed, m := ranges(s.gaps.closed, most)
	_, lost := ranges(s.lost, 0)
	return open, closed, n + m + lost
}

func ranges(gaps []gap, most int) (list []Range, all uint64) {
	for i, g := range gaps {
		all += uint64(g.to-g.from) + 1
		if i >= len(gaps)-most {
			list = append(list, Range{g.from, g.to})
		}
	}
	return list, all
}
