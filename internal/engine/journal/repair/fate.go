package repair

import (
	"cmp"

	"weir"
	"weir/internal/engine"
	"weir/internal/engine/journal/index"
	"weir/internal/engine/journal/segments"
)

// judge determines the fate of every damaged range: what the damage means for the data. Documents
// come first, because the documents decide which logs exist.
func (c *checkup) judge() error {
	for _, h := range c.holes {
		c.skipRevision(h)
		switch {
		case h.Fate != "":
		case h.Slot.Kind == segments.KindDocument || h.Slot.Kind == segments.KindDeleted:
			c.judgeDocument(h)
		case h.Slot.Kind == segments.KindManifest:
			c.judgeManifest(h)
		case h.Slot.Kind == segments.KindMark && c.log(h.Slot.Log).revision < h.Slot.Time:
			l := c.log(h.Slot.Log)
			l.low, l.note, l.mark = max(l.low, weir.Seq(h.Slot.Seq)), nil, index.Extent{}
			c.lostMarks[h.Slot.Log] = true
		}
	}
	owners := map[uint64]string{} // document keys by log, including those of lost documents
	for id, key := range c.lost {
		owners[id], c.orphans[id] = key, true
	}
	for key, d := range c.docs {
		owners[uint64(d.Created)] = key
	}
	c.findUnknown(owners)
	c.settle()
	c.report.Damages = []Damage{}
	for _, h := range c.holes {
		if h.Known {
			c.describe(h, owners)
		}
		c.report.Damages = append(c.report.Damages, h.Damage)
	}
	for it := range c.orphaned {
		if it.Kind == segments.KindBatch && it.Flags&engine.Lost == 0 {
			c.report.Orphans++
		}
	}
	return nil
}

// skipRevision makes sure that the revision of a damaged record is not used again.
func (c *checkup) skipRevision(h *segments.Hole) {
	switch next := &c.next; {
	case h.Known && h.Slot.Kind == segments.KindMark:
		*next = max(*next, uint64(h.Slot.Time)+1)
	case h.Known && !h.Slot.Kind.Entry():
		*next = max(*next, h.Slot.Seq+1)
	}
}

// describe says in the report of a damaged range which record was there. It also determines the
// fate of that record, unless the fate is known already.
func (c *checkup) describe(h *segments.Hole, owners map[uint64]string) {
	id, seq := h.Slot.Log, weir.Seq(h.Slot.Seq)
	h.What, h.Log, h.Document = h.Slot.Kind.String(), engine.LogID(id), owners[id]
	if h.Slot.Kind.Entry() {
		h.Seq = &seq
	} else if h.Key != "" {
		h.Document = h.Key
	}
	if _, owned := owners[id]; h.Fate == "" {
		h.Fate = c.fate(h, owned || c.orphans[id])
	}
	if h.Fate == Lost || h.Fate == Mended && h.Slot.Kind.Entry() { // not all entries of the log can be read before a repair
		c.hurt[id] = true
	}
}

// orphaned visits the entries of logs whose document is lost.
func (c *checkup) orphaned(yield func(index.Item) bool) {
	more := true
	for id := range c.orphans {
		if l := c.logs[id]; l != nil && more {
			l.index.Ascend(l.low, func(it index.Item) bool {
				more = yield(it)
				return more
			})
		}
	}
}

// findUnknown counts the records with unknown content. If there are any, a log with neither a
// document nor a deletion is an orphan: the document or the deletion was in the unknown data, and
// there is no way to tell which of the two.
func (c *checkup) findUnknown(owners map[uint64]string) {
	for _, h := range c.holes {
		if h.Fate == Unknown {
			c.unknown += h.Count
			if c.last.Before(placeOf(h)) {
				c.last = placeOf(h)
			}
		}
	}
	for id, l := range c.logs {
		_, owned := owners[id]
		if _, dropped := c.dropped[id]; c.unknown > 0 && !owned && !dropped && l.index.Len() > 0 {
			c.orphans[id] = true
		}
	}
}

// placeOf returns the position of a damaged range.
func placeOf(h *segments.Hole) index.Place {
	return index.Place{Segment: uint32(h.Number), Off: uint32(h.Offset)}
}

// stale reports whether the state of a document at this position may be outdated, because a newer
// state may have been in the unknown data. A record after all unknown data is the newest state,
// even if the record is a copy, because only current records are copied.
func (c *checkup) stale(at index.Place) bool { return c.unknown > 0 && !c.last.Before(at) }

// judgeManifest determines the fate of a manifest (a list of the journal's segments) that cannot be
// read. If it is the newest, the check uses an older one, which may list segments that were freed
// since. Such a segment may hold the state of a document whose deletion is lost, because the
// segment with the deletion was freed too.
func (c *checkup) judgeManifest(h *segments.Hole) {
	h.Fate = Intact
	if c.manifest.Before(placeOf(h)) {
		h.Fate, h.Known, h.What, h.Count = Unknown, false, segments.KindManifest.String(), 1
	}
}

// judgeDocument determines the fate of a document or a deletion that cannot be read. An older state
// of the document never replaces the unreadable one: otherwise a revoked key could become valid
// again.
func (c *checkup) judgeDocument(h *segments.Hole) {
	h.Fate = Lost
	key, revision := cmp.Or(h.Key, c.dropped[h.Slot.Log]), engine.Revision(h.Slot.Seq)
	for k, d := range c.docs {
		if key == "" && uint64(d.Created) == h.Slot.Log {
			key = k
		}
	}
	d, t := c.docs[key], c.deleted[key]
	if d != nil && (d.Revision >= revision || uint64(d.Created) > h.Slot.Log) || t != nil && t.revision >= revision ||
		d == nil && h.Slot.Kind == segments.KindDeleted {
		h.Fate = Dead
		return
	}
	delete(c.docs, key)
	if c.lost[h.Slot.Log] == "" {
		c.lost[h.Slot.Log] = key
	}
}

// fate returns the fate of a damaged entry or mark (the record of a trim). The parameter alive says
// whether the log of the record still has a document, or may have had one.
func (c *checkup) fate(h *segments.Hole, alive bool) Fate {
	l, dead := c.logs[h.Slot.Log], !alive
	if h.Slot.Kind == segments.KindMark {
		dead = dead || l != nil && l.revision >= h.Slot.Time
	} else if l != nil {
		_, copied := l.index.Find(weir.Seq(h.Slot.Seq))
		dead = dead || copied || weir.Seq(h.Slot.Seq) < l.low
	}
	if dead {
		return Dead
	}
	return Lost
}
