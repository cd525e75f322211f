// Package blocks stores a file in compressed blocks. A File has the content and the size of the file
// that it stands for, and is read at the offsets of that file. So its readers need not know that it
// is compressed. It is written once, in order, and never changes afterwards.
//
// DESIGN.md of the journal describes every byte.
package blocks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"weir/internal/disk"
)

const (
	// Start is the size of the first part of a file, which is stored as it is.
	Start = 4096
	// Size is the number of bytes in a block before compression. See DESIGN.md for the choice.
	Size = 16 << 10
	// sizeS2 is the number of bytes in a block of a file that was compressed with S2. Such files are
	// only read: an earlier version of this package wrote them.
	sizeS2 = 32 << 10

	headSize    = 24
	trailerSize = 32
	align       = 8

	// longRead is the length from which on a read decodes whole blocks in place, instead of keeping
	// them in the cache. A subscriber that catches up reads less at a time.
	longRead = 64 << 10

	headMagic      = 0x324b4257 // "WBK2"
	headMagicS2    = 0x4b4c4257 // "WBLK"
	trailerMagic   = 0x32425457 // "WTB2"
	trailerMagicS2 = 0x42415457 // "WTAB"
)

// ErrDamaged means that a block cannot be read, because its bytes or those of the table are wrong.
var ErrDamaged = errors.New("compressed block is damaged")

// File is a file that is stored in compressed blocks. It implements disk.File.
type File struct {
	disk.File // the stored file
	seed      uint32
	size      int64 // size of the content
	block     int64 // size of a block of the content, except for the last one
	all       int64 // size of the stored file
	cache     *Cache
	at        []uint32 // for each block its offset in the stored file, or 0 if the block was not found; then the end of the last block
	fault     error    // what is wrong with the table of blocks; at was found by a search in this case

	// The next fields are used while the file is being written.
	buf  []byte // content of the block that is not full yet
	next int64  // offset in the content of the next byte to write
	out  []byte // encoded block
}

// Create makes a new file for content of this size. The parameter f is an empty file. The seed of
// the checksums must differ from those of all files whose bytes might appear in this file.
//
// The content beyond Start must be written in order. Parts that are left out are zeros. When the
// last byte of the content is written, the file is complete and can be read.
func Create(f disk.File, seed uint32, size int64, c *Cache) *File {
	return &File{File: f, seed: seed, size: size, block: Size, cache: c, at: []uint32{Start}, next: Start, buf: make([]byte, 0, Size)}
}

// Open opens a file that was written by a File of this size. If the table of blocks is damaged, Open
// searches the file for blocks. It returns nil if it finds neither a table nor a block.
func Open(f disk.File, seed uint32, size int64, c *Cache) (*File, error) {
	x := &File{File: f, seed: seed, size: size, block: Size, cache: c}
	stored, err := f.Size()
	if err != nil {
		return nil, err
	}
	x.all = stored
	if x.fault = x.readTable(stored); x.fault == nil {
		return x, nil
	}
	if !x.search(stored) {
		return nil, nil
	}
	return x, nil
}

// Stored returns the file in which the content of f is stored. This is f itself if f is not a File.
func Stored(f disk.File) disk.File {
	if x, ok := f.(*File); ok {
		return x.File
	}
	return f
}

// count returns the number of blocks.
func (x *File) count() int { return int((x.size - Start + x.block - 1) / x.block) }

// length returns the number of bytes in block i before compression.
func (x *File) length(i int) int { return int(min(x.block, x.size-Start-int64(i)*x.block)) }

// Size implements disk.File. It returns the size of the content.
func (x *File) Size() (int64, error) { return x.size, nil }

// Fault reads the table of blocks again, and says what is wrong with it. It returns nil if the table
// is valid.
func (x *File) Fault() error {
	return (&File{File: x.File, seed: x.seed, size: x.size}).readTable(x.all)
}

// Saved returns how much smaller the stored file is than its content.
func (x *File) Saved() int64 { return x.size - x.all }

// Allocate and Truncate implement disk.File. They always fail.
func (x *File) Allocate(int64) error { return errors.ErrUnsupported }
func (x *File) Truncate(int64) error { return errors.ErrUnsupported }

// WriteAt implements disk.File. See Create for the order of writes.
func (x *File) WriteAt(off int64, bufs ...[]byte) error {
	if off < Start {
		return x.File.WriteAt(off, bufs...)
	}
	if off < x.next || x.buf == nil {
		return fmt.Errorf("write at %d: %w", off, errors.ErrUnsupported)
	}
	for zeros := make([]byte, min(Size, off-x.next)); x.next < off; {
		if err := x.add(zeros[:min(Size, off-x.next)]); err != nil {
			return err
		}
	}
	for _, b := range bufs {
		if err := x.add(b); err != nil {
			return err
		}
	}
	if x.next < x.size {
		return nil
	}
	return x.writeTable()
}

// add appends content, and writes each block that becomes full.
func (x *File) add(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), Size-len(x.buf))
		x.buf, b, x.next = append(x.buf, b[:n]...), b[n:], x.next+int64(n)
		if len(x.buf) < Size && x.next < x.size {
			continue
		}
		i := len(x.at) - 1
		x.out = appendBlock(x.out[:0], x.seed, i, x.buf)
		if err := x.File.WriteAt(int64(x.at[i]), x.out); err != nil {
			return err
		}
		x.at = append(x.at, x.at[i]+uint32(len(x.out)))
		x.buf = x.buf[:0]
	}
	return nil
}

// writeTable writes the table of blocks, and the trailer that says where the table is. The size of
// the stored file is never a multiple of Start, and so differs from the size of the content.
func (x *File) writeTable() error {
	end := x.at[len(x.at)-1]
	table := make([]byte, 0, 4*len(x.at)+align+trailerSize)
	for _, at := range x.at {
		table = binary.LittleEndian.AppendUint32(table, at)
	}
	trailer := make([]byte, trailerSize)
	binary.LittleEndian.PutUint32(trailer[4:], trailerMagic)
	binary.LittleEndian.PutUint32(trailer[8:], end)
	binary.LittleEndian.PutUint32(trailer[12:], sum(x.seed, table))
	binary.LittleEndian.PutUint32(trailer, sum(x.seed, trailer[4:]))
	table = pad(table)
	if (int(end)+len(table)+trailerSize)%Start == 0 {
		table = append(table, make([]byte, align)...)
	}
	x.buf, x.out, x.all = nil, nil, int64(end)+int64(len(table))+trailerSize
	return x.File.WriteAt(int64(end), table, trailer)
}

// readTable reads the table of blocks of a stored file of this size.
func (x *File) readTable(stored int64) error {
	bad := fmt.Errorf("table of blocks: %w", ErrDamaged)
	t := make([]byte, trailerSize)
	if stored < Start+trailerSize {
		return bad
	}
	if _, err := x.File.ReadAt(t, stored-trailerSize); err != nil {
		return fmt.Errorf("table of blocks: %w", err)
	}
	switch binary.LittleEndian.Uint32(t[4:]) {
	case trailerMagic:
		x.block = Size
	case trailerMagicS2:
		x.block = sizeS2
	default:
		return bad
	}
	end, n := int64(binary.LittleEndian.Uint32(t[8:])), x.count()+1
	if binary.LittleEndian.Uint32(t) != sum(x.seed, t[4:]) || end+int64(4*n)+trailerSize > stored {
		return bad
	}
	b := make([]byte, 4*n)
	if _, err := x.File.ReadAt(b, end); err != nil {
		return fmt.Errorf("table of blocks: %w", err)
	}
	if sum(x.seed, b) != binary.LittleEndian.Uint32(t[12:]) {
		return bad
	}
	x.at = make([]uint32, n)
	for i := range x.at {
		x.at[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return nil
}

// search finds the blocks without the table. It reports whether it found any. A block has the offset
// of the next one in its head. After a damaged head, search goes on in steps of 8 bytes.
func (x *File) search(stored int64) (found bool) {
	const step = 1 << 20
	buf := make([]byte, min(step+headSize, max(0, stored-Start)))
	for base := int64(Start); base < stored; base += step {
		n, _ := x.File.ReadAt(buf[:min(int64(len(buf)), stored-base)], base) // blocks in an unreadable part are lost
		for off := 0; off < step && off+headSize <= n; off += align {
			h, ok := decodeHead(buf[off:], x.seed)
			if ok && !found { // all blocks of a file have the same size
				x.block = int64(h.block)
				x.at = make([]uint32, x.count()+1)
			}
			if ok && int64(h.block) == x.block && h.number < x.count() && base+int64(off)+int64(h.stored()) <= stored {
				x.at[h.number], found = uint32(base)+uint32(off), true
				x.at[len(x.at)-1] = max(x.at[len(x.at)-1], x.at[h.number]+uint32(h.stored()))
			}
		}
	}
	return found
}

// ReadAt implements io.ReaderAt. It returns ErrDamaged if a block is not valid.
func (x *File) ReadAt(b []byte, off int64) (n int, err error) {
	if off < Start {
		n, err = x.File.ReadAt(b[:min(int64(len(b)), Start-off)], off)
		if n == len(b) || err != nil && n < int(Start-off) {
			return n, err
		}
	}
	for n < len(b) {
		at := off + int64(n) - Start
		if at+Start >= x.size {
			return n, io.EOF
		}
		i, skip := int(at/x.block), int(at%x.block)
		if skip == 0 && len(b)-n >= x.length(i) && len(b)-n > longRead { // a long read: decode in place
			if err := x.decode(b[n:n+x.length(i)], i); err != nil {
				return n, err
			}
			n += x.length(i)
			continue
		}
		need := x.length(i)
		if len(b) < Size { // the reader of a single batch; others probably go on where they stop
			need = min(need, skip+len(b)-n)
		}
		e, content, err := x.cache.take(x, i, need)
		if err == nil {
			n += copy(b[n:], content[skip:])
		}
		x.cache.release(e)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// decode reads block i into b, which has the length of the block.
func (x *File) decode(b []byte, i int) error {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	c, data, err := x.read(*buf, i)
	if err == nil && !c.decode(b, data) {
		err = x.damaged(i)
	}
	return err
}

// read reads the data of block i and verifies it. The data is a part of buf, which must have room
// for the stored block.
func (x *File) read(buf []byte, i int) (codec, []byte, error) {
	at, n := x.at[i], x.stored(i)
	if n == 0 {
		return 0, nil, fmt.Errorf("%w: block %d was not found", ErrDamaged, i)
	}
	b := buf[:n]
	if n, err := x.File.ReadAt(b, int64(at)); n < len(b) {
		if errors.Is(err, io.EOF) {
			err = ErrDamaged
		}
		return 0, nil, err
	}
	h, ok := decodeHead(b, x.seed)
	if !ok || int64(h.block) != x.block || h.number != i || headSize+h.length > len(b) {
		return 0, nil, fmt.Errorf("%w: head of block %d at offset %d", ErrDamaged, i, at)
	}
	data := b[headSize:][:h.length]
	if crc32.Checksum(data, castagnoli) != h.sum {
		return 0, nil, x.damaged(i)
	}
	return h.codec, data, nil
}

// stored returns the size of block i in the file, or 0 if the block was not found.
func (x *File) stored(i int) int {
	at, next := x.at[i], x.at[i+1]
	if x.fault != nil { // the next block may not have been found
		next = x.following(at)
	}
	if at == 0 || next < at+headSize || int64(next-at) > headSize+x.block+align {
		return 0
	}
	return int(next - at)
}

func (x *File) damaged(i int) error {
	return fmt.Errorf("%w: block %d at offset %d", ErrDamaged, i, x.at[i])
}

// following returns the offset of the first block after the offset at, as a search has found it.
func (x *File) following(at uint32) uint32 {
	next := at + headSize + uint32(x.block) + align
	for _, o := range x.at {
		if o > at {
			next = min(next, o)
		}
	}
	return next
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(seed uint32, b []byte) uint32 { return crc32.Update(seed, castagnoli, b) }

func pad(b []byte) []byte { return append(b, make([]byte, -len(b)&(align-1))...) }

// head is the head of a stored block.
type head struct {
	length int    // length of the data
	sum    uint32 // checksum of the data
	number int
	codec  codec
	block  int // size of the blocks in this file
}

// stored returns the size of the block with its head and padding.
func (h head) stored() int { return (headSize + h.length + align - 1) &^ (align - 1) }

// appendBlock appends an encoded block with this content.
func appendBlock(b []byte, seed uint32, number int, content []byte) []byte {
	b = slices.Grow(b, headSize+Size+align)
	at := len(b)
	b = append(b, make([]byte, headSize)...)
	b, c := encode(b, content)
	data := b[at+headSize:]
	h := b[at:]
	binary.LittleEndian.PutUint32(h[4:], headMagic)
	binary.LittleEndian.PutUint32(h[8:], uint32(len(data)))
	binary.LittleEndian.PutUint32(h[12:], crc32.Checksum(data, castagnoli))
	binary.LittleEndian.PutUint32(h[16:], uint32(number))
	h[20] = byte(c)
	binary.LittleEndian.PutUint32(h, sum(seed, h[4:headSize]))
	return pad(b)
}

func decodeHead(b []byte, seed uint32) (head, bool) {
	magic := binary.LittleEndian.Uint32(b[4:])
	if magic != headMagic && magic != headMagicS2 || binary.LittleEndian.Uint32(b) != sum(seed, b[4:headSize]) {
		return head{}, false
	}
	h := head{
		length: int(binary.LittleEndian.Uint32(b[8:])), sum: binary.LittleEndian.Uint32(b[12:]),
		number: int(binary.LittleEndian.Uint32(b[16:])), codec: codec(b[20]), block: Size,
	}
	if magic == headMagicS2 {
		h.block = sizeS2
	}
	return h, h.length <= h.block
}
