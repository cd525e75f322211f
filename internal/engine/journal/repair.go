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

// RepairOptions are what a repair needs beyond a check.
type RepairOptions struct {
	CheckOptions
	// Aside returns the directory that damaged files are copied to before anything is changed.
	Aside func() (disk.FS, error)
	// Mend is asked what a log needs so that it can go on without what is lost: a note for its mark (nil: none) and
	// entries, marked Lost, for sequences that must not be used again. It gets the mark's low and note (nil when it is
	// lost), what is left of the log (those that are known to be lost among it) and how many records may be lost
	// beside those.
	Mend func(d engine.Document, low weir.Seq, note []byte, entries iter.Seq[engine.Header], unknown int) ([]byte, []engine.Header, error)
	// Stale is asked about every document that may have been changed or deleted where nobody can tell what was there: what
	// it is to be from here on, nil to leave it as it is.
	Stale func(d engine.Document) ([]byte, error)
}

// Loss is a range of sequences of one log that a repair gave up, inclusive.
type Loss struct {
	Document string   `json:"document"`
	From     weir.Seq `json:"from"`
	To       weir.Seq `json:"to"`
}

// Repair is what a repair did.
type Repair struct {
	Before    *Report  `json:"before"`
	After     *Report  `json:"after"`
	Aside     []string `json:"aside"`     // files that were copied there
	Losses    []Loss   `json:"losses"`    // sequences that cannot be read any more, and are never used again
	Documents []string `json:"documents"` // keys of documents that are lost; empty where even the key is
}

// RepairJournal checks a journal and takes damaged segments out of service: what is whole in them is written again, what
// is lost leaves a mark, and the files themselves are copied aside first. Until the last write of all the journal is
// refused by Open as before, so that a repair that was cut off can be made again. Undamaged, it is left as it is.
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
	for _, step := range []func() error{p.setAside, p.settleTail, p.rewrite, p.renew, p.mend, p.verify, p.finish, p.remove} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	c.closeFiles()
	again := newJournal(dir, Options{SegmentSize: defaultSegment, Ahead: 1})
	if err := again.readFormat(); err != nil {
		return nil, err
	}
	after := newCheckup(again, o.CheckOptions)
	defer after.closeFiles()
	p.result.After, err = after.run()
	return &p.result, err
}

// repair is a repair under way: a check, and what is written after it.
type repair struct {
	*checkup
	o      RepairOptions
	result Repair
	seg    *segment
	group  *group
	next   uint64 // number of the next group
	added  []uint64
}

// setAside copies every damaged file, and those with what is left of streams that cannot be served any more.
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
	if err := p.asideFormat(dir); err != nil {
		return fmt.Errorf("set %s aside: %w", formatFile, err)
	}
	return dir.SyncDir()
}

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
		_, _ = s.readable(b, off) // what the disk does not give is zeros
		if err := f.WriteAt(off, b); err != nil {
			return err
		}
	}
	return f.SyncData()
}

// asideFormat puts the format beside them: without its salt nobody can read them.
func (p *repair) asideFormat(dir disk.FS) error {
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

// settleTail seals a tail that is whole: what is written from here on goes to a segment after it.
func (p *repair) settleTail() error {
	x := p.tailed
	if x == nil {
		return nil
	}
	p.next = max(p.next, x.group+1)
	if x.sealed || p.harmed[x.seg.number] != nil {
		return nil
	}
	x.seg.slots, x.seg.count, x.seg.end = x.slots, x.records, x.end
	return x.seg.seal(p.j.size, p.next)
}

// rewrite writes again what counts of the damaged segments: what is whole, and what could be mended.
func (p *repair) rewrite() error {
	if p.unknown > 0 {
		p.j.commit.next += max(1<<20, uint64(p.unknown)) // revisions of what nobody can tell are not used again either
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
			if err := p.again(place{uint32(n), sl.off}, &r); err != nil {
				return err
			}
		}
		for _, h := range x.holes {
			if h.mended != nil && h.slot.kind != kindManifest {
				if err := p.again(place{uint32(n), h.slot.off}, h.mended); err != nil {
					return err
				}
			}
		}
	}
	return p.bury()
}

// again writes a record again if it counts.
func (p *repair) again(at place, r *record) error {
	if !p.j.store.current(at, r) {
		return nil
	}
	return p.add(r)
}

// bury writes a deletion for every lost document that an older state is left of.
func (p *repair) bury() error {
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

// mend leaves a mark for everything that is lost, and lets the rules say what else a log needs.
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
			case kindGapClosed: // it closes all that is missing up to its end
				e := engine.Header{
					Kind: engine.GapClosed, Seq: weir.Seq(h.slot.seq), First: weir.Seq(h.slot.seq), Time: weir.Time(h.slot.time),
				}
				if h.slot.flags&engine.Lost != 0 { // it covers all that is missing above the batch below it
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
		}, p.gone(l))
		if err != nil {
			return fmt.Errorf("mend %s: %w", key, err)
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

// gone is how many entries of a log may be gone without a trace: all that was in places that nobody can tell. If a mark was
// among that, then also all that it had trimmed before, whose segments were used again since.
func (p *repair) gone(l *log) int {
	if p.unknown == 0 || l.mark.bytes > 0 && !p.stale(l.mark.place) {
		return p.unknown
	}
	recycled := int(p.numbers[len(p.numbers)-1]) - len(p.listed) - len(p.added) - len(p.unused)
	return p.unknown + max(recycled, 0)*room(p.j.size-dataStart)
}

// renew writes anew what must not stay as it is when a newer state of it may be lost.
func (p *repair) renew() error {
	if p.o.Stale == nil {
		return nil
	}
	for _, key := range p.result.Before.MayBeStale {
		d := p.docs[key]
		value, err := p.o.Stale(d.Document)
		if err != nil {
			return fmt.Errorf("renew %s: %w", key, err)
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

// askMend asks whoever knows the rules, if there is somebody.
func (p *repair) askMend(d engine.Document, low weir.Seq, note []byte, entries iter.Seq[engine.Header], unknown int) ([]byte, []engine.Header, error) {
	if p.o.Mend == nil {
		return nil, nil, nil
	}
	return p.o.Mend(d, low, note, entries, unknown)
}

// give writes entries that stand for what is lost.
func (p *repair) give(key string, l *log, entries []engine.Header) error {
	slices.SortFunc(entries, func(a, b engine.Header) int { return int(int64(a.Seq) - int64(b.Seq)) })
	entries = slices.CompactFunc(entries, func(a, b engine.Header) bool { return a.Seq == b.Seq }) // original and copy
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

func (p *repair) addMark(l *log, note []byte) error {
	r := &record{kind: kindMark, log: uint64(l.id), seq: uint64(l.low), time: int64(p.j.commit.next), payload: note, payloadSum: sum(0, note)}
	p.j.commit.next++
	return p.add(r)
}

// add writes a record at the end of what the repair writes.
func (p *repair) add(r *record) error {
	r.length = uint32(len(r.payload))
	room := int64(2 * (frameSize + padded(recordSize+8*(len(p.listed)+len(p.added)+2)) + slotSize))
	if p.seg == nil || !p.seg.fits(p.j.size, r.size(), 1, room) {
		if err := p.rotate(); err != nil {
			return err
		}
	}
	p.group.add(r)
	if p.group.length >= copyStep || len(r.payload) >= largePayload { // which the group does not copy
		return p.flush()
	}
	return nil
}

// rotate begins a new segment. Its manifest still lists the damaged ones.
func (p *repair) rotate() error {
	if p.seg != nil {
		if err := p.flush(); err != nil {
			return err
		}
		if err := p.seg.seal(p.j.size, p.next); err != nil {
			return err
		}
	}
	number := uint64(1)
	if n := len(p.numbers); n > 0 {
		number = p.numbers[n-1] + 1
	}
	s := &segment{number: number, name: segmentName(number), seed: seed(p.j.salt, number)}
	if err := p.j.prepare.create(s); err != nil {
		return err
	}
	if err := p.j.fs.SyncDir(); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	s.end = dataStart
	p.segments[number] = s
	p.numbers, p.added = append(p.numbers, number), append(p.added, number)
	if p.next == 0 {
		p.next = 1
	}
	p.seg, p.group = s, &group{j: p.j}
	p.group.begin(s)
	p.manifest(slices.Concat(p.listed, p.added), draftManifest)
	return nil
}

// draftManifest is the count of a manifest that lists what is not there, or not whole, until the repair is done.
const draftManifest = 1

func (p *repair) manifest(numbers []uint64, count uint32) {
	var payload []byte
	for _, n := range numbers {
		payload = binary.LittleEndian.AppendUint64(payload, n)
	}
	p.group.add(&record{kind: kindManifest, seq: p.j.commit.next, count: count, payload: payload, payloadSum: sum(0, payload)})
}

// flush makes a group durable.
func (p *repair) flush() error {
	if p.group.records == 0 {
		return nil
	}
	if err := p.seg.file.WriteAt(p.group.off, p.group.buffers(p.next)...); err != nil {
		return fmt.Errorf("write %s: %w", p.seg.name, err)
	}
	if err := p.seg.file.SyncData(); err != nil {
		return fmt.Errorf("sync %s: %w", p.seg.name, err)
	}
	p.next++
	p.group.begin(p.seg)
	return nil
}

// verify reads again what was written: nothing is taken out of service for copies that are not whole.
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
		if x.end != x.seg.end { // the newest group passes for one that was cut short
			x.structural(x.end, 0, "group", errChecksum)
		}
		if len(x.holes) > 0 {
			h := x.holes[0]
			return fmt.Errorf("what the repair wrote cannot be read, so that nothing was taken out of service: %w", h.seg.damage(h.off, h.what, h.err))
		}
	}
	return nil
}

// finish takes the damaged segments out of service, in one write.
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
	if err := p.seg.file.WriteAt(watermarkOffset, encodeWatermark(p.seg.seed, p.seg.end, p.next)); err != nil {
		return fmt.Errorf("mark %s: %w", p.seg.name, err)
	}
	if err := p.seg.file.SyncData(); err != nil {
		return fmt.Errorf("mark %s: %w", p.seg.name, err)
	}
	return nil
}

// remove removes the damaged files, which lie aside.
func (p *repair) remove() error {
	for n := range p.harmed {
		if err := p.j.fs.Remove(segmentName(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", segmentName(n), err)
		}
	}
	return p.j.fs.SyncDir()
}
