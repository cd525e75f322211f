package segments

import (
	"bytes"
	"encoding/binary"
	"iter"
)

// storedGroup is a group (the records of one write) as it was read from a segment.
type storedGroup struct {
	frame
	off int64  // offset in the segment
	b   []byte // the whole group, valid until the next group is read; nil if there is no valid frame
	err error  // why the group cannot be used; nil if it is whole
	bad int64  // if err is not nil: offset of the damage in the segment
}

// groups iterates over the groups of a segment between two offsets. In a group that is not whole,
// the field err is set. If the frame (the head of the group) is not valid either, nothing says
// where the group ends, so the iteration ends there. The function read fills a slice from an offset
// of the segment.
func groups(read func([]byte, int64) error, seed uint32, from, to int64) iter.Seq[storedGroup] {
	return func(yield func(storedGroup) bool) {
		var head [FrameSize]byte
		buf, free := Buffer(LongRun) // for nearly all groups
		defer free()
		for off := from; off < to; {
			g := storedGroup{off: off, bad: off, err: ErrChecksum}
			framed := false
			if off+FrameSize <= to {
				if err := read(head[:], off); err != nil {
					g.err = err
				} else {
					g.frame, framed = decodeFrame(head[:], seed)
				}
			}
			if framed = framed && g.length > FrameSize && off+int64(g.length) <= to; framed {
				if len(buf) < g.length {
					buf = make([]byte, max(g.length, 2*len(buf)))
				}
				g.b = buf[:g.length]
				if g.err = read(g.b, off); g.err == nil {
					at, err := checkGroup(g.b, g.frame, seed)
					g.bad, g.err = off+int64(at), err
				}
			}
			if !yield(g) || !framed {
				return
			}
			off += int64(g.length)
		}
	}
}

// records iterates over the records of a whole group and their offsets in the segment.
func (g *storedGroup) records(seed uint32) iter.Seq2[uint32, *Record] {
	return func(yield func(uint32, *Record) bool) {
		for off := FrameSize; off < len(g.b); {
			var r Record
			r.DecodeHead(g.b[off:], seed) // cannot fail: the function groups has already decoded the record
			r.Payload = g.b[off+r.HeadLen():][:r.Length]
			if !yield(uint32(g.off)+uint32(off), &r) {
				return
			}
			off += r.Size()
		}
	}
}

// nextFrame returns the first aligned offset, not below start, at which there is the magic number
// of a frame (group head) and space for the whole frame. It returns -1 if there is none. It
// searches for the magic number instead of testing every offset, because most of the data is zeros,
// on which bytes.Index is much faster.
func nextFrame(b []byte, start int) int {
	for i := start; i+FrameSize <= len(b); {
		k := bytes.Index(b[i+4:], frameMark)
		if k < 0 {
			return -1
		}
		if i += k; i%align == 0 && i+FrameSize <= len(b) {
			if m := binary.LittleEndian.Uint32(b[i+4:]); m == frameMagic || m == oldFrameMagic {
				return i
			}
		}
		i++
	}
	return -1
}

// frameMark is the common prefix of both magic numbers of frames. In a frame the magic number
// follows the first four bytes.
var frameMark = []byte("WGR")
