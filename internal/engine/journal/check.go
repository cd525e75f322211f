package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strings"
	"syscall"

	"weir"
	"weir/internal/disk"
	"weir/internal/engine"
)

// CheckOptions are the callbacks of a check. The journal does not know what documents and logs
// mean; its callers do.
type CheckOptions struct {
	// Document validates a document whose log is undamaged. It receives the note of the log's last
	// trim and the entries of the log, as Judge.Restore does. It returns the reason why the
	// document cannot be used, or nil.
	Document func(d engine.Document, note []byte, entries iter.Seq[engine.Header]) error
	// Progress, if set, receives the number of bytes read so far and the total.
	Progress func(done, total int64)
}

// Fate says what one instance of damage means for the data that was stored there.
type Fate string

// The fates of damaged data.
const (
	Dead    Fate = "dead"    // nothing is lost: the data was trimmed, replaced or deleted, or there is another copy
	Intact  Fate = "intact"  // nothing is lost: the data can be rebuilt from undamaged data
	Mended  Fate = "mended"  // nothing is lost: one bit is flipped, and a repair corrects it
	Lost    Fate = "lost"    // it is known which data was there, but the data cannot be read
	Unknown Fate = "unknown" // it is not known which data was there
)

// Damage describes one damaged range of a file.
type Damage struct {
	File     string       `json:"file"`
	Offset   int64        `json:"offset"`
	What     string       `json:"what"`
	Why      string       `json:"why"`
	Log      engine.LogID `json:"-"`
	Document string       `json:"document,omitempty"` // key of the damaged document, or of the document that owns the log
	Seq      *weir.Seq    `json:"seq,omitempty"`      // sequence, if the damaged record is an entry
	Fate     Fate         `json:"fate"`
}

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
	Torn        int64          `json:"torn"` // bytes of the newest group that a crash cut short; that group was never acknowledged
	Damages     []Damage       `json:"damages"`
	Orphans     int            `json:"orphans"`      // batches of logs whose document is lost, or the record of whose deletion is lost
	MayBeLost   int            `json:"may_be_lost"`  // upper bound for the number of records with unknown content
	MayBeStale  []string       `json:"may_be_stale"` // keys of documents that a record with unknown content may have changed or deleted
	LostBatches uint64         `json:"lost_batches"` // number of sequences given up by earlier repairs
}

// checkup is a check in progress. It follows the steps of a recovery, but reads every byte and does
// not stop at damage.
type checkup struct {
	*recovery
	o         CheckOptions
	report    Report
	buf       []byte
	tailed    *inspection            // inspection of the tail, the last segment that holds a group
	harmed    map[uint64]*inspection // segments with damage
	unsealed  []*inspection          // segments without a valid index
	listed    []uint64               // segments of the journal, according to the newest manifest
	manifest  place                  // position of the newest manifest
	endLost   bool                   // the file "end", which proves how far the log reached, should exist but cannot be used
	holes     []*hole
	files     []*hole         // damaged files other than segments; holes includes them
	missing   int             // number of listed segments whose file is missing
	unknown   int             // upper bound for the number of records with unknown content
	last      place           // position of the last data with unknown content
	cutOff    bool            // the newest segments were written by an interrupted repair
	drafts    map[uint64]bool // segments whose last manifest is the draft of an unfinished repair
	lostDocs  []lostDocument
	orphans   map[uint64]bool // logs with entries but without a document
	hurt      map[uint64]bool // logs with damage
	lostMarks map[uint64]bool // logs whose mark (the record of the last trim) is unreadable; the index slot of the mark still tells low
	done      int64
}

// lostDocument is a document whose newest state cannot be read, or whose deletion cannot be read.
type lostDocument struct {
	key     string // empty if the key is not known
	created uint64
}

// Check reads every byte of a journal that no other process has open, and reports its content and
// its damage. It changes nothing. It returns disk.ErrLocked, ErrForeign, ErrNewer, or an error of
// the file system. It returns engine.ErrDamaged if the format file is damaged, because nothing can
// be read without that file.
func Check(dir disk.FS, o CheckOptions) (*Report, error) {
	c, err := openCheckup(dir, o)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return c.run()
}

// openCheckup takes the lock and reads the format. Unlike Open, it does not turn an empty directory
// into a journal. If the format file cannot be used, a copy of the salt in another file is enough.
func openCheckup(dir disk.FS, o CheckOptions) (*checkup, error) {
	names, err := dir.List()
	if err != nil {
		return nil, fmt.Errorf("list the data directory: %w", err)
	}
	j := newJournal(dir, Options{SegmentSize: defaultSegment, Ahead: 1})
	fault := fmt.Errorf("%w: file %s is missing", ErrForeign, formatFile)
	if slices.Contains(names, formatFile) {
		fault = j.readFormat()
	}
	if fault != nil && (!unusable(fault) || !j.salvageFormat()) {
		return nil, fault
	}
	if j.lock, err = dir.Lock(lockFile); err != nil {
		if errors.Is(err, disk.ErrLocked) {
			return nil, fmt.Errorf("the data directory is %w", disk.ErrLocked)
		}
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	c := newCheckup(j, o)
	if fault != nil {
		c.fileDamage(formatFile, "journal format", fault)
	}
	if err := c.readProof(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// unusable reports whether err means that the content of a file cannot be used. For any other error
// of the file system another attempt may succeed.
func unusable(err error) bool {
	return errors.Is(err, engine.ErrDamaged) || errors.Is(err, ErrForeign) || errors.Is(err, syscall.EIO)
}

// fileDamage records damage to a file that a repair can write again.
func (c *checkup) fileDamage(name, what string, err error) {
	if d, ok := errors.AsType[*DamageError](err); ok {
		err = d.Err
	}
	c.files = append(c.files, &hole{seg: &segment{name: name}, what: what, err: err, frame: true})
}

// readProof reads the file "end", which proves how far the log reached. If "end" is unusable, only
// a tail without a final watermark proves that no later segment was used.
func (c *checkup) readProof() error {
	if c.j.version < 2 {
		return nil
	}
	err := c.j.readEnd()
	if err != nil && unusable(err) {
		c.endLost = true
		c.fileDamage(endFile, "end of the log", err)
		return nil
	}
	return err
}

// newCheckup returns a check of a journal whose format is known and whose lock is held.
func newCheckup(j *Journal, o CheckOptions) *checkup {
	c := &checkup{
		recovery: newRecovery(j), o: o, buf: make([]byte, j.size), harmed: map[uint64]*inspection{}, hurt: map[uint64]bool{}, lostMarks: map[uint64]bool{},
		drafts: map[uint64]bool{}, orphans: map[uint64]bool{},
	}
	c.dropped = map[uint64]bool{}
	return c
}

func (c *checkup) close() {
	c.closeFiles()
	c.j.closeAll()
}

func (c *checkup) run() (*Report, error) {
	c.holes = slices.Clone(c.files)
	for _, step := range []func() error{c.openAll, c.findEnd, c.readAll, c.judge, c.ask} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	c.sum()
	return &c.report, nil
}

// openAll opens the segment files. inspect checks their content later, including the header.
func (c *checkup) openAll() error { return c.openEach(func(*segment) error { return nil }) }

// inspect reads one segment and reports progress. findEnd and readAll both read the tail, so the
// total is the size of all files plus one segment.
func (c *checkup) inspect(n uint64) (*inspection, error) {
	synced := int64(0)
	if c.j.end.latest.segment == n {
		synced = c.j.end.latest.offset
	}
	x, err := inspect(c.segments[n], c.j.size, synced, c.buf)
	if err != nil {
		return nil, err
	}
	if c.done += c.j.size; c.o.Progress != nil {
		c.o.Progress(c.done, max(c.done, int64(len(c.numbers)+1)*c.j.size))
	}
	return x, nil
}

// findEnd finds the tail and the list of segments that should exist.
func (c *checkup) findEnd() error {
	var newest *manifest
	for _, n := range slices.Backward(c.numbers) {
		x, err := c.inspect(n)
		if err != nil {
			return err
		}
		begun := x.begun()
		if c.tail == nil && !begun && (len(x.holes) == 0 || c.above(n)) {
			if c.unused = append(c.unused, x.seg); !c.sound(x) {
				c.harmed[n] = x
			}
			continue
		}
		if c.tail == nil && begun {
			c.tail, c.tailed = x.seg, x
		}
		c.listed = append(c.listed, n) // the segment belongs to the journal even if its manifest is lost
		if k := len(x.manifests); k > 0 {
			newest = &x.manifests[k-1]
			c.manifest = place{uint32(n), uint32(newest.off)}
			break
		}
	}
	if newest != nil {
		c.listed = append(c.listed, newest.list...)
		c.j.commit.next, c.cutOff = newest.next, newest.draft
	}
	c.listMissing()
	slices.Sort(c.listed)
	c.listed = slices.Compact(c.listed)
	return nil
}

// above reports whether the file "end" proves that segment n never held a group.
func (c *checkup) above(n uint64) bool { return c.j.end.count > 0 && n > c.j.end.latest.segment }

// below reports whether the file "end" proves that the log continues after segment n.
func (c *checkup) below(n uint64) bool { return n < c.j.end.latest.segment }

// sealing reports whether a crash may have come before segment n was sealed. Only the newest segment
// and the one before it can be without an index.
func (c *checkup) sealing(n uint64) bool {
	return c.tail != nil && n+1 >= max(c.tail.number, c.j.end.latest.segment)
}

// listMissing lists segments after the tail that were used, or may have been used, and whose files
// are missing.
func (c *checkup) listMissing() {
	tail, last := uint64(0), c.j.end.latest.segment
	if c.tail != nil {
		tail = c.tail.number
	}
	if c.endLost && (c.tail == nil || c.tailed.proved) { // a segment whose end is final is followed by another
		c.listed = append(c.listed, tail+1)
	}
	for n := last; n > tail && n+mostMissing > last; n-- {
		if c.segments[n] == nil {
			c.listed = append(c.listed, n)
		}
	}
}

// mostMissing is the largest number of missing segments after the tail that are reported one by
// one. If more are missing, nearly all of the journal is lost.
const mostMissing = 1000

// sound records the damage of a segment. It returns true if the segment has none.
func (c *checkup) sound(x *inspection) bool {
	c.holes = append(c.holes, x.holes...)
	return len(x.holes) == 0
}

// readAll reads every segment that should exist, in order, and applies its valid records.
func (c *checkup) readAll() error {
	var before *inspection
	for _, n := range c.listed {
		if c.segments[n] == nil {
			s := &segment{number: n, name: segmentName(n)}
			c.holes = append(c.holes, &hole{seg: s, what: "segment", err: errMissing, count: room(c.j.size - dataStart)})
			c.missing++
			c.ended(before, n, 0)
			before = nil
			continue
		}
		x, err := c.inspect(n)
		if err != nil {
			return err
		}
		if c.sealing(n) {
			x.unseal()
		} else if !x.sealed && !slices.ContainsFunc(x.holes, func(h *hole) bool { return h.what == "index" }) {
			x.structural(x.size-footerSize, footerSize, "footer", errChecksum)
		}
		c.ended(before, n, x.first)
		if before = x; !c.sound(x) {
			c.harmed[n] = x
		}
		if k := len(x.manifests); k > 0 && x.manifests[k-1].draft {
			c.drafts[n] = true
		}
		c.j.store.addSegment(x.seg)
		if err := c.applyValid(x); err != nil {
			return err
		}
		if !x.sealed {
			c.unsealed = append(c.unsealed, x)
		} else if c.harmed[n] == nil {
			x.slots = nil
		}
	}
	if c.tailed != nil {
		c.report.Torn = c.tailed.torn
	}
	if e := c.j.end.latest; before != nil && before.seg != c.tail {
		c.ended(before, 0, 0)
	} else if before != nil && c.below(before.seg.number) {
		c.ended(before, e.segment, e.group)
	}
	return nil
}

// ended reports groups that a segment other than the newest has lost, or may have lost, at its end.
// next is the number of the next segment, and group is the number of the first group in it, or 0 if
// that is not known. Three things can prove where a segment ends: its footer, its final watermark, or
// the number of the next group.
func (c *checkup) ended(x *inspection, next, group uint64) {
	switch {
	case x == nil || x.proved || x.marked && x.seg != c.tail || next == x.seg.number+1 && group == x.group+1:
		return
	case next == x.seg.number+1 && group > x.group:
		x.unknown(fmt.Errorf("groups %d to %d are missing", x.group+1, group-1))
	default:
		x.unknown(errors.New("more groups may have followed"))
	}
	c.holes = append(c.holes, x.holes[len(x.holes)-1])
	c.harmed[x.seg.number] = x
}

// applyValid applies the valid records of a segment, and the records in which it can correct a
// single flipped bit.
func (c *checkup) applyValid(x *inspection) error {
	x.seg.sealed.Store(x.sealed)
	c.report.Records += x.records
	w := &window{seg: x.seg}
	for b := x.slots; len(b) > 0; b = b[slotSize:] {
		if err := c.apply(w, decodeSlot(b)); err != nil {
			return err
		}
	}
	for _, h := range x.holes {
		if next := &c.j.commit.next; h.known {
			switch h.slot.kind {
			case kindMark:
				*next = max(*next, uint64(h.slot.time)+1)
			case kindDocument, kindDeleted, kindManifest:
				*next = max(*next, h.slot.seq+1)
			}
		}
		if h.mended == nil {
			continue
		}
		at := place{uint32(x.seg.number), h.slot.off}
		if h.slot.kind == kindBatch || h.slot.kind == kindGapClosed {
			c.insert(at, h.slot)
			c.hurt[h.slot.log] = true
		} else {
			c.applyRecord(at, h.mended)
		}
	}
	return nil
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
			l = &log{j: c.j, id: d.Created}
		}
		err := l.restore(context.Background(), l.note, asked(func(note []byte, entries iter.Seq[engine.Header]) error {
			return c.o.Document(d.Document, note, entries)
		}))
		if err != nil {
			if isDisk(err) {
				return err
			}
			c.add(Damage{
				File: segmentName(uint64(d.at.segment)), Offset: int64(d.at.off), What: "document", Why: err.Error(), Document: key, Fate: Lost,
			})
		}
	}
	return nil
}

// ending returns where the log ends, as this check found it.
func (c *checkup) ending() ending {
	if x := c.tailed; x != nil {
		return ending{x.seg.number, x.end, x.group + 1}
	}
	return ending{group: 1}
}

// isDisk reports whether err is an error of the disk, as opposed to bad content.
func isDisk(err error) bool {
	_, ok := errors.AsType[*fs.PathError](err)
	return ok && !errors.Is(err, engine.ErrDamaged)
}

// asked is a judge that only receives the content of a log.
type asked func(note []byte, entries iter.Seq[engine.Header]) error

func (f asked) Restore(note []byte, entries iter.Seq[engine.Header]) error { return f(note, entries) }
func (asked) Admit(*engine.Entry) bool                                     { return false }
func (asked) Commit(int)                                                   {}
func (asked) Dropped()                                                     {}

func (c *checkup) add(d Damage) { c.report.Damages = append(c.report.Damages, d) }

// sum fills in the counts of the report.
func (c *checkup) sum() {
	r := &c.report
	r.Segments = len(c.listed) - c.missing
	r.Ready = len(c.numbers) - r.Segments
	r.Bytes = int64(len(c.numbers)) * c.j.size
	r.Documents, r.MayBeLost, r.MayBeStale = map[string]int{}, c.unknown, []string{}
	for key, d := range c.docs {
		kind, _, _ := strings.Cut(key, "/")
		r.Documents[kind]++
		if c.stale(d.at.place) {
			r.MayBeStale = append(r.MayBeStale, key)
		}
		l := c.logs[uint64(d.Created)]
		if l == nil {
			continue
		}
		above := l.low // the sequence after the previous entry
		l.index.ascend(0, func(it item) bool {
			switch {
			case it.kind == kindGapClosed && it.flags&engine.Lost != 0:
				r.LostBatches += uint64(it.seq + 1 - min(above, it.seq))
			case it.kind == kindGapClosed:
				r.ClosedGaps++
			case it.flags&engine.Lost != 0:
				r.LostBatches++
			default:
				r.Batches++
				r.Payload += int64(it.size)
			}
			above = it.seq + 1
			return true
		})
	}
	slices.Sort(r.MayBeStale)
	if r.Damages == nil {
		r.Damages = []Damage{}
	}
}
