package segments

import (
	"errors"
	"io"

	"weir/internal/engine"
	"weir/internal/engine/journal/blocks"
)

// copier copies one segment, group by group. (A group is the records of one write.)
type copier struct {
	seg    *Segment
	w      io.Writer
	report func(error) // called with each damage
	buf    []byte      // memory for copyStep bytes
	bad    int64       // end of the unreadable part that was reported last
	seen   int         // number of damages and unreadable parts so far
}

// Part says how much of a segment to copy.
type Part struct {
	End  int64  // unsealed segment: copy up to this offset; sealed segment: 0, copy the whole file
	Next uint64 // unsealed segment: number of the next group, with the bit FinalMark if the segment is full
	Raw  bool   // the journal is damaged: if this segment has no index, copy the whole file unchecked
}

// Copy writes the segment to w. It checks every record while it copies. It writes damaged data
// unchanged, and zeros in place of unreadable data, and reports both. It returns the error of w, or
// engine.ErrClosed. If the segment is whole, Copy allocates little, however large the segment is.
func (s *Segment) Copy(w io.Writer, p Part, report func(error)) error {
	buf, free := Buffer(copyStep)
	defer free()
	if x := s.Packed(); x != nil {
		return s.copyPacked(x, buf, w, report)
	}
	c := copier{seg: s, w: w, report: report, buf: buf, bad: -1}
	return c.run(p)
}

// copyPacked copies the stored blocks of a segment, and then checks its content. If the content is
// damaged, copyPacked reports only the damage to the content. Otherwise a block that cannot be read
// would be reported twice.
func (s *Segment) copyPacked(x *blocks.File, buf []byte, w io.Writer, report func(error)) error {
	size, err := x.File.Size()
	if err != nil {
		return err
	}
	var stored, content []error
	file := copier{
		seg: &Segment{Name: s.Name, File: x.File}, w: w, report: func(err error) { stored = append(stored, err) }, buf: buf, bad: -1,
	}
	if err := file.raw(0, size); err != nil {
		return err
	}
	if err := x.Fault(); err != nil {
		content = append(content, s.Damage(size, "table of blocks", err))
	}
	c := copier{seg: s, w: io.Discard, report: func(err error) { content = append(content, err) }, buf: buf, bad: -1}
	if err := c.run(Part{}); err != nil {
		return err
	}
	if len(content) == 0 {
		content = stored
	}
	for _, err := range content {
		report(err)
	}
	return nil
}

// copyStep is the number of bytes copied at once in parts that are not checked.
const copyStep = LongRun

// run copies the segment. It checks the groups if it knows where they end. Everything else is
// copied unchecked.
func (c *copier) run(p Part) error {
	block, size, end := c.buf[:DataStart], c.seg.size, p.End
	if err := c.read(block, 0); err != nil {
		return err
	}
	if err := checkHeader(block, c.seg.Seed, c.seg.Number, size); err != nil && c.seen == 0 {
		c.damaged(0, "segment header", err)
	}
	if end > 0 { // unsealed segment: in the copy, the watermark says that all groups were synced
		clear(block[headerSize:])
		copy(block[watermarkOffset:], encodeWatermark(c.seg.Seed, end, p.Next))
	}
	if _, err := c.w.Write(block); err != nil {
		return err
	}
	if end > 0 {
		return c.groups(end)
	}
	f, err := c.seg.whole()
	if err == nil {
		err = c.index(&f)
	}
	if p.Raw && errors.Is(err, ErrChecksum) {
		return c.raw(DataStart, size)
	}
	if err != nil {
		return c.unchecked(DataStart, size, size-footerSize, "footer", err)
	}
	if err := c.groups(f.end); err != nil {
		return err
	}
	clear(c.buf) // zeros replace the previous content of a recycled file
	for n := f.unused() - f.end; n > 0; n -= copyStep {
		if _, err := c.w.Write(c.buf[:min(n, copyStep)]); err != nil {
			return err
		}
	}
	return c.raw(f.unused(), size)
}

// index checks the index, which ends at the footer.
func (c *copier) index(f *footer) error {
	sum, end := c.seg.Seed, c.seg.size-footerSize
	for off := f.index; off < end; off += copyStep {
		b := c.buf[:min(copyStep, end-off)]
		if err := c.seg.Read(b, off); err != nil {
			return err
		}
		sum = Sum(sum, b)
	}
	if sum != f.indexSum {
		return c.seg.Damage(f.index, "index", ErrChecksum)
	}
	return nil
}

// groups copies and checks the groups up to the offset end. A damaged group is copied unchanged.
func (c *copier) groups(end int64) error {
	for g := range groups(c.seg.Read, c.seg.Seed, DataStart, end) {
		var err error
		switch {
		case g.err == nil:
			_, err = c.w.Write(g.b)
		case g.b == nil:
			err = c.unchecked(g.off, end, g.bad, "group", g.err)
		default:
			err = c.unchecked(g.off, g.off+int64(g.length), g.bad, "record", g.err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unchecked copies a part that could not be checked because of the error in the parameter why. It
// reports the damage at offset off, where the part of the format named by the parameter what
// belongs. If why is a read error, raw() reports which data is unreadable. If raw() can now read
// everything, unchecked reports the attempt that failed.
func (c *copier) unchecked(from, to, off int64, what string, why error) error {
	seen := c.seen
	if errors.Is(why, ErrChecksum) || why == errShort {
		c.damaged(off, what, why)
	}
	if err := c.raw(from, to); err != nil {
		return err
	}
	if c.seen == seen {
		c.damaged(off, what, why)
	}
	return nil
}

// raw copies data that needs no check or cannot be checked.
func (c *copier) raw(from, to int64) error {
	for from < to {
		b := c.buf[:min(copyStep, to-from)]
		if err := c.read(b, from); err != nil {
			return err
		}
		if _, err := c.w.Write(b); err != nil {
			return err
		}
		from += int64(len(b))
	}
	return nil
}

// read fills b as far as the disk can be read. Unreadable data becomes zeros. Each unreadable part
// is reported once, and so is an attempt that failed although the next one succeeded.
func (c *copier) read(b []byte, off int64) error {
	seen := c.seen
	err := c.seg.readable(b, off, func(from, to int64, err error) {
		if c.seen++; from > c.bad {
			c.damaged(from, "data", err)
		}
		c.bad = max(c.bad, (to+sector-1)/sector*sector)
	})
	if errors.Is(err, engine.ErrClosed) {
		return err
	}
	if err != nil && c.seen == seen {
		c.damaged(off, "data", err)
	}
	return nil
}

func (c *copier) damaged(off int64, what string, err error) {
	c.seen++
	if d, ok := errors.AsType[*DamageError](err); ok {
		off, what, err = d.Offset, d.What, d.Err
	}
	c.report(c.seg.Damage(off, what, err))
}
