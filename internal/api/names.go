package api

import (
	"bytes"
	"hash/maphash"

	"github.com/go-json-experiment/json/jsontext"
)

// names finds a member name that is used twice in one object. It knows the names of the objects that are open, as
// places in the body, so that a name costs 8 bytes, and 4 to 11 more once its object has more than a few: at worst,
// 1.4 million names of one character in a body of 8 MiB, less than four times the body.
type names struct {
	list  []name
	stack []object
	plain []byte // names that were written with escapes, in the form without
}

// name is where a name is: in the body, or in plain.
type name struct {
	at   uint32
	size uint32 // with escapedName added when it is in plain
}

const escapedName = 1 << 31

// object is one open object: its names are those of the list from first to the first of the next object.
type object struct {
	first uint32
	plain uint32   // length of plain before its first name
	table []uint32 // open addressing: an index in the list plus one; nil while there are few names
}

const (
	few       = 12   // names that are compared one by one
	keptNames = 4096 // how much memory stays for the next body
)

// seed makes the table's order unpredictable, so that nobody can send names that all fall into one place.
var seed = maphash.MakeSeed()

func (n *names) reset() {
	if cap(n.list) > keptNames || cap(n.plain) > keptNames {
		*n = names{}
	}
	clear(n.stack) // the tables, which can be large
	n.list, n.stack, n.plain = n.list[:0], n.stack[:0], n.plain[:0]
}

func (n *names) open() {
	n.stack = append(n.stack, object{first: uint32(len(n.list)), plain: uint32(len(n.plain))})
}

func (n *names) close() {
	top := len(n.stack) - 1
	o := &n.stack[top]
	n.list, n.plain = n.list[:o.first], n.plain[:o.plain]
	o.table = nil
	n.stack = n.stack[:top]
}

// add takes the name of size bytes at a place of the body, and tells whether the innermost object did not have it.
func (n *names) add(body []byte, at, size int, escaped bool) bool {
	this := name{uint32(at), uint32(size)}
	if escaped {
		before := len(n.plain)
		n.plain, _ = jsontext.AppendUnquote(n.plain, body[at-1:at+size+1]) // it was checked: it cannot fail
		this = name{uint32(before), uint32(len(n.plain)-before) | escapedName}
	}
	text := n.text(body, this)
	o := &n.stack[len(n.stack)-1]
	if o.table == nil {
		for _, other := range n.list[o.first:] {
			if (other.size^this.size)&^escapedName == 0 && bytes.Equal(n.text(body, other), text) {
				return false
			}
		}
	} else if slot := n.slot(body, o, text); o.table[slot] != 0 {
		return false
	} else {
		o.table[slot] = uint32(len(n.list)) + 1
	}
	n.list = append(n.list, this)
	if count := len(n.list) - int(o.first); count > few && count > len(o.table)/4*3 {
		n.grow(body, o)
	}
	return true
}

// last is the name that was added last.
func (n *names) last(body []byte) []byte { return n.text(body, n.list[len(n.list)-1]) }

func (n *names) text(body []byte, m name) []byte {
	if size := m.size &^ escapedName; size != m.size {
		return n.plain[m.at : m.at+size]
	}
	return body[m.at : m.at+m.size]
}

// slot is where the table has the name, or the free place where it belongs.
func (n *names) slot(body []byte, o *object, text []byte) uint64 {
	mask := uint64(len(o.table) - 1)
	for i := maphash.Bytes(seed, text) & mask; ; i = (i + 1) & mask {
		if e := o.table[i]; e == 0 || bytes.Equal(n.text(body, n.list[e-1]), text) {
			return i
		}
	}
}

// grow makes the table, or one of twice the size.
func (n *names) grow(body []byte, o *object) {
	o.table = make([]uint32, max(64, 2*len(o.table)))
	for i := int(o.first); i < len(n.list); i++ {
		o.table[n.slot(body, o, n.text(body, n.list[i]))] = uint32(i) + 1
	}
}
