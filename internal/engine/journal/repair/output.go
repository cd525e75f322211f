package repair

import (
	"encoding/binary"
	"fmt"

	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/segments"
)

// output writes the new segments of a repair. Each begins with a manifest (a list of the segments of
// the new journal). All new segments are sealed. After a crash, the journal ignores unfinished
// segments, so a segment need not be synced before the last step, which is sealing.
type output struct {
	dir      *directory.Directory
	kept     []uint64          // numbers of the segments that belong to the new journal
	seg      *segments.Segment // the segment that is being written; nil before the first record
	number   uint64            // number of seg; before the first record, the highest number in use
	group    segments.GroupBuffer
	next     uint64  // number of the next group
	revision *uint64 // next revision
}

// rewriteStep is the number of bytes that a repair writes at once.
const rewriteStep = 1 << 20

// add writes a record. The record must not change afterwards.
func (o *output) add(r *segments.Record) error {
	if o.seg == nil || !o.seg.Fits(r.Size()+segments.KeyRoom, 1, 0) {
		if err := o.begin(); err != nil {
			return err
		}
		if !o.seg.Fits(r.Size()+segments.KeyRoom, 1, 0) {
			return fmt.Errorf("%d bytes do not fit in a segment", r.Size())
		}
	}
	if o.group.Add(o.seg, r); o.group.Length >= rewriteStep {
		return o.flush()
	}
	return nil
}

// begin seals the current segment and continues in the next one.
func (o *output) begin() error {
	if err := o.seal(); err != nil {
		return err
	}
	o.number++
	f, err := o.dir.FS.Create(segments.Name(o.number))
	if err != nil {
		return fmt.Errorf("create %s: %w", segments.Name(o.number), err)
	}
	o.seg = new(segments.Segment)
	o.seg.Init(f, o.dir.Salt, o.number, o.dir.Size)
	if err := f.WriteAt(0, o.seg.Header(o.dir.Salt)); err != nil {
		return fmt.Errorf("write %s: %w", o.seg.Name, err)
	}
	o.kept = append(o.kept, o.number)
	var list []byte
	for _, n := range o.kept {
		list = binary.LittleEndian.AppendUint64(list, n)
	}
	o.group.Begin()
	o.group.Add(o.seg, &segments.Record{Kind: segments.KindManifest, Seq: *o.revision, Payload: list, PayloadSum: segments.Sum(0, list)})
	return nil
}

// flush writes the collected records.
func (o *output) flush() error {
	if o.group.Records == 0 {
		return nil
	}
	if err := o.seg.File.WriteAt(o.group.Off, o.group.Buffers(o.seg.Seed, o.next)...); err != nil {
		return fmt.Errorf("write %s: %w", o.seg.Name, err)
	}
	o.next++
	o.group.Begin()
	return nil
}

// seal completes the current segment, if there is one.
func (o *output) seal() error {
	if o.seg == nil {
		return nil
	}
	for _, step := range []func() error{o.flush, o.seg.Fill, func() error { return o.seg.Seal(o.next, nil) }} {
		if err := step(); err != nil {
			return err
		}
	}
	return o.seg.File.Close()
}

// finish writes what is left. Even if there are no records to write, it writes one segment, because
// its manifest must no longer list the replaced segments.
func (o *output) finish() error {
	if o.seg == nil {
		if err := o.begin(); err != nil {
			return err
		}
	}
	return o.seal()
}

// close closes the file of the current segment, which may be closed already.
func (o *output) close() {
	if o.seg != nil {
		o.seg.File.Close()
	}
}

// ending returns where the new journal ends.
func (o *output) ending() directory.Ending {
	return directory.Ending{Segment: o.number, Offset: o.seg.End, Group: o.next}
}
