package faulty

import (
	"bytes"
	"slices"
)

// content is the content of a file. It is cheap to clone, because clones share a page until one of
// them writes to it. Cloning a megabyte copies 256 pointers, so a test can simulate thousands of
// crashes.
type content struct {
	pages []*page // a nil page holds zeros
	size  int64
	owner *owner
}

const pageSize = 4096

type page struct {
	owner *owner // only the content with this owner may write to the page
	data  [pageSize]byte
}

// owner identifies a content: each content has a pointer to its own owner. The struct is not empty,
// because pointers to different empty structs may be equal.
type owner struct{ _ byte }

// clone returns a content that shares all pages with c. From then on neither of the two owns the
// pages, so each copies a page before writing to it.
func (c *content) clone() content {
	c.owner = nil
	return content{pages: slices.Clone(c.pages), size: c.size}
}

// writable returns page i for writing, copying it if it is shared.
func (c *content) writable(i int64) *page {
	if c.owner == nil {
		c.owner = new(owner)
	}
	p := c.pages[i]
	if p == nil {
		p = &page{owner: c.owner}
	} else if p.owner != c.owner {
		p = &page{owner: c.owner, data: p.data}
	}
	c.pages[i] = p
	return p
}

func (c *content) read(b []byte, off int64) int {
	b = b[:max(0, min(int64(len(b)), c.size-off))]
	for n := 0; n < len(b); {
		i, at := (off+int64(n))/pageSize, (off+int64(n))%pageSize
		part := b[n:min(len(b), n+int(pageSize-at))]
		if p := c.pages[i]; p != nil {
			copy(part, p.data[at:])
		} else {
			clear(part)
		}
		n += len(part)
	}
	return len(b)
}

func (c *content) write(b []byte, off int64) {
	if end := off + int64(len(b)); end > c.size {
		c.truncate(end)
	}
	for len(b) > 0 {
		i, at := off/pageSize, off%pageSize
		part := b[:min(int64(len(b)), pageSize-at)]
		if (len(part) == pageSize || c.pages[i] == nil) && isZero(part) {
			c.pages[i] = nil
		} else {
			copy(c.writable(i).data[at:], part)
		}
		b, off = b[len(part):], off+int64(len(part))
	}
}

// isZero reports whether b holds only zeros. Programs that reserve space write many of them.
func isZero(b []byte) bool {
	return len(b) == 0 || b[0] == 0 && b[len(b)-1] == 0 && bytes.Equal(b[1:], b[:len(b)-1])
}

func (c *content) truncate(size int64) {
	pages := int((size + pageSize - 1) / pageSize)
	if pages > len(c.pages) {
		c.pages = append(c.pages, make([]*page, pages-len(c.pages))...)
	}
	clear(c.pages[pages:])
	c.pages = c.pages[:pages]
	if tail := size % pageSize; size < c.size && tail > 0 && c.pages[pages-1] != nil {
		clear(c.writable(int64(pages - 1)).data[tail:])
	}
	c.size = size
}

func (c *content) flip(off int64, bit uint) {
	c.writable(off / pageSize).data[off%pageSize] ^= 1 << bit
}
