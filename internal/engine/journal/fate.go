package journal

import (
	"weir"
	"weir/internal/engine"
)

// kindNames are what a person calls the kinds of records.
var kindNames = map[kind]string{
	kindBatch: "batch", kindGapClosed: "closed gap", kindMark: "mark", kindDocument: "document", kindDeleted: "deletion", kindManifest: "manifest",
}

// judge says of everything that is damaged what becomes of it. Documents come first: what is lost of them decides which
// logs there are.
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
	names := map[uint64]string{} // of logs, also of those that are lost
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

// eachOrphan visits the entries of a log that has lost its document.
func (c *checkup) eachOrphan(id uint64, visit func(item)) {
	if l := c.logs[id]; l != nil {
		l.index.ascend(l.low, func(it item) bool {
			visit(it)
			return true
		})
	}
}

// findUnknown counts the records that nobody can tell. When there are any, a log with neither a document nor a deletion has
// lost one of them there: which one, nobody can tell either.
func (c *checkup) findUnknown() {
	for _, h := range c.holes {
		if !h.known && !h.frame && h.mended == nil {
			c.unknown += h.count
			if at := (place{uint32(h.seg.number), uint32(h.off)}); c.last.before(at) {
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

// stale tells whether what memory points to at this place may not be the newest state: that may have been among what
// nobody can tell. What lies after all of that is the newest, also where it is a copy: only what counts is copied. What a repair
// wrote that was cut off proves nothing, since it knew no more than this one.
func (c *checkup) stale(at place) bool {
	return c.unknown > 0 && (!c.last.before(at) || c.cutOff && c.drafts[uint64(at.segment)])
}

// room is how many records so many bytes of a sealed segment can hold.
func room(bytes int64) int { return int(max(bytes, 0)/(recordSize+slotSize)) + 1 }

// judgeDocument settles a document whose record, or whose deletion, cannot be read. An older state of it never comes
// back in its place: a key that was revoked would be good again.
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

// fate is what becomes of what is damaged, when documents and logs are known.
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
		for _, d := range c.docs { // one that has no whole entry
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
