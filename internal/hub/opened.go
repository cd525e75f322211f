package hub

import (
	"slices"

	"weir/internal/shrink"
)

// open returns the streams with a feed. These are the streams whose log is open.
func (c *catalog) open() []*Stream {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Clone(c.opened)
}

// setOpen records whether a stream has a feed. It ignores the feed of a stream that was deleted
// while its log was being opened.
func (c *catalog) setOpen(s *Stream, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !open:
		c.closed(s)
	case c.byID.Get(s.ID) == s && s.opened == 0:
		c.opened = append(c.opened, s)
		s.opened = int32(len(c.opened))
	}
}

// closed removes a stream from the streams with a feed. Called with c.mu held.
func (c *catalog) closed(s *Stream) {
	if s.opened == 0 {
		return
	}
	end := len(c.opened) - 1
	last := c.opened[end]
	c.opened[s.opened-1], last.opened = last, s.opened
	c.opened[end] = nil
	c.opened, s.opened = shrink.Slice(c.opened[:end]), 0
}
