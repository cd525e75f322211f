package segments

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
	DataStart       = 4096
	FrameSize       = 24
	RecordSize      = 48 // the fixed part of a record
	SlotSize        = 40
	KeySlotSize     = 26
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

// Kind is the kind of a record. For entries it equals the engine's kind.
type Kind uint8

const (
	KindBatch     = Kind(engine.Batch)
	KindGapClosed = Kind(engine.GapClosed)
	KindMark      = Kind(3) // the last trim of a log: the sequence low, below which all entries are trimmed, and a note
	KindDocument  = Kind(4)
	KindDeleted   = Kind(5) // the deletion of a document and its log
	KindManifest  = Kind(6) // the list of the journal's segments
)

// Entry reports whether records of this kind are entries of logs.
func (k Kind) Entry() bool { return k == KindBatch || k == KindGapClosed }

// kindNames are the names of record kinds in reports.
var kindNames = map[Kind]string{
	KindBatch: "batch", KindGapClosed: "closed gap", KindMark: "mark", KindDocument: "document", KindDeleted: "deletion", KindManifest: "manifest",
}

// String returns the name of the kind in reports.
func (k Kind) String() string { return kindNames[k] }

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

// Sum returns the checksum of b. For a checksum that is not seeded, seed is 0.
func Sum(seed uint32, b []byte) uint32 { return crc32.Update(seed, castagnoli, b) }

// Padded returns the size of a record of n bytes with its padding.
func Padded(n int) int { return (n + align - 1) &^ (align - 1) }

// Record is one record. The meaning of its fields depends on the kind:
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
type Record struct {
	Kind        Kind
	Flags       engine.Flags
	Log         uint64
	Seq         uint64
	Time        int64
	Count       uint32
	ContentType string
	Key         string
	Publisher   string
	Tag         string // bytes that the judge needs when the log is opened
	Payload     []byte
	PayloadSum  uint32
	Length      uint32         // length of the payload; also set if only the head was decoded
	Digest      weir.KeyDigest // digest of key, or zero if it is not computed yet; not on disk
}

// HeadLen returns the length of the record without its payload.
func (r *Record) HeadLen() int {
	n := RecordSize + len(r.ContentType) + len(r.Key) + len(r.Publisher)
	if r.Tag != "" {
		n += len(r.Tag) + TagLength
	}
	return n
}

// tagged is the bit of a record's flags byte that marks a record with a tag. The head of such a
// record ends with the tag and then its length, in TagLength bytes. Engine flags use only lower
// bits.
const (
	tagged    = 0x10
	TagLength = 2
)

// Size returns the length of the record in the segment, including padding.
func (r *Record) Size() int { return Padded(r.HeadLen() + len(r.Payload)) }

// Bytes returns the space that the record takes in its segment, including its slot in the index.
func (r *Record) Bytes() int64 { return int64(r.Size() + SlotSize) }

// appendHead appends the encoded record up to its payload, with a seeded checksum.
func (r *Record) appendHead(b []byte, seed uint32) []byte {
	at := len(b)
	var h [RecordSize]byte
	binary.LittleEndian.PutUint32(h[4:], r.PayloadSum)
	binary.LittleEndian.PutUint32(h[8:], uint32(len(r.Payload)))
	binary.LittleEndian.PutUint16(h[12:], uint16(r.HeadLen()))
	h[14], h[15] = byte(r.Kind), byte(r.Flags)
	binary.LittleEndian.PutUint64(h[16:], r.Log)
	binary.LittleEndian.PutUint64(h[24:], r.Seq)
	binary.LittleEndian.PutUint64(h[32:], uint64(r.Time))
	binary.LittleEndian.PutUint32(h[40:], r.Count)
	binary.LittleEndian.PutUint16(h[44:], uint16(len(r.ContentType)))
	binary.LittleEndian.PutUint16(h[46:], uint16(len(r.Key)))
	b = append(b, h[:]...)
	b = append(b, r.ContentType...)
	b = append(b, r.Key...)
	b = append(b, r.Publisher...)
	if r.Tag != "" {
		b[at+15] |= tagged
		b = append(b, r.Tag...)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(r.Tag)))
	}
	binary.LittleEndian.PutUint32(b[at:], Sum(seed, b[at+4:]))
	return b
}

// DecodeHead decodes the head of the record at the start of b and verifies its checksum. b may be
// longer or shorter than the record. Strings that are equal to those of the previous content of *r
// are not copied again.
func (r *Record) DecodeHead(b []byte, seed uint32) error {
	ct, key, head, err := CheckHead(b, seed)
	if err != nil {
		return err
	}
	end, tag := TagOf(b, key, head)
	if end < 0 {
		return ErrChecksum
	}
	*r = Record{
		Kind: Kind(b[14]), Flags: engine.Flags(b[15] &^ tagged), Tag: string(tag),
		Log: binary.LittleEndian.Uint64(b[16:]), Seq: binary.LittleEndian.Uint64(b[24:]),
		Time: int64(binary.LittleEndian.Uint64(b[32:])), Count: binary.LittleEndian.Uint32(b[40:]),
		ContentType: again(r.ContentType, b[RecordSize:ct]), Key: string(b[ct:key]), Publisher: again(r.Publisher, b[key:end]),
		PayloadSum: binary.LittleEndian.Uint32(b[4:]), Length: binary.LittleEndian.Uint32(b[8:]),
	}
	return nil
}

// CheckHead verifies the head of the record at the start of b. It returns three offsets: where the
// content type ends, where the key ends, and where the head ends. The content type begins at
// RecordSize, the key follows the content type, and the publisher and the tag take the rest of the
// head.
func CheckHead(b []byte, seed uint32) (ct, key, head int, err error) {
	if len(b) < RecordSize {
		return 0, 0, 0, errShort
	}
	head = int(binary.LittleEndian.Uint16(b[12:]))
	if head < RecordSize || head > len(b) {
		return 0, 0, 0, errShort
	}
	ct = RecordSize + int(binary.LittleEndian.Uint16(b[44:]))
	key = ct + int(binary.LittleEndian.Uint16(b[46:]))
	if key > head || b[14] == 0 || binary.LittleEndian.Uint32(b) != Sum(seed, b[4:head]) {
		return 0, 0, 0, ErrChecksum
	}
	return ct, key, head, nil
}

// TagOf returns the tag in the head of a record, and the offset at which the publisher ends. Without
// a tag, this offset is the end of the head. The offset is -1 if the head is too short for its tag.
func TagOf(b []byte, key, head int) (end int, tag []byte) {
	if b[15]&tagged == 0 {
		return head, nil
	}
	if head-TagLength < key {
		return -1, nil
	}
	last := head - TagLength
	end = last - int(binary.LittleEndian.Uint16(b[last:]))
	if end < key {
		return -1, nil
	}
	return end, b[end:last]
}

// Decode decodes the whole record at the start of b and verifies both checksums. The payload is a
// slice of b.
func (r *Record) Decode(b []byte, seed uint32) error {
	if err := r.DecodeHead(b, seed); err != nil {
		return err
	}
	var err error
	r.Payload, err = checkPayload(b, r.HeadLen())
	return err
}

// checkPayload verifies and returns the payload of the record at the start of b, whose head is valid
// and has the given length.
func checkPayload(b []byte, head int) ([]byte, error) {
	length := binary.LittleEndian.Uint32(b[8:])
	if uint64(length) > uint64(len(b)-head) {
		return nil, errShort
	}
	end := head + int(length)
	if payload := b[head:end:end]; crc32.Checksum(payload, castagnoli) == binary.LittleEndian.Uint32(b[4:]) {
		return payload, nil
	}
	return nil, ErrChecksum
}

// checkRecord does the same as Decode, but keeps nothing of the record, so it allocates nothing. It
// returns the length of the record, including padding.
func checkRecord(b []byte, seed uint32) (size int, err error) {
	_, key, head, err := CheckHead(b, seed)
	if err != nil {
		return 0, err
	}
	if end, _ := TagOf(b, key, head); end < 0 {
		return 0, ErrChecksum
	}
	payload, err := checkPayload(b, head)
	return Padded(head + len(payload)), err
}

// Header converts the record of an entry to an engine.Header.
func (r *Record) Header() engine.Header {
	h := engine.Header{
		Kind: engine.Kind(r.Kind), Flags: r.Flags, Seq: weir.Seq(r.Seq), Time: weir.Time(r.Time), Count: r.Count,
		Size: r.Length, ContentType: r.ContentType, Key: r.Key, Publisher: r.Publisher,
		Tag: r.Tag,
	}
	if r.Kind == KindGapClosed {
		h.First, h.Size = weir.Seq(binary.LittleEndian.Uint64(r.Payload)), 0
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
	binary.LittleEndian.PutUint32(b, Sum(seed, b[4:FrameSize]))
}

func decodeFrame(b []byte, seed uint32) (frame, bool) {
	if len(b) < FrameSize {
		return frame{}, false
	}
	magic := binary.LittleEndian.Uint32(b[4:])
	if magic != frameMagic && magic != oldFrameMagic || binary.LittleEndian.Uint32(b) != Sum(seed, b[4:FrameSize]) {
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
func bind(bond uint32, head []byte) uint32 { return Sum(bond, head[:4]) }

// checkGroup checks all records of a group and their bond. On an error it returns the offset of the
// first damaged record, or 0 if only the bond is wrong.
func checkGroup(b []byte, f frame, seed uint32) (int, error) {
	off, count, bond := FrameSize, uint32(0), uint32(0)
	for ; off < len(b); count++ {
		size, err := checkRecord(b[off:], seed)
		if err != nil {
			return off, err
		}
		bond = bind(bond, b[off:])
		off += size
	}
	if f.old {
		bond = count
	}
	if off != len(b) || bond != f.bond {
		return 0, ErrChecksum
	}
	return 0, nil
}

// headerVersion is the version number in the header of a segment. Since version 2 the header holds
// the salt, and the watermark of a sealed segment covers all of its groups. In segments of format 1,
// the version number and the salt are zero.
const headerVersion = 2

// packed is the value of the byte after the version in the header of a segment that is stored in
// compressed blocks.
const packed = 1

// IsPacked reports whether b begins with the header of a segment that is stored in compressed blocks.
func IsPacked(b []byte) bool {
	return len(b) >= headerSize && string(b[:8]) == segmentMagic && b[32] == headerVersion && b[33] == packed
}

// Header returns the first block of the segment, with its header and without a watermark.
func (s *Segment) Header(salt [8]byte) []byte {
	return encodeHeader(salt, s.Number, s.size, s.Packed() != nil)
}

func encodeHeader(salt [8]byte, number uint64, size int64, compressed bool) []byte {
	b := make([]byte, DataStart) // the whole block: in a recycled file, it erases the watermark
	copy(b, segmentMagic)
	binary.LittleEndian.PutUint64(b[8:], number)
	binary.LittleEndian.PutUint64(b[16:], uint64(size))
	copy(b[24:], salt[:])
	if b[32] = headerVersion; compressed {
		b[33] = packed
	}
	binary.LittleEndian.PutUint32(b[headerSize-4:], Sum(seed(salt, number), b[:headerSize-4]))
	return b
}

// checkHeader verifies that b begins with the header of this segment in this journal.
func checkHeader(b []byte, seed uint32, number uint64, size int64) error {
	switch {
	case len(b) < headerSize:
		return errShort
	case string(b[:8]) != segmentMagic, binary.LittleEndian.Uint32(b[headerSize-4:]) != Sum(seed, b[:headerSize-4]),
		binary.LittleEndian.Uint64(b[8:]) != number:
		return ErrChecksum
	case int64(binary.LittleEndian.Uint64(b[16:])) != size:
		return fmt.Errorf("header says %d bytes, segments of this journal have %d", binary.LittleEndian.Uint64(b[16:]), size)
	}
	return nil
}

// SaltOf returns the salt and the segment size that the header of a segment file holds. It returns
// false if there is no valid header, or one of format 1, which has no salt.
func SaltOf(f io.ReaderAt) (salt [8]byte, size int64, ok bool) {
	b := make([]byte, headerSize)
	if f.ReadAt(b, 0); b[32] != headerVersion { // after a failed read, the header is not valid
		return salt, 0, false
	}
	copy(salt[:], b[24:])
	number, size := binary.LittleEndian.Uint64(b[8:]), int64(binary.LittleEndian.Uint64(b[16:]))
	return salt, size, checkHeader(b, seed(salt, number), number, size) == nil
}

// FinalMark is a bit that is set in the group number of a final watermark. A final watermark says
// that no more groups follow in its segment, and that the journal continues in the next segment.
const FinalMark = 1 << 63

func encodeWatermark(seed uint32, end int64, group uint64) []byte {
	b := make([]byte, watermarkSize)
	binary.LittleEndian.PutUint32(b[4:], uint32(end))
	binary.LittleEndian.PutUint64(b[8:], group)
	binary.LittleEndian.PutUint32(b, Sum(seed, b[4:]))
	return b
}

// decodeWatermark returns the offset up to which the segment is known to be synced, or 0 if there
// is no valid watermark. It also reports whether the watermark is final.
func decodeWatermark(b []byte, seed uint32) (end int64, final bool) {
	if binary.LittleEndian.Uint32(b) != Sum(seed, b[4:watermarkSize]) {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint32(b[4:])), binary.LittleEndian.Uint64(b[8:])&FinalMark != 0
}

// KeySlot is what a segment stores about one batch with an idempotency key. (The key table of a
// segment holds all its key slots.)
type KeySlot struct {
	off    uint32
	Size   uint16 // size of the key
	Count  uint32
	Digest weir.KeyDigest
}

func appendKeySlot(b []byte, off uint32, r *Record) []byte {
	digest := r.Digest
	if digest == (weir.KeyDigest{}) {
		digest = weir.DigestKey(r.Key)
	}
	b = binary.LittleEndian.AppendUint32(b, off)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(r.Key)))
	b = binary.LittleEndian.AppendUint32(b, r.Count)
	return append(b, digest[:]...)
}

// DecodeKeySlot decodes the key slot at the start of b.
func DecodeKeySlot(b []byte) KeySlot {
	return KeySlot{
		off: binary.LittleEndian.Uint32(b), Size: binary.LittleEndian.Uint16(b[4:]), Count: binary.LittleEndian.Uint32(b[6:]),
		Digest: weir.KeyDigest(b[10:KeySlotSize]),
	}
}

// keyDirectory returns the directory of the key table. For each block of key slots, the directory
// holds the offset of the first record in that block, and a checksum of the block.
func keyDirectory(keys []byte, seed uint32) []byte {
	var b []byte
	for len(keys) > 0 {
		block := keys[:min(len(keys), keyBlock*KeySlotSize)]
		b = append(b, block[:4]...)
		b = binary.LittleEndian.AppendUint32(b, Sum(seed, block))
		keys = keys[len(block):]
	}
	return b
}

// keySpace returns how many bytes a number of key slots takes, including their directory.
func keySpace(keys int) int64 {
	return int64(keys)*KeySlotSize + int64((keys+keyBlock-1)/keyBlock)*keyBlockSize
}

// again returns b as a string. If the string old is equal, again returns old, so that no memory is
// allocated.
func again(old string, b []byte) string {
	if old == string(b) {
		return old
	}
	return string(b)
}
