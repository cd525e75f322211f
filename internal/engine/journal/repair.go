package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"

	"weir"
	"weir/internal/disk"
	"weir/internal/engine"
)

// RepairOptions are the options of a repair, in addition to those of a check.
type RepairOptions struct {
	CheckOptions
	// Aside returns the directory to which damaged files are copied before anything is changed.
	Aside func() (disk.FS, error)
	// Mend decides what a log needs to continue without its lost entries. It receives the log's low
	// (all entries below it are trimmed) and the note of the last trim, which is nil if it is lost.
	// It also receives the remaining entries, including those known to be lost, and the number of
	// further records that may be lost. It returns the new note of the log (nil: none) and entries,
	// marked Lost, for sequences that must not be used again.
	Mend func(d engine.Document, low weir.Seq, note []byte, entries iter.Seq[engine.Header], unknown int) ([]byte, []engine.Header, error)
	// Stale is called for every document that may have been changed or deleted by a record with
	// unknown content. It returns the value that the document gets, or nil to keep its value.
	Stale func(d engine.Document) ([]byte, error)
}

// Loss is an inclusive range of sequences of one log that a repair gave up.
type Loss struct {
	Document string   `json:"document"`
	From     weir.Seq `json:"from"`
	To       weir.Seq `json:"to"`
}

// Repair is the result of a repair.
type Repair struct {
	Before    *Report  `json:"before"`
	After     *Report  `json:"after"`
	Aside     []string `json:"aside"`     // files that were copied aside
	Losses    []Loss   `json:"losses"`    // sequences that are lost and will never be used again
	Documents []string `json:"documents"` // keys of lost documents; an empty string stands for a document whose key is lost too
}

// Lossless reports whether the repair has proof that nothing was lost.
func (r *Repair) Lossless() bool {
	gone := slices.ContainsFunc(r.Before.Damages, func(d Damage) bool { return d.Fate == Lost || d.Fate == Unknown })
	return !gone && len(r.Losses)+len(r.Documents)+r.Before.Orphans+r.Before.MayBeLost == 0
}

// RepairJournal checks a journal and takes its damaged segments out of service. It first copies the
// damaged files aside. Then it writes their valid records to new segments, with markers for lost
// entries. Until the very last write, Open refuses the journal as before, so an interrupted repair
// can be run again. An undamaged journal is left unchanged.
func RepairJournal(dir disk.FS, o RepairOptions) (*Repair, error) {
	c, err := openCheckup(dir, o.CheckOptions)
	if err != nil {
		return nil, err
	}
	defer c.close()
	before, err := c.run()
	if err != nil {
		return nil, err
	}
	p := &repair{checkup: c, o: o, result: Repair{Before: before, After: before, Losses: []Loss{}, Aside: []string{}, Documents: []string{}}}
	if len(c.holes) == 0 {
		return &p.result, nil
	}
	steps := []func() error{p.setAside, p.sealTail, p.rewrite, p.renew, p.mend, p.verify, p.finish, p.writeFiles, p.remove}
	if len(c.holes) == len(c.files) { // the segments are undamaged
		steps = []func() error{p.writeFiles}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	p.result.After, err = p.checkAgain()
	return &p.result, err
}

// checkAgain checks the repaired journal. The lock is still held.
func (p *repair) checkAgain() (*Report, error) {
	p.closeFiles()
	again := newJournal(p.j.fs, Options{SegmentSize: defaultSegment, Ahead: 1})
	if err := again.readFormat(); err != nil {
		return nil, err
	}
	c := newCheckup(again, p.o.CheckOptions)
	defer c.close()
	if err := c.readProof(); err != nil {
		return nil, err
	}
	return c.run()
}

// repair is a repair in progress: a check, and the segments written after it.
type repair struct {
	*checkup
	o      RepairOptions
	result Repair
	seg    *segment
	group  *group
	next   uint64 // number of the next group
	added  []uint64
}

// setAside copies every damaged file, and every file with entries of logs whose document is lost.
func (p *repair) setAside() error {
	numbers := slices.Collect(maps.Keys(p.harmed))
	for _, d := range p.lostDocs {
		p.result.Documents = append(p.result.Documents, d.key)
	}
	left := map[uint64]bool{}
	for id := range p.orphans {
		p.eachOrphan(id, func(it item) { left[uint64(it.place.segment)] = true })
	}
	numbers = slices.AppendSeq(numbers, maps.Keys(left))
	if len(numbers) == 0 {
		return nil
	}
	dir, err := p.o.Aside()
	if err != nil {
		return err
	}
	slices.Sort(numbers)
	for _, n := range slices.Compact(numbers) {
		if err := p.copyAside(dir, p.segments[n]); err != nil {
			return fmt.Errorf("set %s aside: %w", segmentName(n), err)
		}
		p.result.Aside = append(p.result.Aside, segmentName(n))
	}
	if err := p.copyFormatAside(dir); err != nil {
		return fmt.Errorf("set %s aside: %w", formatFile, err)
	}
	return dir.SyncDir()
}

// copyAside copies a segment file and syncs the copy.
func (p *repair) copyAside(dir disk.FS, s *segment) error {
	size, err := s.file.Size()
	if err != nil {
		return err
	}
	f, err := dir.Create(s.name)
	if err != nil {
		return err
	}
	defer f.Close()
	for off := int64(0); off < size; off += int64(len(p.buf)) {
		b := p.buf[:min(int64(len(p.buf)), size-off)]
		_, _ = s.readable(b, off) // unreadable sectors become zeros
		if err := f.WriteAt(off, b); err != nil {
			return err
		}
	}
	return f.SyncData()
}

// copyFormatAside copies the format file as well, because the segments cannot be read without the
// salt in it.
func (p *repair) copyFormatAside(dir disk.FS) error {
	f, err := dir.Create(formatFile)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.WriteAt(0, []byte(p.j.formatText())); err != nil {
		return err
	}
	return f.SyncData()
}

// sealTail seals the undamaged tail, and the segment before it if a crash left it unsealed, because the repair continues in a new
// segment after them.
func (p *repair) sealTail() error {
	p.next = max(p.j.end.latest.group, 1)
	if p.tailed != nil {
		p.next = max(p.next, p.tailed.group+1)
	}
	for _, x := range p.unsealed {
		if p.harmed[x.seg.number] != nil {
			continue
		}
		x.seg.slots, x.seg.count, x.seg.end = x.slots, x.records, x.end
		if err := x.seg.seal(p.j.size, x.group+1, once); err != nil {
			return err
		}
	}
	return nil
}

// rewrite writes the current records of the damaged segments to new segments: the valid records and
// the corrected ones.
func (p *repair) rewrite() error {
	if p.unknown > 0 {
		p.j.commit.next += max(1<<20, uint64(p.unknown)) // revisions used in the unknown data must not be reused
	}
	for _, n := range slices.Sorted(maps.Keys(p.harmed)) {
		x := p.harmed[n]
		w := &window{seg: x.seg}
		for b := x.slots; len(b) > 0; b = b[slotSize:] {
			sl := decodeSlot(b)
			if sl.kind == kindManifest {
				continue
			}
			r, err := w.record(sl)
			if err != nil {
				return err
			}
			if err := p.rewriteRecord(place{uint32(n), sl.off}, &r); err != nil {
				return err
			}
		}
		for _, h := range x.holes {
			if h.mended != nil && h.slot.kind != kindManifest {
				if err := p.rewriteRecord(place{uint32(n), h.slot.off}, h.mended); err != nil {
					return err
				}
			}
		}
	}
	return p.writeDeletions()
}

// rewriteRecord writes a record again if it is current.
func (p *repair) rewriteRecord(at place, r *record) error {
	if !p.j.store.current(at, r) {
		return nil
	}
	return p.add(r)
}

// writeDeletions writes a deletion for every lost document of which an older state remains.
// Otherwise the next opening would use the older state.
func (p *repair) writeDeletions() error {
	for _, d := range p.lostDocs {
		if _, ok := p.first[d.key]; !ok || d.key == "" {
			continue
		}
		r := &record{kind: kindDeleted, log: d.created, seq: p.j.commit.next, key: d.key, count: uint32(p.numbers[len(p.numbers)-1]), payloadSum: sum(0, nil)}
		p.j.commit.next++
		if err := p.add(r); err != nil {
			return err
		}
	}
	return nil
}

// mend writes a marker for every lost entry, and the note and entries that the Mend callback
// returns.
func (p *repair) mend() error {
	lost := map[uint64][]*hole{}
	for _, h := range p.holes {
		if h.known && !h.frame && h.mended == nil && p.fate(h) == Lost {
			lost[h.slot.log] = append(lost[h.slot.log], h)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.docs)) {
		d := p.docs[key]
		id := uint64(d.Created)
		if lost[id] == nil && p.unknown == 0 {
			continue
		}
		l := p.log(id)
		var entries []engine.Header
		for _, h := range lost[id] {
			switch h.slot.kind {
			case kindBatch:
				entries = append(entries, engine.Header{
					Kind: engine.Batch, Seq: weir.Seq(h.slot.seq), Time: weir.Time(h.slot.time), Flags: h.slot.flags | engine.Lost,
				})
			case kindGapClosed: // First is lost, but Seq suffices: the gap covers every missing sequence up to Seq
				e := engine.Header{
					Kind: engine.GapClosed, Seq: weir.Seq(h.slot.seq), First: weir.Seq(h.slot.seq), Time: weir.Time(h.slot.time),
				}
				if h.slot.flags&engine.Lost != 0 { // this marker covers every missing sequence above the previous entry
					e.Flags, e.First = engine.Lost, 0
				}
				entries = append(entries, e)
			}
		}
		if err := p.give(key, l, entries); err != nil {
			return err
		}
		note, more, err := p.askMend(d.Document, l.low, l.note, func(yield func(engine.Header) bool) {
			l.index.ascend(l.low, func(it item) bool { return yield(it.header()) })
		}, p.maxLost(l))
		if err != nil {
			return fmt.Errorf("repair log of %s: %w", key, err)
		}
		if err := p.give(key, l, more); err != nil {
			return err
		}
		if p.lostMarks[id] {
			if err := p.addMark(l, note); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxLost returns how many entries of a log may be lost without a trace. These are all records with
// unknown content. If one of them may have been a mark (the record of a trim), maxLost adds every
// record that fits in the segments recycled since, because that trim may have removed them.
func (p *repair) maxLost(l *log) int {
	if p.unknown == 0 || l.mark.bytes > 0 && !p.stale(l.mark.place) {
		return p.unknown
	}
	recycled := int(p.numbers[len(p.numbers)-1]) - len(p.listed) - len(p.added) - len(p.unused)
	return p.unknown + max(recycled, 0)*room(p.j.size-dataStart)
}

// renew writes the new value of each document for which the Stale callback returned one.
func (p *repair) renew() error {
	if p.o.Stale == nil {
		return nil
	}
	for _, key := range p.result.Before.MayBeStale {
		d := p.docs[key]
		value, err := p.o.Stale(d.Document)
		if err != nil {
			return fmt.Errorf("replace stale document %s: %w", key, err)
		}
		if value == nil {
			continue
		}
		r := &record{kind: kindDocument, log: uint64(d.Created), seq: p.j.commit.next, key: key, payload: value, payloadSum: sum(0, value)}
		p.j.commit.next++
		if err := p.add(r); err != nil {
			return err
		}
	}
	return nil
}

// askMend calls the Mend callback, if there is one.
func (p *repair) askMend(d engine.Document, low weir.Seq, note []byte, entries iter.Seq[engine.Header], unknown int) ([]byte, []engine.Header, error) {
	if p.o.Mend == nil {
		return nil, nil, nil
	}
	return p.o.Mend(d, low, note, entries, unknown)
}

// give writes entries that stand for lost entries.
func (p *repair) give(key string, l *log, entries []engine.Header) error {
	slices.SortFunc(entries, func(a, b engine.Header) int { return int(int64(a.Seq) - int64(b.Seq)) })
	entries = slices.CompactFunc(entries, func(a, b engine.Header) bool { return a.Seq == b.Seq }) // the same entry may occur twice, as original and as copy
	for _, e := range entries {
		r := &record{kind: kind(e.Kind), flags: e.Flags & flagMask, log: uint64(l.id), seq: uint64(e.Seq), time: int64(e.Time)}
		if e.Kind == engine.GapClosed {
			r.payload = binary.LittleEndian.AppendUint64(nil, uint64(e.First))
		}
		r.payloadSum, r.length = sum(0, r.payload), uint32(len(r.payload))
		if err := p.add(r); err != nil {
			return err
		}
		l.index.insert(item{seq: e.Seq, time: e.Time, kind: r.kind, flags: r.flags, head: uint16(r.headLen()), size: r.length})
		if e.Kind == engine.Batch {
			e.First = e.Seq
		} else if e.Flags&engine.Lost == 0 {
			continue
		}
		if n := len(p.result.Losses); n > 0 && p.result.Losses[n-1].Document == key && p.result.Losses[n-1].To+1 == e.First {
			p.result.Losses[n-1].To = e.Seq
		} else {
			p.result.Losses = append(p.result.Losses, Loss{key, e.First, e.Seq})
		}
	}
	return nil
}

// addMark writes a mark (low and note) for a log, with the next revision.
func (p *repair) addMark(l *log, note []byte) error {
	r := &record{kind: kindMark, log: uint64(l.id), seq: uint64(l.low), time: int64(p.j.commit.next), payload: note, payloadSum: sum(0, note)}
	p.j.commit.next++
	return p.add(r)
}

// verify reads back the segments that the repair wrote, so that no damaged segment is taken out of
// service if its copy is bad.
func (p *repair) verify() error {
	if p.seg == nil {
		if err := p.rotate(); err != nil {
			return err
		}
	}
	if err := p.flush(); err != nil {
		return err
	}
	for _, n := range p.added {
		x, err := p.inspect(n)
		if err != nil {
			return err
		}
		if x.end != x.seg.end { // inspect takes a damaged newest group for a write that a crash cut short
			x.structural(x.end, 0, "group", errChecksum)
		}
		if len(x.holes) > 0 {
			h := x.holes[0]
			return fmt.Errorf("read back repaired data (the damaged segments are unchanged): %w", h.seg.damage(h.off, h.what, h.err))
		}
	}
	return nil
}

// finish takes the damaged segments out of service with one write: a manifest that does not list
// them.
func (p *repair) finish() error {
	var keep []uint64
	for _, n := range slices.Concat(p.listed, p.added) {
		if p.harmed[n] == nil && p.segments[n] != nil {
			keep = append(keep, n)
		}
	}
	p.manifest(keep, 0)
	if err := p.flush(); err != nil {
		return err
	}
	if err := p.seg.mark(p.seg.end, p.next); err != nil {
		return err
	}
	if err := p.seg.file.SyncData(); err != nil {
		return fmt.Errorf("write watermark of %s: %w", p.seg.name, err)
	}
	return nil
}

// writeFiles writes the files "end" and "format" again. The new file "end" holds the end of the
// repaired log.
func (p *repair) writeFiles() error {
	e := p.ending()
	if p.seg != nil {
		e = ending{p.seg.number, p.seg.end, p.next}
	}
	if old := p.j.end.latest; old.segment > e.segment || old.segment == e.segment && old.offset > e.offset {
		e = old
	}
	if err := p.j.createEnd(e); err != nil {
		return err
	}
	return p.j.writeFormat()
}

// remove removes the damaged files, which were copied aside.
func (p *repair) remove() error {
	for n := range p.harmed {
		if err := p.j.fs.Remove(segmentName(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", segmentName(n), err)
		}
	}
	return p.j.fs.SyncDir()
}
