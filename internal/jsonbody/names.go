package jsonbody

import (
	"bytes"
	"hash/maphash"

	"github.com/go-json-experiment/json/jsontext"
)

// nameSet detects a member name that occurs twice in one object of a JSON body. It stores the names
// of all objects that are still open at the current position of the body. For each name it stores
// the position in the body, which takes 8 bytes. If an object has more than a few names, its hash
// table takes another 4 to 11 bytes per name. The worst case is a body of 8 MiB with 1.4 million
// short names: the nameSet then takes less than four times the memory of the body.
type nameSet struct {
	list  []name
	stack []object
	plain []byte // the unescaped text of those names that contain escapes
}

// name is the position and length of a name, in the body or in nameSet.plain.
type name struct {
	at   uint32
	size uint32 // the length, plus escapedName if the name is in plain
}

const escapedName = 1 << 31

// object is an object whose end has not been reached. Its names are the elements of nameSet.list
// from the index in the field first up to the first name of the next object on the stack.
type object struct {
	first uint32
	plain uint32   // length of nameSet.plain when the object was opened
	table []uint32 // hash table with open addressing: an entry is 0, or one more than an index in list; nil if there are few names
}

const (
	few       = 12   // up to this many names of an object are compared one by one, without a table
	keptNames = 4096 // larger slices are not kept for the next body
)

// seed makes the hash unpredictable. Otherwise a client could send names that all collide, which
// would make the check quadratic.
var seed = maphash.MakeSeed()

func (n *nameSet) reset() {
	if cap(n.list) > keptNames || cap(n.plain) > keptNames {
		*n = nameSet{}
	}
	clear(n.stack) // frees the tables, which can be large
	n.list, n.stack, n.plain = n.list[:0], n.stack[:0], n.plain[:0]
}

func (n *nameSet) open() {
	n.stack = append(n.stack, object{first: uint32(len(n.list)), plain: uint32(len(n.plain))})
}

func (n *nameSet) close() {
	top := len(n.stack) - 1
	o := &n.stack[top]
	n.list, n.plain = n.list[:o.first], n.plain[:o.plain]
	o.table = nil
	n.stack = n.stack[:top]
}

// add adds a name to the innermost object. The name starts at body[at] and has size bytes. add
// returns false if the object already has this name.
func (n *nameSet) add(body []byte, at, size int, escaped bool) bool {
	this := name{uint32(at), uint32(size)}
	if escaped {
		before := len(n.plain)
		// AppendUnquote cannot fail, because the scanner has checked the name.
		n.plain, _ = jsontext.AppendUnquote(n.plain, body[at-1:at+size+1])
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

// last returns the name that was added last.
func (n *nameSet) last(body []byte) []byte { return n.text(body, n.list[len(n.list)-1]) }

func (n *nameSet) text(body []byte, m name) []byte {
	if size := m.size &^ escapedName; size != m.size {
		return n.plain[m.at : m.at+size]
	}
	return body[m.at : m.at+m.size]
}

// slot returns the index of the name in the table. If the table does not have the name, slot
// returns the free index at which the name belongs.
func (n *nameSet) slot(body []byte, o *object, text []byte) uint64 {
	mask := uint64(len(o.table) - 1)
	for i := maphash.Bytes(seed, text) & mask; ; i = (i + 1) & mask {
		if e := o.table[i]; e == 0 || bytes.Equal(n.text(body, n.list[e-1]), text) {
			return i
		}
	}
}

// grow creates the hash table of an object, or doubles its size.
func (n *nameSet) grow(body []byte, o *object) {
	o.table = make([]uint32, max(64, 2*len(o.table)))
	for i := int(o.first); i < len(n.list); i++ {
		o.table[n.slot(body, o, n.text(body, n.list[i]))] = uint32(i) + 1
	}
}
