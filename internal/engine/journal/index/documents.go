package index

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/btree"

	"weir/internal/engine"
	"weir/internal/engine/journal/segments"
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

// Compact is a document in a form that takes little memory: 48 bytes and its text. It never changes
// once it is in the map.
type Compact struct {
	text    string  // the key, the middle of the value, and the revision if it is not the value of Created
	like    *string // another value, with the same beginning and end; nil if the whole value is in text
	Created engine.LogID
	At      Place
	First   uint32 // the same as First of Document
	parts   parts
}

// parts holds the lengths of the parts of a document: of its key (10 bits), of the bytes that its
// value shares with another one at the beginning (10 bits) and at the end (11 bits). The highest bit is
// set if the text ends with the revision.
type parts uint32

const (
	mostKey  = 1<<10 - 1
	mostHead = 1<<10 - 1
	mostTail = 1<<11 - 1
	updated  = parts(1 << 31)

	_ = uint(mostKey - engine.MaxKey)
)

func (p parts) key() int  { return int(p & mostKey) }
func (p parts) head() int { return int(p >> 10 & mostHead) }
func (p parts) tail() int { return int(p >> 20 & mostTail) }

// shared returns how many bytes two values have in common at their beginning and at their end.
func shared(a string, b []byte) (head, tail int) {
	for most := min(len(a), len(b), mostHead); head < most && a[head] == b[head]; {
		head++
	}
	for most := min(len(a)-head, len(b)-head, mostTail); tail < most && a[len(a)-1-tail] == b[len(b)-1-tail]; {
		tail++
	}
	return head, tail
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
func (c *Compact) Name() string { return c.text[:c.parts.key()] }

// Revision returns the revision of the document. Most documents were never updated, so their revision
// is the one at which they were created.
func (c *Compact) Revision() engine.Revision {
	if c.parts&updated == 0 {
		return engine.Revision(c.Created)
	}
	return engine.Revision(binary.LittleEndian.Uint64([]byte(c.text[len(c.text)-8:])))
}

// middle returns the part of the value that is in the text.
func (c *Compact) middle() string {
	end := len(c.text)
	if c.parts&updated != 0 {
		end -= 8
	}
	return c.text[c.parts.key():end]
}

// Extent returns where the record of the document is.
func (c *Compact) Extent() Extent {
	n := segments.RecordSize + c.parts.key() + c.parts.head() + len(c.middle()) + c.parts.tail()
	return Extent{c.At, int64(segments.Padded(n) + segments.SlotSize)}
}

// Pack returns the compact form of a document.
func (m *Documents) Pack(key string, value []byte, d *Document) *Compact {
	kind, _, _ := strings.Cut(key, "/")
	like, head, tail := m.like[kind], 0, 0
	if like != nil {
		head, tail = shared(*like, value)
	}
	if head+tail < min(len(value)/2, mostHead) {
		known := like != nil
		head, tail, like = 0, 0, nil
		if len(value) < 1<<16 && (known || len(m.like) < mostKinds) {
			like = new(string)
			*like = string(value)
			m.like[strings.Clone(kind)] = like
			head, tail = shared(*like, value)
		}
	}
	c := &Compact{like: like, Created: d.Created, At: d.At.Place, First: d.First, parts: parts(len(key) | head<<10 | tail<<20)}
	var revision []byte
	if d.Revision != engine.Revision(d.Created) {
		c.parts |= updated
		revision = binary.LittleEndian.AppendUint64(nil, uint64(d.Revision))
	}
	var b strings.Builder
	b.Grow(len(key) + len(value) - head - tail + len(revision))
	b.WriteString(key)
	b.Write(value[head : len(value)-tail])
	b.Write(revision)
	c.text = b.String()
	return c
}

// document returns the full document and where its record is, as the methods of Documents return it.
func (c *Compact) document() *Document {
	return &Document{At: c.Extent(), First: c.First, Document: c.Full()}
}

// Full returns the document as the callers of the engine see it.
func (c *Compact) Full() engine.Document {
	middle, head, tail := c.middle(), c.parts.head(), c.parts.tail()
	value := make([]byte, 0, head+len(middle)+tail)
	if head > 0 {
		value = append(value, (*c.like)[:head]...)
	}
	value = append(value, middle...)
	if tail > 0 {
		value = append(value, (*c.like)[len(*c.like)-tail:]...)
	}
	return engine.Document{Key: c.Name(), Value: value, Created: c.Created, Revision: c.Revision()}
}

// probe returns an element that compares equal to the document with this key, for lookups in the
// tree. No document has a key that is longer than mostKey, so the rest of such a key does not matter.
func probe(key string) *Compact {
	key = key[:min(len(key), mostKey)]
	return &Compact{text: key, parts: parts(len(key))}
}

// probes holds elements for Get, which is called before each creation of a stream. Unused ones would
// lie between the documents, and keep memory in use.
var probes = sync.Pool{New: func() any { return new(Compact) }}

// Get returns a copy of the document with this key.
func (m *Documents) Get(key string) (*Document, bool) {
	p := probes.Get().(*Compact)
	*p = *probe(key)
	c, ok := m.tree.Get(p)
	*p = Compact{}
	probes.Put(p)
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
		old = before.Extent()
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
				all = append(all, element{c.Revision(), c})
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
