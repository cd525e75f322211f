// Package repair checks, repairs and restores journals that are not in use. It reads every byte of a
// journal, and works on journals that are too damaged to be opened. It knows the format of a journal
// from the packages segments and directory, and nothing of the goroutines of a running one.
//
// DESIGN.md of the journal describes how a check finds damage and how a repair works.
package repair

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"weir"
	"weir/internal/disk"
	"weir/internal/engine"
	"weir/internal/engine/journal/directory"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
)

// CheckOptions are the callbacks of a check. The journal does not know what documents and logs
// mean; its callers do.
type CheckOptions struct {
	// Document validates a document whose log is undamaged. Like Judge.Restore, it receives the
	// entries of the log and the note, the bytes that the last trim of the log stored. It returns
	// the reason why the document cannot be used, or nil.
	Document func(d engine.Document, note []byte, entries iter.Seq[*engine.Header]) error
	// Progress, if set, receives the number of bytes read so far and the total.
	Progress func(done, total int64)
}

// Damage describes one damaged range of a file.
type Damage = segments.Damage

// Fate says what damage means for the data that was stored there.
type Fate = segments.Fate

// The fates of damaged data.
const (
	Dead    = segments.Dead
	Intact  = segments.Intact
	Mended  = segments.Mended
	Lost    = segments.Lost
	Unknown = segments.Unknown
)

// Report is the result of a check.
type Report struct {
	Segments    int            `json:"segments"`
	Ready       int            `json:"ready"` // segment files without data of the journal: prepared for later use, or freed
	Bytes       int64          `json:"bytes"` // size of all segment files
	Records     int            `json:"records"`
	Documents   map[string]int `json:"documents"` // number of documents, by the part of their keys before the slash
	Batches     int            `json:"batches"`   // readable batches
	Payload     int64          `json:"payload"`   // total payload bytes of the readable batches
	ClosedGaps  int            `json:"closed_gaps"`
	Torn        int64          `json:"torn"` // bytes of the newest group (the records of one write) that a crash cut short; that group was never acknowledged
	Damages     []Damage       `json:"damages"`
	Orphans     int            `json:"orphans"`      // batches that belong to no document: the document, or the record that deleted it, is lost
	MayBeLost   int            `json:"may_be_lost"`  // upper bound for the number of records with unknown content
	MayBeStale  []string       `json:"may_be_stale"` // keys of documents that a record with unknown content may have changed or deleted
	LostBatches uint64         `json:"lost_batches"` // number of sequences given up by earlier repairs
}

// checkup is a check in progress. It follows the steps of opening a journal, but reads every byte and
// does not stop at damage.
type checkup struct {
	state
	dir       *directory.Directory
	o         CheckOptions
	report    Report
	buf       []byte
	segments  map[uint64]*segments.Segment    // all segment files
	numbers   []uint64                        // numbers of all segment files, sorted
	tail      *segments.Inspection            // inspection of the tail, the last segment that holds a group; nil if there is none
	unused    int                             // number of segments above the tail
	harmed    map[uint64]*segments.Inspection // segments with damage
	listed    []uint64                        // segments of the journal, according to the newest manifest (a record that lists all segments)
	manifest  index.Place                     // position of the newest manifest
	proof     directory.Proof                 // what the file "end" says about how far the log reached
	endLost   bool                            // the file "end" should exist but cannot be used
	holes     []*segments.Hole                // all damaged ranges
	files     int                             // number of holes in files other than segments
	missing   int                             // number of listed segments whose file is missing
	unsealed  []*segments.Inspection          // segments without a valid index
	unknown   int                             // upper bound for the number of records with unknown content
	last      index.Place                     // position of the last data with unknown content
	lost      map[uint64]string               // for each log whose document is lost (its newest state or its deletion cannot be read), the key of the document
	orphans   map[uint64]bool                 // logs with entries but without a document
	hurt      map[uint64]bool                 // logs with damage
	lostMarks map[uint64]bool                 // logs whose mark (the record of the last trim) is unreadable, so that its note is lost
	done      int64                           // bytes read so far
}

// Check reads every byte of a journal that no other process has open, and reports its content and
// its damage. It changes nothing, except that it completes a repair or restore that was interrupted
// in its last step. It returns disk.ErrLocked, directory.ErrForeign, directory.ErrNewer, or an error
// of the file system. It returns engine.ErrDamaged if the format file is damaged and no other file
// holds a copy of its content, because nothing can be read without that content.
func Check(fs disk.FS, o CheckOptions) (*Report, error) {
	c, err := openCheckup(fs, o)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return c.run()
}

// openCheckup takes the lock and reads the format.
func openCheckup(fs disk.FS, o CheckOptions) (*checkup, error) {
	dir := &directory.Directory{FS: fs}
	fault, err := dir.TakeDamaged()
	if err != nil {
		dir.Close()
		return nil, err
	}
	c := newCheckup(dir, o)
	c.fileDamage(directory.FormatFile, "journal format", fault)
	if err := c.readProof(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// fileDamage records damage to the file "format" or "end". A repair can write both again. A nil err
// means no damage.
func (c *checkup) fileDamage(name, what string, err error) {
	if d, ok := errors.AsType[*segments.DamageError](err); ok {
		err = d.Err
	}
	if err != nil {
		c.holes = append(c.holes, &segments.Hole{Damage: Damage{File: name, What: what, Why: err.Error(), Fate: Intact}})
		c.files++
	}
}

// readProof reads the file "end", which proves how far the log reached. If "end" is unusable, the
// watermark of the tail is the only other proof. The watermark says how far the tail was synced.
// The writer makes this watermark final before the journal uses the next segment. So if the
// watermark is not final, no later segment was used.
func (c *checkup) readProof() error {
	err := c.dir.ReadEnd()
	c.proof = c.dir.End
	if c.endLost = directory.Unusable(err); c.endLost {
		c.fileDamage(directory.EndFile, "end of the log", err)
		return nil
	}
	return err
}

// newCheckup returns a check of a journal. The format of the journal must be known, and its lock
// must be held.
func newCheckup(dir *directory.Directory, o CheckOptions) *checkup {
	return &checkup{
		state: newState(), dir: dir, o: o, buf: make([]byte, dir.Size), segments: map[uint64]*segments.Segment{}, harmed: map[uint64]*segments.Inspection{},
		lost: map[uint64]string{}, orphans: map[uint64]bool{}, hurt: map[uint64]bool{}, lostMarks: map[uint64]bool{},
	}
}

func (c *checkup) close() {
	c.closeFiles()
	c.dir.Close()
}

func (c *checkup) closeFiles() {
	for _, s := range c.segments {
		s.File.Close()
	}
}

func (c *checkup) run() (*Report, error) {
	for _, step := range []func() error{c.openAll, c.findEnd, c.readAll, c.judge, c.ask} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	c.sum()
	return &c.report, nil
}

// openAll opens the segment files. The method inspect checks their content later, including the
// header.
func (c *checkup) openAll() error {
	_, err := c.dir.OpenSegments(func(number uint64) *segments.Segment {
		c.numbers = append(c.numbers, number)
		c.segments[number] = new(segments.Segment)
		return c.segments[number]
	})
	slices.Sort(c.numbers)
	return err
}

// inspect reads one segment, calls visit with its records and reports progress. The reported total
// is the size of all files plus one segment, because findEnd and readAll both read the tail.
func (c *checkup) inspect(n uint64, visit func(segments.Slot, *segments.Record)) (*segments.Inspection, error) {
	synced := int64(0)
	if c.proof.Latest.Segment == n {
		synced = c.proof.Latest.Offset
	}
	x, err := c.segments[n].Inspect(synced, c.buf, visit)
	if c.done += c.dir.Size; c.o.Progress != nil {
		c.o.Progress(c.done, max(c.done, int64(len(c.numbers)+1)*c.dir.Size))
	}
	return x, err
}

// findEnd finds the tail and the list of segments that should exist.
func (c *checkup) findEnd() error {
	for _, n := range slices.Backward(c.numbers) {
		x, err := c.inspect(n, func(segments.Slot, *segments.Record) {})
		if err != nil {
			return err
		}
		begun := x.Begun()
		// The writer names a segment in "end" before it writes to the segment. So if "end" names an
		// older segment, segment n never held a group, whatever its header looks like.
		if c.tail == nil && !begun && (len(x.Holes) == 0 || c.proof.Count > 0 && n > c.proof.Latest.Segment) {
			c.unused++
			c.note(x, x.Holes...)
			continue
		}
		if c.tail == nil && begun {
			c.tail, c.report.Torn = x, x.Torn
		}
		c.listed = append(c.listed, n) // the segment belongs to the journal even if its manifest is lost
		if x.Manifest > 0 {
			c.listed = append(c.listed, x.List...)
			c.manifest, c.next = index.Place{Segment: uint32(n), Off: uint32(x.Manifest)}, x.Next
			break
		}
	}
	c.listMissing()
	slices.Sort(c.listed)
	c.listed = slices.Compact(c.listed)
	return nil
}

// below reports whether the file "end" proves that the log continues after segment n.
func (c *checkup) below(n uint64) bool { return n < c.proof.Latest.Segment }

// sealing reports whether segment n may lack its index because a crash came before the index was
// written. Only the newest segment and the one before it can lack their index.
func (c *checkup) sealing(n uint64) bool {
	if c.tail == nil {
		return false
	}
	newest := max(c.tail.Seg.Number, c.proof.Latest.Segment)
	return !slices.ContainsFunc(c.listed, func(o uint64) bool { return n < o && o < newest })
}

// listMissing lists the segments after the tail that may have held groups and whose files are
// missing. The file "end" holds the segment of the next group and the number of that group. If this
// number follows that of the last group in the tail, no group was in the segments between the two:
// their numbers were reserved for cold segments (see cold.go).
func (c *checkup) listMissing() {
	tail, last := uint64(0), c.proof.Latest.Segment
	if c.tail != nil {
		tail = c.tail.Seg.Number
	}
	if c.endLost && (c.tail == nil || c.tail.Proved) { // there is no tail, or the tail is proved to be full: the next segment may have been used
		c.listed = append(c.listed, tail+1)
	}
	adjacent := c.tail != nil && c.tail.Group+1 == c.proof.Latest.Group
	for n := last; n > tail && n+mostMissing > last; n-- {
		if c.segments[n] == nil && (n == last || !adjacent) {
			c.listed = append(c.listed, n)
		}
	}
}

// mostMissing is the largest number of missing segments after the tail that are reported one by
// one. If more are missing, nearly all of the journal is lost.
const mostMissing = 1000

// note records the damaged ranges of a segment.
func (c *checkup) note(x *segments.Inspection, holes ...*segments.Hole) {
	if c.holes = append(c.holes, holes...); len(holes) > 0 {
		c.harmed[x.Seg.Number] = x
	}
}

// readAll reads every segment that should exist, in order, and applies its valid records.
func (c *checkup) readAll() error {
	var before *segments.Inspection
	for _, n := range c.listed {
		if c.segments[n] == nil {
			gone := Damage{File: segments.Name(n), What: "segment", Why: segments.ErrMissing.Error(), Fate: Unknown}
			c.holes = append(c.holes, &segments.Hole{Damage: gone, Number: n, Count: segments.Room(c.dir.Size - segments.DataStart)})
			c.missing++
			c.checkEnd(before, n, 0)
			before = nil
			continue
		}
		x, err := c.inspect(n, func(sl segments.Slot, r *segments.Record) {
			c.apply(index.Place{Segment: uint32(n), Off: sl.Off}, sl, r)
		})
		if err != nil {
			return err
		}
		if !x.Sealed && !c.sealing(n) {
			x.Holes = append(x.Holes, x.NoIndex)
		}
		c.checkEnd(before, n, x.First)
		c.note(x, x.Holes...)
		c.report.Records += x.Records
		if before = x; !x.Sealed {
			c.unsealed = append(c.unsealed, x)
		}
	}
	if e := c.proof.Latest; before != nil && !c.isTail(before) {
		c.checkEnd(before, 0, 0)
	} else if before != nil && c.below(before.Seg.Number) {
		c.checkEnd(before, e.Segment, e.Group)
	}
	return nil
}

func (c *checkup) isTail(x *segments.Inspection) bool {
	return c.tail != nil && c.tail.Seg == x.Seg
}

// checkEnd records damage if a segment other than the newest has lost, or may have lost, groups at
// its end. The parameter next is the number of the next segment, and group is the number of the
// first group in that segment, or 0 if it is not known. Three things can prove where a segment ends:
// its footer, its final watermark, or the number of the first group in the next segment. The last of
// these proves nothing about a cold segment, because the groups in it are numbered from 1.
func (c *checkup) checkEnd(x *segments.Inspection, next, group uint64) {
	switch {
	case x == nil || x.Proved || x.Marked && !c.isTail(x) || next == x.Seg.Number+1 && group == x.Group+1 && (x.First > 1 || x.Seg.Number == 1):
	case next == x.Seg.Number+1 && group > x.Group:
		c.note(x, x.AddUnknown(fmt.Errorf("groups %d to %d are missing", x.Group+1, group-1)))
	default:
		c.note(x, x.AddUnknown(errors.New("more groups may have followed")))
	}
}

// ask calls the Document callback for every current document whose log is undamaged.
func (c *checkup) ask() error {
	for _, key := range slices.Sorted(maps.Keys(c.docs)) {
		d := c.docs[key]
		l := c.logs[uint64(d.Created)]
		if c.o.Document == nil || c.hurt[uint64(d.Created)] {
			continue
		}
		if l == nil {
			l = &log{}
		}
		var fault error
		err := c.o.Document(d.Document, l.note, func(yield func(*engine.Header) bool) { fault = c.headers(l, yield) })
		err = cmp.Or(fault, err) // if reading failed, the callback may have failed only because of that
		if _, disk := errors.AsType[*fs.PathError](err); disk && !errors.Is(err, engine.ErrDamaged) {
			return err
		}
		if err != nil {
			c.report.Damages = append(c.report.Damages, Damage{
				File: segments.Name(uint64(d.At.Segment)), Offset: int64(d.At.Off), What: "document", Why: err.Error(), Document: key, Fate: Lost,
			})
		}
	}
	return nil
}

// headers calls yield with the headers of all entries of a log, in the form in which Judge.Restore
// gets them.
func (c *checkup) headers(l *log, yield func(*engine.Header) bool) error {
	r := index.HeadReader{Log: l.id, Since: math.MinInt64}
	var header engine.Header
	heads := make([]index.Head, 0, min(l.index.Len(), 1024))
	for next := weir.Seq(0); ; {
		heads, _ = r.Fill(&l.index, next, heads[:0])
		if len(heads) == 0 {
			return nil
		}
		if err := r.Complete(heads, func(number uint32) *segments.Segment { return c.segments[uint64(number)] }); err != nil {
			return err
		}
		for i := range heads {
			if heads[i].SetHeader(&header, r.Tags); !yield(&header) {
				return nil
			}
		}
		next = header.Seq + 1
	}
}

// ending returns where the log ends, as this check found it.
func (c *checkup) ending() directory.Ending {
	if x := c.tail; x != nil {
		return directory.Ending{Segment: x.Seg.Number, Offset: x.End, Group: x.Group + 1}
	}
	return directory.Ending{Group: 1}
}

// sum fills in the counts of the report.
func (c *checkup) sum() {
	r := &c.report
	r.Segments = len(c.listed) - c.missing
	r.Ready = len(c.numbers) - r.Segments
	for _, s := range c.segments {
		r.Bytes += s.Stored()
	}
	r.Documents, r.MayBeLost, r.MayBeStale = map[string]int{}, c.unknown, []string{}
	for key, d := range c.docs {
		kind, _, _ := strings.Cut(key, "/")
		r.Documents[kind]++
		if c.stale(d.At.Place) {
			r.MayBeStale = append(r.MayBeStale, key)
		}
		l := c.logs[uint64(d.Created)]
		if l == nil {
			continue
		}
		above := l.low // the sequence after the previous entry
		l.index.Ascend(0, func(it index.Item) bool {
			switch {
			case it.Kind == segments.KindGapClosed && it.Flags&engine.Lost != 0:
				r.LostBatches += uint64(it.Seq + 1 - min(above, it.Seq))
			case it.Kind == segments.KindGapClosed && it.Flags&engine.Ends != 0 && it.Seq <= above:
				// The entry closes the stream, and no gap.
			case it.Kind == segments.KindGapClosed:
				r.ClosedGaps++
			case it.Flags&engine.Lost != 0:
				r.LostBatches++
			default:
				r.Batches++
				r.Payload += int64(it.Size)
			}
			above = it.Seq + 1
			return true
		})
	}
	slices.Sort(r.MayBeStale)
}
