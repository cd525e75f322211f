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

	"weir"
	"weir/internal/disk"
	"weir/internal/engine"
)

// CheckOptions are what a check is told by rooms that know what documents and logs mean.
type CheckOptions struct {
	// Document is asked about every document whose log is undamaged, with the note and the entries of the log (Count
	// and ContentType are not set): why it cannot be used, or nil.
	Document func(d engine.Document, note []byte, entries iter.Seq[engine.Header]) error
	// Progress, when set, is told how many bytes were read, and of how many.
	Progress func(done, total int64)
}

// Fate is what becomes of what is damaged.
type Fate string

// The fates.
const (
	Dead    Fate = "dead"    // nothing is lost: it was trimmed, replaced or deleted, or there is another copy
	Intact  Fate = "intact"  // nothing is lost: what is damaged can be made again from what is whole
	Mended  Fate = "mended"  // one bit is wrong, and a repair turns it back
	Lost    Fate = "lost"    // it cannot be read any more
	Unknown Fate = "unknown" // nobody can tell what was there
)

// Damage is one place that does not hold what it should.
type Damage struct {
	File     string       `json:"file"`
	Offset   int64        `json:"offset"`
	What     string       `json:"what"`
	Why      string       `json:"why"`
	Log      engine.LogID `json:"-"`
	Document string       `json:"document,omitempty"` // the key of the document that the log belongs to, or of the document itself
	Seq      *weir.Seq    `json:"seq,omitempty"`      // of an entry
	Fate     Fate         `json:"fate"`
}

// Report is what a check found.
type Report struct {
	Segments    int            `json:"segments"`
	Ready       int            `json:"ready"` // files that are prepared or given up, and hold nothing that counts
	Bytes       int64          `json:"bytes"` // of the files of both
	Records     int            `json:"records"`
	Documents   map[string]int `json:"documents"` // by the part of their keys before the slash
	Batches     int            `json:"batches"`   // that can be read
	Payload     int64          `json:"payload"`   // bytes in those
	ClosedGaps  int            `json:"closed_gaps"`
	Torn        int64          `json:"torn"` // bytes of a newest write that a crash cut short, which nobody was told of
	Damages     []Damage       `json:"damages"`
	Orphans     int            `json:"orphans"`      // batches of logs whose document is lost, or perhaps its deletion
	MayBeLost   int            `json:"may_be_lost"`  // most records of which nobody can tell what they were
	MayBeStale  []string       `json:"may_be_stale"` // documents that may have been changed or deleted in one of those
	LostBatches uint64         `json:"lost_batches"` // sequences that an earlier repair gave up
}

// checkup is a check under way. It goes through the steps of a recovery, but reads every byte and stops at no damage.
type checkup struct {
	*recovery
	o         CheckOptions
	report    Report
	buf       []byte
	tailed    *inspection            // the tail
	harmed    map[uint64]*inspection // segments with damage
	listed    []uint64
	holes     []*hole
	missing   int             // segments that are listed and not there
	unknown   int             // records that nobody can tell
	last      place           // of the last place that holds some of them
	cutOff    bool            // the newest segments are those of a repair that was not done
	drafts    map[uint64]bool // segments of repairs
	lostDocs  []lostDocument
	orphans   map[uint64]bool // logs with entries, and without their document
	hurt      map[uint64]bool // logs with damage
	lostMarks map[uint64]bool // logs whose mark cannot be read; low is known all the same
	done      int64
}

// lostDocument is a document whose newest state, or whose deletion, cannot be read.
type lostDocument struct {
	key     string // empty: not known
	created uint64
}

// Check reads every byte of a journal that nobody has open and says what is there and what is damaged. It changes
// nothing. Errors: disk.ErrLocked, ErrForeign, ErrNewer, engine.ErrDamaged when the format itself is damaged, without which nothing can be
// read, or that of the file system.
func Check(dir disk.FS, o CheckOptions) (*Report, error) {
	c, err := openCheckup(dir, o)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return c.run()
}

func openCheckup(dir disk.FS, o CheckOptions) (*checkup, error) {
	names, err := dir.List()
	if err != nil {
		return nil, fmt.Errorf("list the data directory: %w", err)
	}
	if !slices.Contains(names, formatFile) {
		return nil, fmt.Errorf("%w: there is no file %s", ErrForeign, formatFile)
	}
	j := newJournal(dir, Options{SegmentSize: defaultSegment, Ahead: 1})
	if _, err := j.identify(); err != nil {
		j.giveUp()
		return nil, err
	}
	return newCheckup(j, o), nil
}

// newCheckup checks a journal whose format is known and whose lock is held.
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
	if c.j.lock != nil {
		c.j.lock.Close()
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

// openAll opens the files; what they hold is looked at later, all at once.
func (c *checkup) openAll() error { return c.openEach(func(*segment) error { return nil }) }

func (c *checkup) inspect(n uint64) (*inspection, error) {
	x, err := inspect(c.segments[n], c.j.size, c.buf)
	if err != nil {
		return nil, err
	}
	if c.done += c.j.size; c.o.Progress != nil {
		c.o.Progress(c.done, max(c.done, int64(len(c.numbers)+1)*c.j.size))
	}
	return x, nil
}

// findEnd finds the tail, and which segments there should be.
func (c *checkup) findEnd() error {
	var newest *manifest
	for _, n := range slices.Backward(c.numbers) {
		x, err := c.inspect(n)
		if err != nil {
			return err
		}
		switch {
		case c.tail == nil && !x.begun():
			if c.unused = append(c.unused, x.seg); !c.sound(x) {
				c.harmed[n] = x
			}
			continue
		case c.tail == nil:
			c.tail, c.tailed = x.seg, x
			x.unseal()
		}
		c.listed = append(c.listed, n) // also without a manifest
		if k := len(x.manifests); k > 0 {
			newest = &x.manifests[k-1]
			break
		}
	}
	if newest != nil {
		c.listed = append(c.listed, newest.list...)
		c.j.commit.next, c.cutOff = newest.next, newest.draft
	}
	slices.Sort(c.listed)
	c.listed = slices.Compact(c.listed)
	return nil
}

// sound notes what is damaged in a segment; false when something is.
func (c *checkup) sound(x *inspection) bool {
	c.holes = append(c.holes, x.holes...)
	return len(x.holes) == 0
}

// readAll reads every segment there should be, in order, and takes in what is whole.
func (c *checkup) readAll() error {
	var before *inspection
	for _, n := range c.listed {
		if c.segments[n] == nil {
			s := &segment{number: n, name: segmentName(n)}
			c.holes = append(c.holes, &hole{seg: s, what: "segment", err: errMissing, count: room(c.j.size - dataStart)})
			c.missing++
			before = nil
			continue
		}
		x, err := c.inspect(n)
		if err != nil {
			return err
		}
		if x.seg == c.tail {
			x.unseal()
		} else if !x.sealed && !slices.ContainsFunc(x.holes, func(h *hole) bool { return h.what == "index" }) {
			x.structural(x.size-footerSize, footerSize, "footer", errChecksum)
		}
		if before != nil && !before.sealed && before.seg.number+1 == n && x.first > before.group+1 { // it lost its end
			c.holes = append(c.holes, &hole{seg: before.seg, off: before.end, what: "group", count: room(before.size - before.end),
				err: fmt.Errorf("groups %d to %d are missing", before.group+1, x.first-1)})
		}
		if before = x; !c.sound(x) {
			c.harmed[n] = x
		}
		if k := len(x.manifests); k > 0 && x.manifests[k-1].draft {
			c.drafts[n] = true
		}
		c.j.store.addSegment(x.seg)
		if err := c.takeIn(x); err != nil {
			return err
		}
		if c.harmed[n] == nil {
			x.slots = nil
		}
	}
	if c.tailed != nil {
		c.report.Torn = c.tailed.torn
	}
	return nil
}

// takeIn applies the whole records of a segment, and those that can be mended.
func (c *checkup) takeIn(x *inspection) error {
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
			c.log(h.slot.log).index.insert(item{
				seq: weir.Seq(h.slot.seq), time: weir.Time(h.slot.time), place: at, size: h.slot.size, head: h.slot.head,
				kind: h.slot.kind, flags: h.slot.flags, keyed: h.slot.keyed,
			})
			c.hurt[h.slot.log] = true
		} else {
			c.applyRecord(at, h.mended)
		}
	}
	return nil
}

// ask asks about every document that counts.
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

// isDisk tells a fault of the disk from one of what is on it.
func isDisk(err error) bool {
	_, ok := errors.AsType[*fs.PathError](err)
	return ok && !errors.Is(err, engine.ErrDamaged)
}

// asked is a judge that only looks.
type asked func(note []byte, entries iter.Seq[engine.Header]) error

func (f asked) Restore(note []byte, entries iter.Seq[engine.Header]) error { return f(note, entries) }
func (asked) Admit(*engine.Entry) bool                                     { return false }
func (asked) Commit(int)                                                   {}
func (asked) Dropped()                                                     {}

func (c *checkup) add(d Damage) { c.report.Damages = append(c.report.Damages, d) }

// sum counts what is there.
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
		above := l.low // the sequence above the item before
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
