package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"weir/internal/disk"
	"weir/internal/engine"
)

// Snapshot is everything that the journal held at one moment, as files that can be copied while the journal goes on:
// sealed segments never change, and of the active one only what was synced by then is taken. Their files are held
// until they are copied, or the snapshot is closed; nothing else waits for it.
type Snapshot struct {
	Format  string // what the file of this name holds
	j       *Journal
	parts   []part
	damages []error
	offline bool
}

// part is one segment of a snapshot.
type part struct {
	seg  *segment
	end  int64  // of the active segment: up to where it is taken; 0: sealed, and taken whole
	next uint64 // of the active segment: number of the next group
	torn bool   // a tail that is damaged: it is taken whole, and has no index
	held bool
}

// SnapshotFile is one file of a snapshot.
type SnapshotFile struct {
	Name string
	Size int64 // bytes that Copy writes; of the active segment what is missing at the end is zeros
}

// Snapshot takes a snapshot at a place in the committer's order: whatever was durable before the call is in it. It also
// works when the journal is read-only since a write failed.
func (j *Journal) Snapshot(ctx context.Context) (*Snapshot, error) {
	o := &snapshotOp{j: j, done: make(chan error, 1)}
	j.do(o)
	select {
	case err := <-o.done:
		return o.snap, err
	case <-ctx.Done():
		go func() { // the committer still has the op
			if <-o.done == nil {
				o.snap.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// OpenSnapshot takes a snapshot of a journal that no server has open, also of one that is too damaged to be opened. It holds
// the lock until it is closed, and writes no more than any opening does.
func OpenSnapshot(fs disk.FS) (*Snapshot, error) {
	names, err := fs.List()
	if err != nil {
		return nil, fmt.Errorf("list the data directory: %w", err)
	}
	if !slices.Contains(names, formatFile) {
		return nil, fmt.Errorf("%w: there is no file %s", ErrForeign, formatFile)
	}
	j := newJournal(fs, Options{SegmentSize: defaultSegment})
	if err := j.recover(); err != nil {
		j.giveUp()
		if errors.Is(err, engine.ErrDamaged) {
			return damagedSnapshot(fs, err)
		}
		return nil, err
	}
	s := j.write.snapshot()
	s.offline = true
	return s, nil
}

// damagedSnapshot takes the segments that a check finds, as they are.
func damagedSnapshot(fs disk.FS, why error) (*Snapshot, error) {
	c, err := openCheckup(fs, CheckOptions{})
	if err != nil {
		return nil, errors.Join(why, err)
	}
	if err := errors.Join(c.openAll(), c.findEnd()); err != nil {
		c.close()
		return nil, errors.Join(why, err)
	}
	s := &Snapshot{j: c.j, Format: c.j.formatText(), offline: true, damages: []error{why}}
	for _, n := range c.numbers {
		seg := c.segments[n]
		if !slices.Contains(c.listed, n) {
			seg.file.Close()
			continue
		}
		p := part{seg: seg, held: true}
		if x := c.tailed; seg == c.tail && !x.sealed {
			if p.torn = len(x.holes) > 0; !p.torn {
				p.end, p.next = x.end, x.group+1
			}
		}
		c.j.store.addSegment(seg)
		seg.acquire()
		s.parts = append(s.parts, p)
	}
	return s, nil
}

// snapshotOp takes the snapshot when everything before it is durable.
type snapshotOp struct {
	j    *Journal
	snap *Snapshot
	done chan error
}

func (o *snapshotOp) bound() (int, int) { return 0, 0 }
func (o *snapshotOp) class() class      { return freeing }
func (o *snapshotOp) stage(*group)      {}
func (o *snapshotOp) settle(*group)     { o.snap = o.j.write.snapshot() }

// finish is called by the writer itself when a write failed: what was synced before can still be copied.
func (o *snapshotOp) finish(err error) {
	if errors.Is(err, engine.ErrReadOnly) {
		o.snap, err = o.j.write.snapshot(), nil
	}
	o.done <- err
}

// snapshot holds all segments as they are now. By the writer: segments are sealed and given up by nobody else. One that
// the committer has begun and nothing was written to is left out.
func (w *writer) snapshot() *Snapshot {
	s := &Snapshot{j: w.j, Format: w.j.formatText()}
	for _, seg := range w.j.store.allSegments() {
		p := part{seg: seg, held: true}
		if !seg.sealed.Load() {
			if seg != w.active {
				continue
			}
			p.end, p.next = w.synced, w.next
		}
		seg.acquire()
		s.parts = append(s.parts, p)
	}
	return s
}

// Files are the files of the snapshot, in order.
func (s *Snapshot) Files() []SnapshotFile {
	files := []SnapshotFile{{formatFile, int64(len(s.Format))}}
	for _, p := range s.parts {
		f := SnapshotFile{p.seg.name, s.j.size}
		if p.end > 0 {
			f.Size = p.end
		}
		files = append(files, f)
	}
	return files
}

// Copy writes one of the files, and then lets go of it. Every record is checked on its way; what does not check out is
// copied as it is and remembered for Damages, also where the disk cannot read it. An error is that of w, or
// engine.ErrClosed.
func (s *Snapshot) Copy(w io.Writer, i int) error {
	if i == 0 {
		_, err := io.WriteString(w, s.Format)
		return err
	}
	p := &s.parts[i-1]
	defer s.release(p)
	c := &copier{s: s, part: p, seg: p.seg, w: w}
	return c.run()
}

// Damages is what did not check out in the files copied so far.
func (s *Snapshot) Damages() []error { return s.damages }

func (s *Snapshot) release(p *part) {
	if p.held {
		p.held = false
		p.seg.release()
	}
}

// Close lets go of the files that were not copied.
func (s *Snapshot) Close() {
	for i := range s.parts {
		s.release(&s.parts[i])
	}
	if s.offline {
		s.offline = false
		s.j.giveUp()
	}
}

// copier copies one segment, group by group.
type copier struct {
	s    *Snapshot
	part *part
	seg  *segment
	w    io.Writer
	buf  []byte
}

// copyStep is how much is copied at once where there is nothing to check.
const copyStep = 1 << 20

func (c *copier) run() error {
	block := make([]byte, dataStart)
	size := c.s.j.size
	if err := c.read(block, 0); err != nil {
		return err
	}
	if err := checkHeader(block, c.seg.seed, c.seg.number, size); err != nil {
		c.damaged(0, "segment header", err)
	}
	if end := c.part.end; end > 0 { // the copy says that all of it was synced
		clear(block[headerSize:])
		copy(block[watermarkOffset:], encodeWatermark(c.seg.seed, end, c.part.next))
		if _, err := c.w.Write(block); err != nil {
			return err
		}
		return c.groups(end)
	}
	if _, err := c.w.Write(block); err != nil {
		return err
	}
	if c.part.torn {
		return c.raw(dataStart, size)
	}
	f, ok, err := c.seg.footer(size)
	if err == nil && ok {
		_, err = c.seg.index(size)
	} else if err == nil {
		err = c.seg.damage(size-footerSize, "footer", errChecksum)
	}
	if err != nil {
		if errors.Is(err, engine.ErrDamaged) { // what cannot be read is told of when it is copied
			c.s.damages = append(c.s.damages, err)
		}
		return c.raw(dataStart, size)
	}
	if err := c.groups(f.end); err != nil {
		return err
	}
	zeros := make([]byte, copyStep) // not what a recycled file held before
	for n := f.index - f.end; n > 0; n -= copyStep {
		if _, err := c.w.Write(zeros[:min(n, copyStep)]); err != nil {
			return err
		}
	}
	return c.raw(f.index, size)
}

// groups copies and checks the groups up to end.
func (c *copier) groups(end int64) error {
	for off := int64(dataStart); off < end; {
		var head [frameSize]byte
		f, ok := frame{}, c.seg.read(head[:], off) == nil
		if ok {
			f, ok = decodeFrame(head[:], c.seg.seed)
		}
		if !ok || f.length <= frameSize || off+int64(f.length) > end {
			c.damaged(off, "group", errChecksum)
			return c.raw(off, end)
		}
		if cap(c.buf) < f.length {
			c.buf = make([]byte, max(f.length, copyStep))
		}
		b := c.buf[:f.length]
		if err := c.read(b, off); err != nil {
			return err
		}
		if at, err := checkGroup(b, f, c.seg.seed); err != nil {
			c.damaged(off+int64(at), "record", err)
		}
		if _, err := c.w.Write(b); err != nil {
			return err
		}
		off += int64(f.length)
	}
	return nil
}

// checkGroup checks all records of a group, and returns where one is damaged.
func checkGroup(b []byte, f frame, seed uint32) (int, error) {
	off, count := frameSize, 0
	for ; off < len(b); count++ {
		var r record
		if err := r.decode(b[off:], seed); err != nil {
			return off, err
		}
		off += r.size()
	}
	if off != len(b) || count != f.count {
		return 0, errChecksum
	}
	return 0, nil
}

// raw copies what needs no check, or cannot be checked.
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

// read fills b as far as the disk gives it. What cannot be read is zeros in the copy, and told of.
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
	c.s.damages = append(c.s.damages, c.seg.damage(off, what, err))
}
