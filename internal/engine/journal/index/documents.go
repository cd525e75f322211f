package index

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/btree"

	"weir/internal/engine"
)

// Documents holds the documents in the order of their keys. A server may have a million streams,
// each with a document, and the values of these documents differ only in a few bytes. So the map
// stores only the part of a value that differs from another value of the same kind. The kind is the
// part of the key before the slash.
type Documents struct {
	tree *btree.BTreeG[*Compact]
	like map[string]*string // by kind: the value that new values are compared with
}

// Document is the current state of a document and the extent of its record. The document owns the
// log whose id is in the field Created.
type Document struct {
	engine.Document
	At    Extent
	First uint32 // number of the oldest segment that may hold a record of this document key
}

// Compact is a document in a form that takes little memory. It never changes once it is in the map.
type Compact struct {
	text     string  // the key, followed by the middle of the value
	like     *string // another value, with the same beginning and end; nil if the whole value is in text
	Created  engine.LogID
	Revision engine.Revision
	At       Place
	Bytes    uint32 // the same as Bytes of Extent
	First    uint32 // the same as First of Document
	key      uint16 // length of the key
	head     uint16 // number of bytes shared at the beginning
	tail     uint16 // number of bytes shared at the end
}

// mostKinds limits the number of kinds in Documents.like. The values of further kinds are stored
// whole.
const mostKinds = 64

// Init makes an empty map.
func (m *Documents) Init() {
	m.like = make(map[string]*string)
	m.tree = btree.NewBTreeGOptions((*Compact).before, btree.Options{NoLocks: true})
}

// before orders documents by key.
func (c *Compact) before(o *Compact) bool { return c.Name() < o.Name() }

// Name returns the key of the document.
func (c *Compact) Name() string { return c.text[:c.key] }

// Pack returns the compact form of a document.
func (m *Documents) Pack(key string, value []byte, d *Document) *Compact {
	c := &Compact{
		Created: d.Created, Revision: d.Revision, At: d.At.Place, Bytes: uint32(d.At.Bytes), First: d.First, key: uint16(len(key)),
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

// document returns the full document and where its record is, as the methods of Documents return it.
func (c *Compact) document() *Document {
	return &Document{At: Extent{c.At, int64(c.Bytes)}, First: c.First, Document: c.Full()}
}

// Full returns the document as the callers of the engine see it.
func (c *Compact) Full() engine.Document {
	value := make([]byte, 0, int(c.head)+len(c.text)-int(c.key)+int(c.tail))
	if c.head > 0 {
		value = append(value, (*c.like)[:c.head]...)
	}
	value = append(value, c.text[c.key:]...)
	if c.tail > 0 {
		value = append(value, (*c.like)[len(*c.like)-int(c.tail):]...)
	}
	return engine.Document{Key: c.Name(), Value: value, Created: c.Created, Revision: c.Revision}
}

// probe returns an element that compares equal to the document with this key, for lookups in the
// tree.
func probe(key string) *Compact { return &Compact{text: key, key: uint16(len(key))} }

// Get returns a copy of the document with this key.
func (m *Documents) Get(key string) (*Document, bool) {
	c, ok := m.tree.Get(probe(key))
	if !ok {
		return nil, false
	}
	return c.document(), true
}

// Set stores a document. It also replaces d.Key by the map's own copy of the key. If the key
// already has a document, the new one takes over its First, and Set returns where the old record is.
func (m *Documents) Set(d *Document) (old Extent, replaced bool) {
	c := m.Pack(d.Key, d.Value, d)
	d.Key = c.Name()
	before, replaced := m.tree.Set(c)
	if replaced {
		c.First, d.First = before.First, before.First
		old = Extent{before.At, int64(before.Bytes)}
	}
	return old, replaced
}

// Delete removes and returns a document.
func (m *Documents) Delete(key string) (*Document, bool) {
	c, ok := m.tree.Delete(probe(key))
	if !ok {
		return nil, false
	}
	return c.document(), true
}

// Ascend visits copies of the documents in order of their keys, beginning with the key in the
// parameter from, until visit returns false.
func (m *Documents) Ascend(from string, visit func(key string, d *Document) bool) {
	m.tree.Ascend(probe(from), func(c *Compact) bool { return visit(c.Name(), c.document()) })
}

// Scan visits copies of all documents in order.
func (m *Documents) Scan(visit func(key string, d *Document) bool) { m.Ascend("", visit) }

// Chosen returns the documents that the prefixes select, in order of their revisions.
func (m *Documents) Chosen(of engine.Prefixes) []*Compact {
	type element struct { // sorting does not read the documents, which lie scattered in memory
		revision engine.Revision
		doc      *Compact
	}
	var all []element
	for i, prefix := range of {
		m.tree.Ascend(probe(prefix), func(c *Compact) bool {
			if !strings.HasPrefix(c.Name(), prefix) {
				return false
			}
			if !of[:i].Match(c.Name()) {
				all = append(all, element{c.Revision, c})
			}
			return true
		})
	}
	slices.SortFunc(all, func(a, b element) int { return cmp.Compare(a.revision, b.revision) })
	docs := make([]*Compact, len(all))
	for i := range all {
		docs[i] = all[i].doc
	}
	return docs
}

// Load stores a document whose key is higher than those of all others.
func (m *Documents) Load(c *Compact) { m.tree.Load(c) }

// ByKey is a document with the first 16 bytes of its key. Sorting a million documents by their keys
// is several times as fast if most comparisons need only these bytes.
type ByKey struct {
	start [2]uint64
	Doc   *Compact
}

// ByKey returns the document in the form for sorting.
func (c *Compact) ByKey() ByKey {
	var b [16]byte
	copy(b[:], c.Name())
	return ByKey{[2]uint64{binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])}, c}
}

// SortByKey sorts documents by their keys. It sorts long lists in two goroutines.
func SortByKey(docs []ByKey) []ByKey {
	if len(docs) < manyDocuments {
		slices.SortFunc(docs, ByKey.compare)
		return docs
	}
	a, b := docs[:len(docs)/2], docs[len(docs)/2:]
	var other sync.WaitGroup
	other.Go(func() { slices.SortFunc(b, ByKey.compare) })
	slices.SortFunc(a, ByKey.compare)
	other.Wait()
	merged := make([]ByKey, 0, len(docs))
	for len(a) > 0 && len(b) > 0 {
		if a[0].compare(b[0]) <= 0 {
			merged, a = append(merged, a[0]), a[1:]
		} else {
			merged, b = append(merged, b[0]), b[1:]
		}
	}
	return append(append(merged, a...), b...)
}

// manyDocuments is the length of a list that SortByKey sorts in two goroutines.
const manyDocuments = 10_000

func (a ByKey) compare(b ByKey) int {
	for i := range a.start {
		if a.start[i] != b.start[i] {
			return cmp.Compare(a.start[i], b.start[i])
		}
	}
	return cmp.Compare(a.Doc.Name(), b.Doc.Name()) // rarely: the keys lie scattered in memory
}
