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
	names := map[uint64]string{} // of logs, also of those that are lost
	for _, d := range c.lostDocs {
		names[d.created] = d.key
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
	for _, d := range c.lostDocs {
		if l := c.logs[d.created]; l != nil {
			l.index.ascend(l.low, func(it item) bool {
				if it.kind == kindBatch && it.flags&engine.Lost == 0 {
					c.report.Orphans++
				}
				return true
			})
		}
	}
	return nil
}

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
		c.unknown += h.count
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
