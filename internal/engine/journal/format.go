package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"weir"
	"weir/internal/engine"
)

// The layout of a segment. DESIGN.md describes every byte. This file and footer.go encode and
// decode these bytes.
//
//	0          header (64)           magic, number, size, salt, version, checksum; durable before the file gets its name
//	2048       watermark (16)        how far the segment is known to be synced; in a full segment, where the groups end
//	4096       groups                frame, then records; each group is one write and one sync
//	           keys (26 per key)     for each batch with an idempotency key, the digest of the key; only in a sealed segment
//	size-64-n  index (n bytes)       one slot of 40 bytes per record; only in a sealed segment
//	size-64    footer (64)           only in a sealed segment
const (
	headerSize      = 64
	watermarkOffset = 2048
	watermarkSize   = 16
	dataStart       = 4096
	frameSize       = 24
	recordSize      = 48 // the fixed part of a record
	slotSize        = 40
	keySlotSize     = 26
	keyBlock        = 256 // keys per block; the directory of keys has one entry for each block
	keyBlockSize    = 8   // size of an entry of the directory
	footerSize      = 64
	align           = 8
)

const (
	segmentMagic  = "WEIRSEG1"
	frameMagic    = 0x32524757 // "WGR2"
	oldFrameMagic = 0x50524757 // "WGRP", in groups of format 1
	footerMagic   = 0x444e4557 // "WEND"
)

// kind is the kind of a record. For entries it equals the engine's kind.
type kind uint8

const (
	kindBatch     = kind(engine.Batch)
	kindGapClosed = kind(engine.GapClosed)
	kindMark      = kind(3) // the last trim of a log: the sequence low, below which all entries are trimmed, and a note
	kindDocument  = kind(4)
	kindDeleted   = kind(5) // the deletion of a document and its log
	kindManifest  = kind(6) // the list of the journal's segments
)

// entry reports whether records of this kind are entries of logs.
func (k kind) entry() bool { return k == kindBatch || k == kindGapClosed }

// kindNames are the names of record kinds in reports.
var kindNames = map[kind]string{
	kindBatch: "batch", kindGapClosed: "closed gap", kindMark: "mark", kindDocument: "document", kindDeleted: "deletion", kindManifest: "manifest",
}

func (k kind) String() string { return kindNames[k] }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seed returns the start value of the seeded checksums of a segment. The seed depends on the
// journal's secret salt and on the segment number. Therefore the previous content of a recycled
// file is never valid, and no client can publish bytes that look like a group.
func seed(salt [8]byte, number uint64) uint32 {
	var b [16]byte
	copy(b[:], salt[:])
	binary.LittleEndian.PutUint64(b[8:], number)
	return crc32.Checksum(b[:], castagnoli)
}

func sum(seed uint32, b []byte) uint32 { return crc32.Update(seed, castagnoli, b) }

func padded(n int) int { return (n + align - 1) &^ (align - 1) }

// record is one record. The meaning of its fields depends on the kind:
//
//	            log      seq            time      count          contentType  key              payload
//	batch       its log  sequence       stored    events         as received  idempotency key  payload
//	gap closed  its log  last sequence  closed                                                 first sequence (8)
//	mark        its log  low            revision                                               note
//	document    Created  revision                                             document key     value
//	deleted     Created  revision                 birth segment               document key
//	manifest             next revision                                                         segment numbers (8 each)
//
// A batch may have a publisher as well. Created is the revision at which the document was created.
// The birth segment is the segment in which the record of the deletion was first written, or a cold
// segment with a higher number that was being filled at that moment. Segments with higher numbers
// hold no records of the document or its log from before the deletion.
//
// Copies by the reclaimer may put records out of order on disk. Revisions restore the order.
type record struct {
	kind        kind
	flags       engine.Flags
	log         uint64
	seq         uint64
	time        int64
	count       uint32
	contentType string
	key         string
	publisher   string
	tag         string // bytes that the judge needs when the log is opened
	payload     []byte
	payloadSum  uint32
	length      uint32         // length of the payload; also set if only the head was decoded
	digest      weir.KeyDigest // digest of key, or zero if it is not computed yet; not on disk
}

func (r *record) headLen() int {
	n := recordSize + len(r.contentType) + len(r.key) + len(r.publisher)
	if r.tag != "" {
		n += len(r.tag) + tagLength
	}
	return n
}

// tagged is the bit of a record's flags byte that marks a record with a tag. The head of such a
// record ends with the tag and then its length, in tagLength bytes. Engine flags use only lower
// bits.
const (
	tagged    = 0x10
	tagLength = 2
)

// size returns the length of the record in the segment, including padding.
func (r *record) size() int { return padded(r.headLen() + len(r.payload)) }

// bytes returns the space that the record takes in its segment, including its slot in the index.
func (r *record) bytes() int64 { return int64(r.size() + slotSize) }

// appendHead appends the encoded record up to its payload, with a seeded checksum.
func (r *record) appendHead(b []byte, seed uint32) []byte {
	at := len(b)
	var h [recordSize]byte
	binary.LittleEndian.PutUint32(h[4:], r.payloadSum)
	binary.LittleEndian.PutUint32(h[8:], uint32(len(r.payload)))
	binary.LittleEndian.PutUint16(h[12:], uint16(r.headLen()))
	h[14], h[15] = byte(r.kind), byte(r.flags)
	binary.LittleEndian.PutUint64(h[16:], r.log)
	binary.LittleEndian.PutUint64(h[24:], r.seq)
	binary.LittleEndian.PutUint64(h[32:], uint64(r.time))
	binary.LittleEndian.PutUint32(h[40:], r.count)
	binary.LittleEndian.PutUint16(h[44:], uint16(len(r.contentType)))
	binary.LittleEndian.PutUint16(h[46:], uint16(len(r.key)))
	b = append(b, h[:]...)
	b = append(b, r.contentType...)
	b = append(b, r.key...)
	b = append(b, r.publisher...)
	if r.tag != "" {
		b[at+15] |= tagged
		b = append(b, r.tag...)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(r.tag)))
	}
	binary.LittleEndian.PutUint32(b[at:], sum(seed, b[at+4:]))
	return b
}

// decodeHead decodes the head of the record at the start of b and verifies its checksum. b may be
// longer or shorter than the record. Strings that are equal to those of the previous content of *r
// are not copied again.
func (r *record) decodeHead(b []byte, seed uint32) error {
	ct, key, head, err := checkHead(b, seed)
	if err != nil {
		return err
	}
	end, tag := tagOf(b, key, head)
	if end < 0 {
		return errChecksum
	}
	*r = record{
		kind: kind(b[14]), flags: engine.Flags(b[15] &^ tagged), tag: string(tag),
		log: binary.LittleEndian.Uint64(b[16:]), seq: binary.LittleEndian.Uint64(b[24:]),
		time: int64(binary.LittleEndian.Uint64(b[32:])), count: binary.LittleEndian.Uint32(b[40:]),
		contentType: again(r.contentType, b[recordSize:ct]), key: string(b[ct:key]), publisher: again(r.publisher, b[key:end]),
		payloadSum: binary.LittleEndian.Uint32(b[4:]), length: binary.LittleEndian.Uint32(b[8:]),
	}
	return nil
}

// checkHead verifies the head of the record at the start of b. It returns three offsets: where the
// content type ends, where the key ends, and where the head ends. The content type begins at
// recordSize, the key follows the content type, and the publisher and the tag take the rest of the
// head.
func checkHead(b []byte, seed uint32) (ct, key, head int, err error) {
	if len(b) < recordSize {
		return 0, 0, 0, errShort
	}
	head = int(binary.LittleEndian.Uint16(b[12:]))
	if head < recordSize || head > len(b) {
		return 0, 0, 0, errShort
	}
	ct = recordSize + int(binary.LittleEndian.Uint16(b[44:]))
	key = ct + int(binary.LittleEndian.Uint16(b[46:]))
	if key > head || b[14] == 0 || binary.LittleEndian.Uint32(b) != sum(seed, b[4:head]) {
		return 0, 0, 0, errChecksum
	}
	return ct, key, head, nil
}

// tagOf returns the tag in the head of a record, and the offset at which the publisher ends. Without
// a tag, this offset is the end of the head. The offset is -1 if the head is too short for its tag.
func tagOf(b []byte, key, head int) (end int, tag []byte) {
	if b[15]&tagged == 0 {
		return head, nil
	}
	if head-tagLength < key {
		return -1, nil
	}
	last := head - tagLength
	end = last - int(binary.LittleEndian.Uint16(b[last:]))
	if end < key {
		return -1, nil
	}
	return end, b[end:last]
}

// decode decodes the whole record at the start of b and verifies both checksums. The payload is a
// slice of b.
func (r *record) decode(b []byte, seed uint32) error {
	if err := r.decodeHead(b, seed); err != nil {
		return err
	}
	head := r.headLen()
	if uint64(r.length) > uint64(len(b)-head) {
		return errShort
	}
	end := head + int(r.length)
	r.payload = b[head:end:end]
	if crc32.Checksum(r.payload, castagnoli) != r.payloadSum {
		return errChecksum
	}
	return nil
}

// header converts the record of an entry to an engine.Header.
func (r *record) header() engine.Header {
	h := engine.Header{
		Kind: engine.Kind(r.kind), Flags: r.flags, Seq: weir.Seq(r.seq), Time: weir.Time(r.time), Count: r.count,
		Size: r.length, ContentType: r.contentType, Key: r.key, Publisher: r.publisher,
		Tag: r.tag,
	}
	if r.kind == kindGapClosed {
		h.First, h.Size = weir.Seq(binary.LittleEndian.Uint64(r.payload)), 0
	}
	return h
}

// frame is the head of a group.
type frame struct {
	length int
	group  uint64
	bond   uint32 // checksum over the checksums of the group's records (see bind); in a group of format 1, the number of records
	old    bool   // the group was written in format 1
}

func encodeFrame(b []byte, seed uint32, f frame) {
	binary.LittleEndian.PutUint32(b[4:], frameMagic)
	binary.LittleEndian.PutUint32(b[8:], uint32(f.length))
	binary.LittleEndian.PutUint32(b[12:], f.bond)
	binary.LittleEndian.PutUint64(b[16:], f.group)
	binary.LittleEndian.PutUint32(b, sum(seed, b[4:frameSize]))
}

func decodeFrame(b []byte, seed uint32) (frame, bool) {
	if len(b) < frameSize {
		return frame{}, false
	}
	magic := binary.LittleEndian.Uint32(b[4:])
	if magic != frameMagic && magic != oldFrameMagic || binary.LittleEndian.Uint32(b) != sum(seed, b[4:frameSize]) {
		return frame{}, false
	}
	return frame{
		length: int(binary.LittleEndian.Uint32(b[8:])), bond: binary.LittleEndian.Uint32(b[12:]),
		group: binary.LittleEndian.Uint64(b[16:]), old: magic == oldFrameMagic,
	}, true
}

// bind adds a record to the bond of its group, a checksum over the checksums of all records in the
// group. The parameter head is the encoded head of the record. It begins with a checksum that also
// covers the checksum of the payload. If a group is written twice at the same offset, with
// different records, the two attempts have different bonds. If a crash leaves a mixture of both,
// that mixture is therefore not taken for a valid group.
func bind(bond uint32, head []byte) uint32 { return sum(bond, head[:4]) }

// checkGroup checks all records of a group and their bond. On an error it returns the offset of the
// first damaged record, or 0 if only the bond is wrong.
func checkGroup(b []byte, f frame, seed uint32) (int, error) {
	off, count, bond := frameSize, uint32(0), uint32(0)
	for ; off < len(b); count++ {
		var r record
		if err := r.decode(b[off:], seed); err != nil {
			return off, err
		}
		bond = bind(bond, b[off:])
		off += r.size()
	}
	if f.old {
		bond = count
	}
	if off != len(b) || bond != f.bond {
		return 0, errChecksum
	}
	return 0, nil
}

// headerVersion is the version number in the header of a segment. Since version 2 the header holds
// the salt, and the watermark of a sealed segment covers all of its groups. In segments of format 1,
// the version number and the salt are zero.
const headerVersion = 2

func encodeHeader(salt [8]byte, number uint64, size int64) []byte {
	b := make([]byte, dataStart) // the whole block, to erase the watermark of a recycled file
	copy(b, segmentMagic)
	binary.LittleEndian.PutUint64(b[8:], number)
	binary.LittleEndian.PutUint64(b[16:], uint64(size))
	copy(b[24:], salt[:])
	b[32] = headerVersion
	binary.LittleEndian.PutUint32(b[headerSize-4:], sum(seed(salt, number), b[:headerSize-4]))
	return b
}

// checkHeader verifies that b begins with the header of this segment in this journal.
func checkHeader(b []byte, seed uint32, number uint64, size int64) error {
	switch {
	case len(b) < headerSize:
		return errShort
	case string(b[:8]) != segmentMagic, binary.LittleEndian.Uint32(b[headerSize-4:]) != sum(seed, b[:headerSize-4]),
		binary.LittleEndian.Uint64(b[8:]) != number:
		return errChecksum
	case int64(binary.LittleEndian.Uint64(b[16:])) != size:
		return fmt.Errorf("header says %d bytes, segments of this journal have %d", binary.LittleEndian.Uint64(b[16:]), size)
	}
	return nil
}

// saltOf returns the salt and the segment size that the header of a segment file holds. It returns
// false if there is no valid header, or one of format 1, which has no salt.
func saltOf(f io.ReaderAt) (salt [8]byte, size int64, ok bool) {
	b := make([]byte, headerSize)
	if f.ReadAt(b, 0); b[32] != headerVersion { // after a failed read, the header is not valid
		return salt, 0, false
	}
	copy(salt[:], b[24:])
	number, size := binary.LittleEndian.Uint64(b[8:]), int64(binary.LittleEndian.Uint64(b[16:]))
	return salt, size, checkHeader(b, seed(salt, number), number, size) == nil
}

// finalMark is a bit that is set in the group number of a final watermark. A final watermark says
// that no more groups follow in its segment, and that the journal continues in the next segment.
const finalMark = 1 << 63

func encodeWatermark(seed uint32, end int64, group uint64) []byte {
	b := make([]byte, watermarkSize)
	binary.LittleEndian.PutUint32(b[4:], uint32(end))
	binary.LittleEndian.PutUint64(b[8:], group)
	binary.LittleEndian.PutUint32(b, sum(seed, b[4:]))
	return b
}

// decodeWatermark returns the offset up to which the segment is known to be synced, or 0 if there
// is no valid watermark. It also reports whether the watermark is final.
func decodeWatermark(b []byte, seed uint32) (end int64, final bool) {
	if binary.LittleEndian.Uint32(b) != sum(seed, b[4:watermarkSize]) {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint32(b[4:])), binary.LittleEndian.Uint64(b[8:])&finalMark != 0
}

// slot is the index entry of one record in a sealed segment.
type slot struct {
	off   uint32
	size  uint32 // size of the payload
	head  uint16 // size of the head
	kind  kind
	flags engine.Flags
	count uint32
	log   uint64
	seq   uint64
	time  int64
	keyed bool // the record has a key
	tag   bool // the record has a tag
}

// The bits of a slot's flags byte that mark a record with a key and one with a tag. Engine flags use
// only lower bits.
const (
	slotKeyed  = 0x80
	slotTagged = 0x40
)

func appendSlot(b []byte, off uint32, r *record) []byte {
	var s [slotSize]byte
	binary.LittleEndian.PutUint32(s[0:], off)
	binary.LittleEndian.PutUint32(s[4:], uint32(len(r.payload)))
	binary.LittleEndian.PutUint16(s[8:], uint16(r.headLen()))
	s[10], s[11] = byte(r.kind), byte(r.flags)
	if r.key != "" {
		s[11] |= slotKeyed
	}
	if r.tag != "" {
		s[11] |= slotTagged
	}
	binary.LittleEndian.PutUint32(s[12:], r.count)
	binary.LittleEndian.PutUint64(s[16:], r.log)
	binary.LittleEndian.PutUint64(s[24:], r.seq)
	binary.LittleEndian.PutUint64(s[32:], uint64(r.time))
	return append(b, s[:]...)
}

func decodeSlot(b []byte) slot {
	return slot{
		off: binary.LittleEndian.Uint32(b), size: binary.LittleEndian.Uint32(b[4:]), head: binary.LittleEndian.Uint16(b[8:]),
		kind: kind(b[10]), flags: engine.Flags(b[11] &^ (slotKeyed | slotTagged)), keyed: b[11]&slotKeyed != 0, tag: b[11]&slotTagged != 0,
		count: binary.LittleEndian.Uint32(b[12:]),
		log:   binary.LittleEndian.Uint64(b[16:]), seq: binary.LittleEndian.Uint64(b[24:]),
		time: int64(binary.LittleEndian.Uint64(b[32:])),
	}
}

// keySlot is what a segment stores about one batch with an idempotency key. (The key table of a
// segment holds all its key slots.)
type keySlot struct {
	off    uint32
	size   uint16 // size of the key
	count  uint32
	digest weir.KeyDigest
}

func appendKeySlot(b []byte, off uint32, r *record) []byte {
	digest := r.digest
	if digest == (weir.KeyDigest{}) {
		digest = weir.DigestKey(r.key)
	}
	b = binary.LittleEndian.AppendUint32(b, off)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.key)))
	b = binary.LittleEndian.AppendUint32(b, r.count)
	return append(b, digest[:]...)
}

func decodeKeySlot(b []byte) keySlot {
	return keySlot{
		off: binary.LittleEndian.Uint32(b), size: binary.LittleEndian.Uint16(b[4:]), count: binary.LittleEndian.Uint32(b[6:]),
		digest: weir.KeyDigest(b[10:keySlotSize]),
	}
}

// keyDirectory returns the directory of the key table. For each block of key slots, the directory
// holds the offset of the first record in that block, and a checksum of the block.
func keyDirectory(keys []byte, seed uint32) []byte {
	var b []byte
	for len(keys) > 0 {
		block := keys[:min(len(keys), keyBlock*keySlotSize)]
		b = append(b, block[:4]...)
		b = binary.LittleEndian.AppendUint32(b, sum(seed, block))
		keys = keys[len(block):]
	}
	return b
}

// keySpace returns how many bytes a number of key slots takes, including their directory.
func keySpace(keys int) int64 {
	return int64(keys)*keySlotSize + int64((keys+keyBlock-1)/keyBlock)*keyBlockSize
}

// again returns b as a string. If the string old is equal, again returns old, which takes no memory.
func again(old string, b []byte) string {
	if old == string(b) {
		return old
	}
	return string(b)
}
