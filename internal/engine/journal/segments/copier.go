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
}

// Part says how much of a segment to copy.
type Part struct {
	End  int64  // unsealed segment: copy up to this offset; sealed segment: 0, copy the whole file
	Next uint64 // unsealed segment: number of the next group, with the bit FinalMark if the segment is full
	Raw  bool   // the journal is damaged: if this segment has no index, copy the whole file unchecked
}

// Copy writes the segment to w. It checks every record while it copies. It writes damaged data
// unchanged, and zeros in place of unreadable data, and reports both. It returns the error of w, or
// engine.ErrClosed.
func (s *Segment) Copy(w io.Writer, p Part, report func(error)) error {
	if x := s.Packed(); x != nil {
		return s.copyPacked(x, w, report)
	}
	return (&copier{s, w, report}).run(p)
}

// copyPacked copies the stored blocks of a segment, and then checks its content.
func (s *Segment) copyPacked(x *blocks.File, w io.Writer, report func(error)) error {
	stored := &Segment{Name: s.Name, File: x.File}
	size, err := x.File.Size()
	if err != nil {
		return err
	}
	if err := (&copier{stored, w, report}).raw(0, size); err != nil {
		return err
	}
	if x.Fault() != nil {
		report(s.Damage(size, "table of blocks", x.Fault()))
	}
	return (&copier{s, io.Discard, report}).run(Part{})
}

// copyStep is the number of bytes copied at once in parts that are not checked.
const copyStep = 1 << 20

// run copies the segment. It checks the groups if it knows where they end. Everything else is
// copied unchecked.
func (c *copier) run(p Part) error {
	block, size, end := make([]byte, DataStart), c.seg.size, p.End
	if err := c.read(block, 0); err != nil {
		return err
	}
	if err := checkHeader(block, c.seg.Seed, c.seg.Number, size); err != nil {
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
	f, _, err := c.seg.footer()
	if err == nil {
		_, err = c.seg.Index()
	}
	if err != nil {
		if errors.Is(err, engine.ErrDamaged) && !p.Raw { // the method raw reports read errors
			c.report(err)
		}
		return c.raw(DataStart, size)
	}
	if err := c.groups(f.end); err != nil {
		return err
	}
	zeros := make([]byte, copyStep) // zeros replace the previous content of a recycled file
	for n := f.unused() - f.end; n > 0; n -= copyStep {
		if _, err := c.w.Write(zeros[:min(n, copyStep)]); err != nil {
			return err
		}
	}
	return c.raw(f.unused(), size)
}

// groups copies and checks the groups up to the offset end. A damaged group is copied unchanged.
func (c *copier) groups(end int64) error {
	for g := range groups(c.seg.Read, c.seg.Seed, DataStart, end) {
		var err error
		switch {
		case g.err == nil:
			_, err = c.w.Write(g.b)
		case g.b == nil:
			c.damaged(g.bad, "group", ErrChecksum)
			return c.raw(g.off, end)
		default:
			if errors.Is(g.err, ErrChecksum) || errors.Is(g.err, errShort) { // the method raw reports read errors
				c.damaged(g.bad, "record", g.err)
			}
			err = c.raw(g.off, g.off+int64(g.length))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// raw copies data that needs no check or cannot be checked.
func (c *copier) raw(from, to int64) error {
	buf := make([]byte, min(copyStep, max(to-from, 0)))
	for from < to {
		b := buf[:min(int64(len(buf)), to-from)]
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

// read fills b as far as the disk can be read. Unreadable data becomes zeros and is reported as
// damage.
func (c *copier) read(b []byte, off int64) error {
	at, err := c.seg.readable(b, off)
	if errors.Is(err, engine.ErrClosed) {
		return err
	}
	if err != nil {
		c.damaged(at, "data", err)
	}
	return nil
}

func (c *copier) damaged(off int64, what string, err error) {
	c.report(c.seg.Damage(off, what, err))
}
