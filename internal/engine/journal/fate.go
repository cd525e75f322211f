package journal

import (
	"weir"
	"weir/internal/engine"
)

// kindNames are the names of record kinds in reports.
var kindNames = map[kind]string{
	kindBatch: "batch", kindGapClosed: "closed gap", kindMark: "mark", kindDocument: "document", kindDeleted: "deletion", kindManifest: "manifest",
}

// judge determines the fate of every damaged range (what its damage means for the data). Documents
// come first, because the lost documents decide which logs exist.
func (c *checkup) judge() error {
	for _, h := range c.holes {
		if h.known && h.mended == nil && (h.slot.kind == kindDocument || h.slot.kind == kindDeleted) {
			c.judgeDocument(h)
		}
		if h.known && h.mended == nil && h.slot.kind == kindMark && c.marks[h.slot.log] < h.slot.time {
			l := c.log(h.slot.log)
			l.low, l.note, l.mark = max(l.low, weir.Seq(h.slot.seq)), nil, extent{}
			c.lostMarks[h.slot.log] = true
		}
	}
	c.findUnknown()
	names := map[uint64]string{} // document keys by log, including those of lost documents
	for _, d := range c.lostDocs {
		names[d.created] = d.key
		c.orphans[d.created] = true
	}
	for key, d := range c.docs {
		names[uint64(d.Created)] = key
	}
	if err := c.settle(); err != nil {
		return err
	}
	for _, h := range c.holes {
		d := Damage{File: h.seg.name, Offset: h.off, What: h.what, Why: h.err.Error(), Fate: c.fate(h)}
		if h.known {
			d.What, d.Log, d.Document = kindNames[h.slot.kind], engine.LogID(h.slot.log), names[h.slot.log]
			if h.key != "" && (h.slot.kind == kindDocument || h.slot.kind == kindDeleted) {
				d.Document = h.key
			}
			if h.slot.kind == kindBatch || h.slot.kind == kindGapClosed {
				seq := weir.Seq(h.slot.seq)
				d.Seq = &seq
			}
			if d.Fate == Lost {
				c.hurt[h.slot.log] = true
			}
		}
		c.add(d)
	}
	for id := range c.orphans {
		c.eachOrphan(id, func(it item) {
			if it.kind == kindBatch && it.flags&engine.Lost == 0 {
				c.report.Orphans++
			}
		})
	}
	return nil
}

// eachOrphan visits the entries of a log whose document is lost.
func (c *checkup) eachOrphan(id uint64, visit func(item)) {
	if l := c.logs[id]; l != nil {
		l.index.ascend(l.low, func(it item) bool {
			visit(it)
			return true
		})
	}
}

// findUnknown counts the records with unknown content. If there are any, a log with neither a
// document nor a deletion is an orphan: the document or the deletion was in the unknown data, and
// there is no way to tell which of the two.
func (c *checkup) findUnknown() {
	for _, h := range c.holes {
		at := place{uint32(h.seg.number), uint32(h.off)}
		if h.known && h.slot.kind == kindManifest && h.mended == nil && c.manifest.before(at) {
			// This manifest is damaged, so an older one is used. The older manifest may list
			// segments that were freed later. They may hold states of documents whose deletions
			// were in segments freed later too.
			h.known, h.what, h.count = false, kindNames[kindManifest], 1
		}
		if !h.known && !h.frame && h.mended == nil {
			c.unknown += h.count
			if c.last.before(at) {
				c.last = at
			}
		}
	}
	if c.unknown == 0 {
		return
	}
	owned := map[uint64]bool{}
	for _, d := range c.docs {
		owned[uint64(d.Created)] = true
	}
	for id, l := range c.logs {
		if !owned[id] && !c.dropped[id] && len(l.index.chunks) > 0 {
			c.orphans[id] = true
		}
	}
}

// stale reports whether the state of a document at this position may be outdated, because a newer
// state may have been in the unknown data. A record after all unknown data is the newest state,
// even if the record is a copy, because only current records are copied. A record written by an
// interrupted repair proves nothing, because that repair knew no more than this one.
func (c *checkup) stale(at place) bool {
	return c.unknown > 0 && (!c.last.before(at) || c.cutOff && c.drafts[uint64(at.segment)])
}

// room returns the largest number of records that fit in this many bytes of a sealed segment.
func room(bytes int64) int { return int(max(bytes, 0)/(recordSize+slotSize)) + 1 }

// judgeDocument determines the fate of a document or a deletion that cannot be read. An older state
// of the document never replaces the unreadable one: otherwise a revoked key could become valid
// again.
func (c *checkup) judgeDocument(h *hole) {
	h.fate = Lost
	key, revision := h.key, engine.Revision(h.slot.seq)
	for k, d := range c.docs {
		if key == "" && uint64(d.Created) == h.slot.log {
			key = k
		}
	}
	for k, t := range c.deleted {
		if key == "" && uint64(t.created) == h.slot.log {
			key = k
		}
	}
	d, t := c.docs[key], c.deleted[key]
	switch {
	case d != nil && (d.Revision >= revision || uint64(d.Created) > h.slot.log), t != nil && t.revision >= revision,
		h.slot.kind == kindDeleted && d == nil:
		h.fate = Dead
		return
	case d != nil:
		delete(c.docs, key)
	}
	c.lostDocs = append(c.lostDocs, lostDocument{key, h.slot.log})
}

// fate returns what the damage at h means for the data. It is called after the fate of all
// documents is known and the content of the logs is settled.
func (c *checkup) fate(h *hole) Fate {
	switch {
	case h.frame:
		return Intact
	case h.mended != nil:
		return Mended
	case !h.known:
		return Unknown
	}
	switch h.slot.kind {
	case kindDocument, kindDeleted:
		return h.fate
	case kindManifest:
		return Intact
	}
	l := c.j.store.log(engine.LogID(h.slot.log))
	if l == nil {
		if c.orphans[h.slot.log] {
			return Lost
		}
		for _, d := range c.docs { // the document exists, but its log has no valid entry
			if uint64(d.Created) == h.slot.log {
				return Lost
			}
		}
		return Dead
	}
	if h.slot.kind == kindMark {
		if c.marks[h.slot.log] >= h.slot.time {
			return Dead
		}
		return Lost
	}
	_, there := l.index.find(weir.Seq(h.slot.seq))
	if there || weir.Seq(h.slot.seq) < l.low {
		return Dead
	}
	return Lost
}
