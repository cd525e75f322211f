package repair

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"weir"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
)

// Options are the options of a repair, in addition to those of a check.
type Options struct {
	CheckOptions
	// Mend decides what a log needs to continue without its lost entries. All entries below low are
	// trimmed. The parameter note has the bytes that the last trim stored, and is nil if they are
	// lost. The parameter entries has the remaining entries and, for each entry that is known to be
	// lost, an entry that takes its place. The parameter unknown is the number of further records
	// that may be lost. Mend returns the new note of the log, or nil for none, and entries, marked
	// Lost, for sequences that must not be used again.
	Mend func(d engine.Document, low weir.Seq, note []byte, entries iter.Seq[*engine.Header], unknown int) ([]byte, []engine.Header, error)
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

// Result is the result of a repair.
type Result struct {
	Before    *Report  `json:"before"`
	After     *Report  `json:"after"`
	Aside     []string `json:"aside"`     // files that were set aside: they are in the directory, with disk.AsidePrefix before their names
	Losses    []Loss   `json:"losses"`    // sequences that are lost and will never be used again
	Documents []string `json:"documents"` // keys of lost documents; an empty string stands for a document whose key is lost too
}

// Lossless reports whether the repair has proof that nothing was lost.
func (r *Result) Lossless() bool {
	gone := slices.ContainsFunc(r.Before.Damages, func(d Damage) bool { return d.Fate == Lost || d.Fate == Unknown })
	return !gone && len(r.Losses)+len(r.Documents)+r.Before.Orphans+r.Before.MayBeLost == 0
}

// Run checks a journal. If it is damaged, Run builds a new journal beside it. Undamaged sealed
// segments stay. Records of other segments are written to new segments if they are still needed, and
// markers take the place of lost entries. When the whole new journal has been checked, it replaces
// the old one in a single step. Until then the old journal is unchanged, so an interrupted repair can
// be run again. Damaged files are set aside.
func Run(fs disk.FS, o Options) (*Result, error) {
	c, err := openCheckup(fs, o.CheckOptions)
	if err != nil {
		return nil, err
	}
	defer c.close()
	before, err := c.run()
	if err != nil {
		return nil, err
	}
	p := &repair{checkup: c, o: o, result: Result{Before: before, After: before, Losses: []Loss{}, Aside: []string{}, Documents: []string{}}}
	if len(c.holes) == 0 {
		return &p.result, nil
	}
	stage, err := disk.NewStage(fs)
	for _, step := range []func(*disk.Stage) error{p.build, p.verify, (*disk.Stage).Commit} {
		if err == nil {
			err = step(stage)
		}
	}
	if err != nil {
		return nil, errors.Join(err, stage.Discard())
	}
	return &p.result, nil
}

// verify checks the new journal before it replaces the old one.
func (p *repair) verify(stage *disk.Stage) error {
	dir := &directory.Directory{FS: stage}
	if err := dir.ReadFormat(); err != nil {
		return err
	}
	c := newCheckup(dir, p.o.CheckOptions)
	defer c.close()
	err := c.readProof()
	if err == nil {
		p.result.After, err = c.run()
	}
	if err == nil && len(c.holes) > 0 {
		h := c.holes[0]
		err = fmt.Errorf("read back repaired data (the journal is unchanged): %w", &segments.DamageError{File: h.File, Offset: h.Offset, What: h.What, Err: errors.New(h.Why)})
	}
	return err
}

// repair is a repair in progress: a check, and the journal that it builds.
type repair struct {
	*checkup
	o      Options
	result Result
	out    output
	err    error // the first error of a write
}

// replace decides which segments are not part of the new journal. Damaged segments, and segments
// with entries of logs whose document is lost, are set aside. Undamaged segments that are not
// sealed are left out.
func (p *repair) replace(stage *disk.Stage) error {
	for it := range p.orphaned {
		if n := uint64(it.Place.Segment); p.harmed[n] == nil {
			x, err := p.inspect(n, func(segments.Slot, *segments.Record) {})
			if err != nil {
				return err
			}
			p.harmed[n] = x
		}
	}
	for _, n := range slices.Sorted(maps.Keys(p.harmed)) {
		stage.SetAside(segments.Name(n))
		p.result.Aside = append(p.result.Aside, segments.Name(n))
	}
	for _, x := range p.unsealed { // the journal continues in a new segment, and every segment before the new one must be sealed
		if n := x.Seg.Number; p.harmed[n] == nil {
			stage.Leave(x.Seg.Name)
			p.harmed[n] = x
		}
	}
	return nil
}

// build stages the new journal. If only "end" or "format" is damaged, these two files are all that
// is new.
func (p *repair) build(stage *disk.Stage) error {
	e, next := p.ending(), max(p.ending().Group, p.proof.Latest.Group)
	if old := p.proof.Latest; old.Segment > e.Segment || old.Segment == e.Segment && old.Offset > e.Offset {
		e = old
	}
	p.dir.FS = stage
	if len(p.holes) > p.files {
		if err := p.replace(stage); err != nil {
			return err
		}
		if p.unknown > 0 {
			p.next += max(1<<20, uint64(p.unknown)) // revisions used in the unknown data must not be reused
		}
		kept := slices.DeleteFunc(slices.Clone(p.listed), func(n uint64) bool { return p.segments[n] == nil || p.harmed[n] != nil })
		p.out = output{dir: p.dir, kept: kept, number: p.top(), next: next, revision: &p.next}
		defer p.out.close()
		for _, step := range []func() error{p.rewrite, p.writeDeletions, p.renew, p.mend, p.out.finish} {
			if err := errors.Join(step(), p.err); err != nil {
				return err
			}
		}
		e = p.out.ending()
	}
	return errors.Join(p.dir.CreateEnd(e), p.dir.WriteFormat())
}

// add writes a record to the new journal. After an error it writes nothing more.
func (p *repair) add(r *segments.Record) {
	r.Length, r.PayloadSum = uint32(len(r.Payload)), segments.Sum(0, r.Payload)
	if p.err == nil {
		p.err = p.out.add(r)
	}
}

// rewrite copies the records of the replaced segments that are still needed, both the valid ones
// and those that the check has corrected. It fails if the disk now returns different data than
// during the check.
func (p *repair) rewrite() error {
	for _, n := range slices.Sorted(maps.Keys(p.harmed)) {
		x, err := p.inspect(n, func(sl segments.Slot, r *segments.Record) {
			if p.err == nil && p.current(index.Place{Segment: uint32(n), Off: sl.Off}, r) {
				r.Payload = slices.Clone(r.Payload)
				p.add(r)
			}
		})
		if err == nil && x.Records != p.harmed[n].Records {
			err = fmt.Errorf("%s: the disk returns different data each time", x.Seg.Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeDeletions writes a deletion for every lost document of which an older state remains.
// Otherwise the next opening would use the older state.
func (p *repair) writeDeletions() error {
	for _, id := range slices.Sorted(maps.Keys(p.lost)) {
		key := p.lost[id]
		p.result.Documents = append(p.result.Documents, key)
		if p.first[key] {
			p.add(&segments.Record{Kind: segments.KindDeleted, Log: id, Seq: p.revision(), Key: key, Count: uint32(p.top())})
		}
	}
	return nil
}

// mend writes a marker for every lost entry, and the note and entries that the Mend callback
// returns.
func (p *repair) mend() error {
	lost := map[uint64][]engine.Header{}
	for _, h := range p.holes {
		if !h.Known || h.Fate != Lost || !h.Slot.Kind.Entry() {
			continue
		}
		// The field First of a closed gap is lost, but Seq suffices: the gap covers every missing
		// sequence up to Seq.
		e := engine.Header{
			Kind: engine.Kind(h.Slot.Kind), Seq: weir.Seq(h.Slot.Seq), First: weir.Seq(h.Slot.Seq), Time: weir.Time(h.Slot.Time), Flags: h.Slot.Flags,
		}
		if e.Kind == engine.Batch {
			e.Flags |= engine.Lost
		} else if e.Flags&engine.Lost != 0 { // a closed gap of an earlier repair: it covers every missing sequence above the previous entry
			e.First = 0
		}
		lost[h.Slot.Log] = append(lost[h.Slot.Log], e)
	}
	for _, key := range slices.Sorted(maps.Keys(p.docs)) {
		d := p.docs[key]
		id := uint64(d.Created)
		if lost[id] == nil && !p.lostMarks[id] && p.unknown == 0 {
			continue
		}
		l := p.log(id)
		p.give(key, l, lost[id])
		var note []byte
		if p.o.Mend != nil {
			mended, more, err := p.o.Mend(d.Document, l.low, l.note, func(yield func(*engine.Header) bool) {
				l.index.Ascend(l.low, func(it index.Item) bool { h := it.Header(); return yield(&h) })
			}, p.maxLost(l))
			if err != nil {
				return fmt.Errorf("repair log of %s: %w", key, err)
			}
			p.give(key, l, more)
			note = mended
		}
		if p.lostMarks[id] {
			p.add(&segments.Record{Kind: segments.KindMark, Log: id, Seq: uint64(l.low), Time: int64(p.revision()), Payload: note})
		}
	}
	return nil
}

// revision returns a new revision.
func (p *repair) revision() uint64 {
	p.next++
	return p.next - 1
}

// top returns the highest number that a segment may have had.
func (p *repair) top() uint64 {
	return max(p.proof.Latest.Segment, slices.Max(append(p.numbers, 0)))
}

// maxLost returns how many entries of a log may be lost without a trace. These are at least all
// records with unknown content. One of them may have been the newest mark of the log (the record of
// a trim), unless a readable mark comes after all of them. Segments with entries that this lost
// trim removed may since have been recycled. So maxLost adds the number of records that the
// recycled segments could hold.
func (p *repair) maxLost(l *log) int {
	if p.unknown == 0 || l.mark.Bytes > 0 && !p.stale(l.mark.Place) {
		return p.unknown
	}
	recycled := int(p.top()) - len(p.listed) - p.unused
	return p.unknown + max(recycled, 0)*segments.Room(p.dir.Size-segments.DataStart)
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
		if value != nil {
			p.add(&segments.Record{Kind: segments.KindDocument, Log: uint64(d.Created), Seq: p.revision(), Key: key, Payload: value})
		}
	}
	return nil
}

// give writes entries that stand for lost entries.
func (p *repair) give(key string, l *log, entries []engine.Header) {
	slices.SortFunc(entries, func(a, b engine.Header) int { return int(int64(a.Seq) - int64(b.Seq)) })
	entries = slices.CompactFunc(entries, func(a, b engine.Header) bool { return a.Seq == b.Seq }) // the same entry may occur twice, as original and as copy
	for _, e := range entries {
		r := &segments.Record{Kind: segments.Kind(e.Kind), Flags: e.Flags & index.FlagMask, Log: uint64(l.id), Seq: uint64(e.Seq), Time: int64(e.Time)}
		if e.Kind == engine.GapClosed {
			r.Payload = binary.LittleEndian.AppendUint64(nil, uint64(e.First))
		}
		p.add(r)
		l.index.Insert(index.Item{Seq: e.Seq, Time: e.Time, Kind: r.Kind, Flags: r.Flags, Head: uint16(r.HeadLen()), Size: r.Length})
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
}
