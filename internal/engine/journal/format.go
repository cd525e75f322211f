package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"weir"
	"weir/internal/engine"
)

// The layout of a segment. DESIGN.md describes every byte; only this file encodes and decodes them.
//
//	0          header (64)           magic, number, size, checksum; durable before the file gets its name
//	2048       watermark (16)        how far the segment is known to be synced; a hint, not authoritative
//	4096       groups                frame, then records; each group is one write and one sync
//	size-64-n  index (40 per slot)   one slot per record; only in a sealed segment
//	size-64    footer (64)           only in a sealed segment
const (
	headerSize      = 64
	watermarkOffset = 2048
	watermarkSize   = 16
	dataStart       = 4096
	frameSize       = 24
	recordSize      = 48 // the fixed part of a record
	slotSize        = 40
	footerSize      = 64
	align           = 8
)

const (
	segmentMagic = "WEIRSEG1"
	frameMagic   = 0x50524757 // "WGRP"
	footerMagic  = 0x444e4557 // "WEND"
)

// kind is the kind of a record. For entries it equals the engine's kind.
type kind uint8

const (
	kindBatch     = kind(engine.Batch)
	kindGapClosed = kind(engine.GapClosed)
	kindMark      = kind(3) // a log's low and note
	kindDocument  = kind(4)
	kindDeleted   = kind(5) // the deletion of a document and its log
	kindManifest  = kind(6) // the list of the journal's segments
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seed returns the start value of the seeded checksums of a segment. It covers the journal's secret
// salt and the segment number. Therefore the previous content of a recycled file is never valid,
// and no client can publish bytes that look like a group.
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
//	manifest             next revision            1: a draft                                   segment numbers (8 each)
//
// A batch may have a publisher as well.
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
	payload     []byte
	payloadSum  uint32
	length      uint32 // length of the payload, set even if only the head was read
}

func (r *record) headLen() int {
	return recordSize + len(r.contentType) + len(r.key) + len(r.publisher)
}

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
	binary.LittleEndian.PutUint32(b[at:], sum(seed, b[at+4:]))
	return b
}

// decodeHead decodes the head of the record at the start of b and verifies its checksum. b may be
// longer or shorter than the record.
func (r *record) decodeHead(b []byte, seed uint32) error {
	ct, key, head, err := checkHead(b, seed)
	if err != nil {
		return err
	}
	*r = record{
		kind: kind(b[14]), flags: engine.Flags(b[15]),
		log: binary.LittleEndian.Uint64(b[16:]), seq: binary.LittleEndian.Uint64(b[24:]),
		time: int64(binary.LittleEndian.Uint64(b[32:])), count: binary.LittleEndian.Uint32(b[40:]),
		contentType: string(b[recordSize:ct]), key: string(b[ct:key]), publisher: string(b[key:head]),
		payloadSum: binary.LittleEndian.Uint32(b[4:]), length: binary.LittleEndian.Uint32(b[8:]),
	}
	return nil
}

// checkHead verifies the head of the record at the start of b. It returns where the content type
// ends, which begins at recordSize, where the key ends, which follows it, and where the head ends.
// The publisher takes what is left between the key and the end.
func checkHead(b []byte, seed uint32) (ct, key, head int, err error) {
	if len(b) < recordSize {
		return 0, 0, 0, errShort
	}
	head = int(binary.LittleEndian.Uint16(b[12:]))
	if head < recordSize || head > len(b) {
		return 0, 0, 0, errShort
	}
	if binary.LittleEndian.Uint32(b) != sum(seed, b[4:head]) {
		return 0, 0, 0, errChecksum
	}
	ct = recordSize + int(binary.LittleEndian.Uint16(b[44:]))
	key = ct + int(binary.LittleEndian.Uint16(b[46:]))
	if key > head || b[14] == 0 {
		return 0, 0, 0, errChecksum
	}
	return ct, key, head, nil
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
	}
	if r.kind == kindGapClosed {
		h.First, h.Size = weir.Seq(binary.LittleEndian.Uint64(r.payload)), 0
	}
	return h
}

func encodeFrame(b []byte, seed uint32, length, count int, group uint64) {
	binary.LittleEndian.PutUint32(b[4:], frameMagic)
	binary.LittleEndian.PutUint32(b[8:], uint32(length))
	binary.LittleEndian.PutUint32(b[12:], uint32(count))
	binary.LittleEndian.PutUint64(b[16:], group)
	binary.LittleEndian.PutUint32(b, sum(seed, b[4:frameSize]))
}

type frame struct {
	length, count int
	group         uint64
}

func decodeFrame(b []byte, seed uint32) (frame, bool) {
	if len(b) < frameSize || binary.LittleEndian.Uint32(b[4:]) != frameMagic ||
		binary.LittleEndian.Uint32(b) != sum(seed, b[4:frameSize]) {
		return frame{}, false
	}
	return frame{
		length: int(binary.LittleEndian.Uint32(b[8:])), count: int(binary.LittleEndian.Uint32(b[12:])),
		group: binary.LittleEndian.Uint64(b[16:]),
	}, true
}

func encodeHeader(seed uint32, number uint64, size int64) []byte {
	b := make([]byte, dataStart) // the whole block, so that the watermark of a recycled file is erased
	copy(b, segmentMagic)
	binary.LittleEndian.PutUint64(b[8:], number)
	binary.LittleEndian.PutUint64(b[16:], uint64(size))
	binary.LittleEndian.PutUint32(b[headerSize-4:], sum(seed, b[:headerSize-4]))
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

func encodeWatermark(seed uint32, end int64, group uint64) []byte {
	b := make([]byte, watermarkSize)
	binary.LittleEndian.PutUint32(b[4:], uint32(end))
	binary.LittleEndian.PutUint64(b[8:], group)
	binary.LittleEndian.PutUint32(b, sum(seed, b[4:]))
	return b
}

// decodeWatermark returns the offset up to which the segment is known to be synced, or 0 if there
// is no valid watermark.
func decodeWatermark(b []byte, seed uint32) int64 {
	if binary.LittleEndian.Uint32(b) != sum(seed, b[4:watermarkSize]) {
		return 0
	}
	return int64(binary.LittleEndian.Uint32(b[4:]))
}

// slot is the index entry of one record in a sealed segment.
type slot struct {
	off   uint32
	size  uint32 // of the payload
	head  uint16
	kind  kind
	flags engine.Flags
	count uint32
	log   uint64
	seq   uint64
	time  int64
	keyed bool
}

// slotKeyed is the bit of a slot's flags byte that marks a record with a key. Engine flags use only
// lower bits.
const slotKeyed = 0x80

func appendSlot(b []byte, off uint32, r *record) []byte {
	var s [slotSize]byte
	binary.LittleEndian.PutUint32(s[0:], off)
	binary.LittleEndian.PutUint32(s[4:], uint32(len(r.payload)))
	binary.LittleEndian.PutUint16(s[8:], uint16(r.headLen()))
	s[10], s[11] = byte(r.kind), byte(r.flags)
	if r.key != "" {
		s[11] |= slotKeyed
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
		kind: kind(b[10]), flags: engine.Flags(b[11] &^ slotKeyed), keyed: b[11]&slotKeyed != 0,
		count: binary.LittleEndian.Uint32(b[12:]),
		log:   binary.LittleEndian.Uint64(b[16:]), seq: binary.LittleEndian.Uint64(b[24:]),
		time: int64(binary.LittleEndian.Uint64(b[32:])),
	}
}

// footer ends a sealed segment.
type footer struct {
	number    uint64
	nextGroup uint64
	end       int64 // offset of the end of the groups
	slots     int
	index     int64 // offset of the index
	indexSum  uint32
}

func (f footer) encode(seed uint32) []byte {
	b := make([]byte, footerSize)
	binary.LittleEndian.PutUint32(b[4:], footerMagic)
	binary.LittleEndian.PutUint64(b[8:], f.number)
	binary.LittleEndian.PutUint64(b[16:], f.nextGroup)
	binary.LittleEndian.PutUint32(b[24:], uint32(f.end))
	binary.LittleEndian.PutUint32(b[28:], uint32(f.slots))
	binary.LittleEndian.PutUint32(b[32:], uint32(f.index))
	binary.LittleEndian.PutUint32(b[36:], f.indexSum)
	binary.LittleEndian.PutUint32(b, sum(seed, b[4:]))
	return b
}

func decodeFooter(b []byte, seed uint32) (footer, bool) {
	if binary.LittleEndian.Uint32(b[4:]) != footerMagic || binary.LittleEndian.Uint32(b) != sum(seed, b[4:footerSize]) {
		return footer{}, false
	}
	return footer{
		number: binary.LittleEndian.Uint64(b[8:]), nextGroup: binary.LittleEndian.Uint64(b[16:]),
		end: int64(binary.LittleEndian.Uint32(b[24:])), slots: int(binary.LittleEndian.Uint32(b[28:])),
		index: int64(binary.LittleEndian.Uint32(b[32:])), indexSum: binary.LittleEndian.Uint32(b[36:]),
	}, true
}
