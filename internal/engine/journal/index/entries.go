package index

import "weir"

// Entries finds the entries of one log by sequence. Of a million logs, most have one entry or none,
// so a single entry has a form of its own, without further memory.
type Entries struct {
	one  single  // the only entry
	many *chunks // the entries, if the log has or had more than one
}

// single is the item of a log that has only one. It is zero if there is none.
type single struct {
	seq  weir.Seq
	time weir.Time
	fact
}

// exists reports whether there is an item. Every item has a kind, so the packed size is not zero.
func (s *single) exists() bool { return s.size != 0 }

func (s *single) item() Item {
	it := Item{Seq: s.seq, Time: s.time}
	s.unpack(&it)
	return it
}

// Len returns the number of items.
func (x *Entries) Len() int {
	switch {
	case x.one.exists():
		return 1
	case x.many != nil:
		return x.many.len()
	}
	return 0
}

// Find returns the item with this sequence, if there is one.
func (x *Entries) Find(seq weir.Seq) (Item, bool) {
	switch {
	case x.one.exists():
		return x.one.item(), x.one.seq == seq
	case x.many != nil:
		return x.many.find(seq)
	}
	return Item{}, false
}

// Insert adds an item. If the index has an item with the same sequence, Insert replaces that item
// and returns it. Both items describe the same entry. If either of them has the size of the
// idempotency key, the index keeps that size.
func (x *Entries) Insert(it Item) (old Item, replaced bool) {
	switch {
	case x.many != nil:
		return x.many.insert(it)
	case !x.one.exists():
		x.one = single{it.Seq, it.Time, pack(&it)}
		return Item{}, false
	}
	if old = x.one.item(); old.Seq == it.Seq {
		it.Key = max(it.Key, old.Key)
		x.one = single{it.Seq, it.Time, pack(&it)}
		return old, true
	}
	x.one, x.many = single{}, new(chunks)
	x.many.insert(old)
	return x.many.insert(it)
}

// Add does the same as Insert. It is faster for an item with a higher sequence than all others, and
// does not return the item that it replaced.
func (x *Entries) Add(it *Item) {
	if x.many == nil || !x.many.append(it) {
		x.Insert(*it)
	}
}

// Learn stores sizes of keys that were read from disk. The slice sizes must be sorted by sequence.
// Entries that were removed in the meantime are skipped.
func (x *Entries) Learn(sizes []KeySize) {
	if x.many != nil {
		x.many.learn(sizes)
	}
	for _, s := range sizes {
		if x.one.exists() && x.one.seq == s.Seq {
			x.one.key = s.Size
		}
	}
}

// Ascend visits the items from seq upwards until visit returns false.
func (x *Entries) Ascend(seq weir.Seq, visit func(Item) bool) {
	if x.many != nil {
		x.many.ascend(seq, visit)
	} else if x.one.exists() && x.one.seq >= seq {
		visit(x.one.item())
	}
}

// Fill visits the items from seq upwards and copies each into the item that next returns. It stops
// when next returns nil.
func (x *Entries) Fill(seq weir.Seq, next func() *Item) {
	if x.many != nil {
		x.many.fill(seq, next)
	} else if x.one.exists() && x.one.seq >= seq {
		if it := next(); it != nil {
			*it = x.one.item()
		}
	}
}

// Cut removes the items below low and returns them as a separate index. Later inserts into x do not
// change the returned index.
func (x *Entries) Cut(low weir.Seq) (out Entries) {
	switch {
	case x.one.exists() && x.one.seq < low:
		out.one, x.one = x.one, single{}
	case x.many != nil:
		if gone := x.many.cut(low); len(gone.list) > 0 {
			out.many = &gone
		}
		if len(x.many.list) == 0 {
			x.many = nil
		}
	}
	return out
}
