package journal

import (
	"strings"

	"github.com/tidwall/btree"

	"weir/internal/engine"
)

// documentMap holds the documents in the order of their keys. A server may have a million streams,
// each with a document, and the values of these documents differ only in a few bytes. So the map
// stores only the part of a value that differs from another value of the same kind. The kind is the
// part of the key before the slash.
type documentMap struct {
	tree *btree.BTreeG[*compact]
	like map[string]*string // by kind: the value that new values are compared with
}

// compact is a document in a form that takes little memory. It never changes once it is in the map.
type compact struct {
	text     string  // the key, followed by the middle of the value
	like     *string // another value, with the same beginning and end; nil if the whole value is in text
	created  engine.LogID
	revision engine.Revision
	at       place
	bytes    uint32 // the same as extent.bytes
	first    uint32 // the same as document.first
	key      uint16 // length of the key
	head     uint16 // number of bytes shared at the beginning
	tail     uint16 // number of bytes shared at the end
}

// mostKinds limits the number of kinds in documentMap.like. The values of further kinds are stored
// whole.
const mostKinds = 64

func (m *documentMap) init() {
	m.like = make(map[string]*string)
	m.tree = btree.NewBTreeGOptions((*compact).before, btree.Options{NoLocks: true})
}

// before orders documents by key.
func (c *compact) before(o *compact) bool { return c.name() < o.name() }
func (c *compact) name() string           { return c.text[:c.key] }

// pack returns the compact form of a document.
func (m *documentMap) pack(key string, value []byte, d *document) *compact {
	c := &compact{
		created: d.Created, revision: d.Revision, at: d.at.place, bytes: uint32(d.at.bytes), first: d.first, key: uint16(len(key)),
	}
	kind, _, _ := strings.Cut(key, "/")
	like := m.like[kind]
	if like != nil {
		most := min(len(*like), len(value), 1<<16-1)
		for int(c.head) < most && (*like)[c.head] == value[c.head] {
			c.head++
		}
		for most -= int(c.head); int(c.tail) < most && (*like)[len(*like)-1-int(c.tail)] == value[len(value)-1-int(c.tail)]; {
			c.tail++
		}
	}
	if shared := int(c.head) + int(c.tail); shared < len(value)/2 {
		known := like != nil
		c.head, c.tail, like = 0, 0, nil
		if len(value) < 1<<16 && (known || len(m.like) < mostKinds) {
			like = new(string)
			*like, c.head = string(value), uint16(len(value))
			m.like[strings.Clone(kind)] = like
		}
	}
	c.like = like
	var b strings.Builder
	b.Grow(len(key) + len(value) - int(c.head) - int(c.tail))
	b.WriteString(key)
	b.Write(value[c.head : len(value)-int(c.tail)])
	c.text = b.String()
	return c
}

// document returns the document as callers see it.
func (c *compact) document() *document {
	return &document{at: extent{c.at, int64(c.bytes)}, first: c.first, Document: c.full()}
}

func (c *compact) full() engine.Document {
	value := make([]byte, 0, int(c.head)+len(c.text)-int(c.key)+int(c.tail))
	if c.head > 0 {
		value = append(value, (*c.like)[:c.head]...)
	}
	value = append(value, c.text[c.key:]...)
	if c.tail > 0 {
		value = append(value, (*c.like)[len(*c.like)-int(c.tail):]...)
	}
	return engine.Document{Key: c.name(), Value: value, Created: c.created, Revision: c.revision}
}

// probe returns an element for lookups in the tree, which compares equal to the document with this
// key.
func probe(key string) *compact { return &compact{text: key, key: uint16(len(key))} }

// Get returns a copy of the document with this key.
func (m *documentMap) Get(key string) (*document, bool) {
	c, ok := m.tree.Get(probe(key))
	if !ok {
		return nil, false
	}
	return c.document(), true
}

// Set stores a document. It also replaces d.Key by the map's own copy of the key. If the document
// replaces another one, it gets that document's value of first, and Set returns where that
// document's record is.
func (m *documentMap) Set(d *document) (old extent, replaced bool) {
	c := m.pack(d.Key, d.Value, d)
	d.Key = c.name()
	before, replaced := m.tree.Set(c)
	if replaced {
		c.first, d.first = before.first, before.first
		old = extent{before.at, int64(before.bytes)}
	}
	return old, replaced
}

// Delete removes and returns a document.
func (m *documentMap) Delete(key string) (*document, bool) {
	c, ok := m.tree.Delete(probe(key))
	if !ok {
		return nil, false
	}
	return c.document(), true
}

// Ascend visits copies of the documents in order of their keys, beginning with the key in the
// parameter from, until visit returns false.
func (m *documentMap) Ascend(from string, visit func(key string, d *document) bool) {
	m.tree.Ascend(probe(from), func(c *compact) bool { return visit(c.name(), c.document()) })
}

// Scan visits copies of all documents in order.
func (m *documentMap) Scan(visit func(key string, d *document) bool) { m.Ascend("", visit) }
