package blocks

import "sync"

// Cache keeps decoded blocks. A reader that catches up reads less than a block at a time, and gets
// all parts of a block from the cache. The zero value is an empty cache. Many goroutines and files
// may use it at once.
type Cache struct {
	mu    sync.Mutex
	found map[key]*entry
	all   []*entry // all entries, up to cacheEntries
	hand  int      // position in all where the search for an unused entry goes on
}

const (
	// cacheEntries is the largest number of blocks in a cache. It equals the number of reads that a
	// journal allows at once, so that readers do not evict each other's blocks.
	cacheEntries = 256
	// mostData is the length of the longest data that an entry keeps to decode more of it later. So
	// an entry has at most one and a half times the memory of a block.
	mostData = Size / 2
)

type key struct {
	file  *File
	block int
}

// entry is a block that is decoded as far as readers needed it. Decoding goes on from there for a
// reader that needs more: a read of one batch decodes half a block on average.
type entry struct {
	key  key // the fields up to kept are guarded by Cache.mu
	refs int
	used bool // taken since the search for an unused entry last passed by
	kept bool // part of Cache.all

	// turn has an element while a goroutine reads or decodes the block. That goroutine may use the
	// fields below. It is not a mutex, because a simulation cannot detect that a goroutine waits for a
	// mutex.
	turn  chan struct{}
	begun bool // the data was read, or err is set
	block decoder
	err   error
	buf   []byte // memory for the content
	data  []byte // memory for the data, if there is more to decode
}

// take returns an entry for block i of x, and the content of the block. At least the first n bytes
// of the content are decoded. They do not change until the caller releases the entry, which it must
// do after an error too.
func (c *Cache) take(x *File, i, n int) (*entry, []byte, error) {
	k := key{x, i}
	c.mu.Lock()
	e := c.found[k]
	if e == nil {
		e = c.unused()
		e.key, e.begun = k, false
		if c.found == nil {
			c.found = map[key]*entry{}
		}
		c.found[k] = e
	}
	e.refs++
	e.used = true
	c.mu.Unlock()
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	if !e.begun {
		e.begun, e.err = true, e.begin(x, i, n)
	}
	if e.err == nil && e.block.n < n && !e.block.decode(n) {
		e.err = x.damaged(i)
	}
	return e, e.block.b, e.err
}

// begin reads block i of x, of which n bytes are needed. It leaves decoding for later if that can be
// done in parts.
func (e *entry) begin(x *File, i, n int) error {
	length := x.length(i)
	if length > cap(e.buf) {
		e.buf = make([]byte, x.block)
	}
	e.block = decoder{b: e.buf[:length], n: length}
	if n == length || x.stored(i) > mostData {
		return x.decode(e.block.b, i)
	}
	if e.data == nil {
		e.data = make([]byte, mostData)
	}
	c, data, err := x.read(e.data, i)
	if err != nil {
		return err
	}
	var ok bool
	if c == sequences {
		e.block, ok = newDecoder(e.block.b, data)
	} else {
		ok = c.decode(e.block.b, data)
	}
	if !ok {
		return x.damaged(i)
	}
	return nil
}

// unused returns an entry that is not in use: a new one, or one that was not used for a long time.
// If all are in use, the entry is not kept after its use. The lock must be held.
func (c *Cache) unused() *entry {
	if len(c.all) < cacheEntries {
		e := newEntry()
		e.kept = true
		c.all = append(c.all, e)
		return e
	}
	for range 2 * len(c.all) {
		e := c.all[c.hand]
		c.hand = (c.hand + 1) % len(c.all)
		if e.refs == 0 && !e.used {
			c.forget(e)
			return e
		}
		e.used = false
	}
	return newEntry()
}

func newEntry() *entry { return &entry{turn: make(chan struct{}, 1)} }

// forget makes readers decode the block of an entry again. The lock must be held.
func (c *Cache) forget(e *entry) {
	if c.found[e.key] == e {
		delete(c.found, e.key)
	}
}

// release gives up an entry. A block that could not be decoded is not kept: the next attempt to read
// it may succeed.
func (c *Cache) release(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.refs--; e.refs == 0 && (e.err != nil || !e.kept) {
		c.forget(e)
	}
}
