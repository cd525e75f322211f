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

// cacheEntries is the largest number of blocks in a cache. It equals the number of reads that a
// journal allows at once, so that readers do not evict each other's blocks.
const cacheEntries = 256

type key struct {
	file  *File
	block int
}

// entry is a decoded block. The fields buf and err may be used without the cache's lock once the
// channel ready is closed.
type entry struct {
	key   key
	buf   []byte
	err   error
	ready chan struct{}
	refs  int
	used  bool // taken since the search for an unused entry last passed by
	kept  bool // part of Cache.all
}

// take returns a block, and decodes it first if necessary. The caller must release it.
func (c *Cache) take(x *File, i int) *entry {
	k := key{x, i}
	c.mu.Lock()
	e := c.found[k]
	if e != nil {
		e.refs++
		e.used = true
		c.mu.Unlock()
		<-e.ready
		return e
	}
	e = c.unused()
	*e = entry{key: k, buf: e.buf, ready: make(chan struct{}), refs: 1, used: true, kept: e.kept}
	if c.found == nil {
		c.found = map[key]*entry{}
	}
	c.found[k] = e
	c.mu.Unlock()
	if n := x.length(i); n > cap(e.buf) {
		e.buf = make([]byte, n, x.block)
	} else {
		e.buf = e.buf[:n]
	}
	e.err = x.decode(e.buf, i)
	close(e.ready)
	return e
}

// unused returns an entry that is not in use: a new one, or one that was not used for a long time.
// If all are in use, the entry is not kept after its use. The lock must be held.
func (c *Cache) unused() *entry {
	if len(c.all) < cacheEntries {
		e := &entry{kept: true}
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
	return &entry{}
}

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
