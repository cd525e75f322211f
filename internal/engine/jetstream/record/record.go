// Package record is the stored format of a log: what a message of JetStream says about the records
// that it holds, which versions of this format exist, and how the records of one write are spread
// over messages.
package record

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/nats-io/nats.go"

	"weir"
	"weir/internal/engine"
)

// Kinds of records that are not entries. Entries have the kinds of package engine.
const (
	Part    = engine.Kind(16) // a further part of the payload of the preceding record
	Trim    = engine.Kind(17) // all entries below a sequence were removed; the payload is the note for Judge.Restore
	Dropped = engine.Kind(18) // the log's document was deleted; records after this one are ignored
)

// A message holds one or more records. Their payloads follow one another in the body of the
// message. One header field describes the records, so that a node can read a log without the
// payloads:
//
//	byte     version: 4 if a record has the flag Ends or a tag; otherwise 3 if one has a publisher; otherwise 2
//	uvarint  position of the first record in its log, counted from 1
//	8 bytes  group: identifies the node and the write
//	uvarint  number of records; then for each record
//	  byte     kind
//	  uvarint  number of messages that its payload is spread over, this one included; 1 if the message has several records
//	  4 bytes  CRC-32C of the whole payload
//	  byte     flags
//	  uvarint  sequence; for a trim the low mark: everything below it was removed
//	  uvarint  first sequence; for a trim the position of the oldest record that is still needed, or 0 if unknown
//	  varint   time
//	  uvarint  count
//	  uvarint  size
//	  uvarint  length of the content type, and the content type
//	  uvarint  length of the idempotency key, and the key
//	  uvarint  length of the publisher's name, and the name; only in versions 3 and 4
//	  uvarint  length of the tag, and the tag; only in version 4
//	4 bytes  CRC-32C of everything above
//
// NATS header fields are text, so the value is encoded in base64.

// Record is one element of a log, as described above, without its payload.
type Record struct {
	Position uint64
	Group    uint64
	Parts    uint32
	Sum      uint32
	engine.Header

	// At is the sequence, in its JetStream stream, of the message that holds the record or its first
	// part. Offset is the offset of the payload within that message. Neither is part of the format.
	At     uint64
	Offset uint32
}

const (
	field = "Weir"

	// unnamed is the version of messages in which no batch has a publisher, and named is the
	// version of the messages with a publisher. A message gets the lowest version that can hold its
	// records, so that older nodes can read as many messages as possible. The version Tagged is for
	// messages that close a stream or have an entry with a tag. It has its own number so that older
	// nodes refuse such messages. Otherwise these nodes would go on appending to a closed stream.
	unnamed = 2
	named   = 3
	Tagged  = 4
	Newest  = Tagged // the newest version that this program reads
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	// ErrInvalid means that a message does not describe its records.
	ErrInvalid = errors.New("header field Weir is missing or invalid")
)

// Checksum returns the checksum of a payload.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// most returns an upper bound of the encoded size of the record in bytes.
func (r *Record) most() int {
	return 72 + len(r.ContentType) + len(r.Key) + len(r.Publisher) + len(r.Tag)
}

// Version returns the lowest version of a message that can hold the record.
func (r *Record) Version() byte {
	switch {
	case r.Flags&engine.Ends != 0 || r.Tag != "":
		return Tagged
	case r.Publisher != "":
		return named
	}
	return unnamed
}

// Header returns the header of a message with these records. The positions of the records must be
// consecutive.
func Header(all ...Record) nats.Header {
	size, version := 32, byte(unnamed)
	for i := range all {
		size += all[i].most()
		version = max(version, all[i].Version())
	}
	b := append(make([]byte, 0, size), version)
	b = binary.AppendUvarint(b, all[0].Position)
	b = binary.BigEndian.AppendUint64(b, all[0].Group)
	b = binary.AppendUvarint(b, uint64(len(all)))
	for i := range all {
		b = all[i].append(b)
		if version >= named {
			b = appendText(b, all[i].Publisher)
		}
		if version == Tagged {
			b = appendText(b, all[i].Tag)
		}
	}
	b = binary.BigEndian.AppendUint32(b, Checksum(b))
	return nats.Header{field: {base64.RawURLEncoding.EncodeToString(b)}}
}

func (r *Record) append(b []byte) []byte {
	b = append(b, byte(r.Kind))
	b = binary.AppendUvarint(b, uint64(r.Parts))
	b = binary.BigEndian.AppendUint32(b, r.Sum)
	b = append(b, byte(r.Flags))
	b = binary.AppendUvarint(b, uint64(r.Seq))
	b = binary.AppendUvarint(b, uint64(r.First))
	b = binary.AppendVarint(b, int64(r.Time))
	b = binary.AppendUvarint(b, uint64(r.Count))
	b = binary.AppendUvarint(b, uint64(r.Size))
	return appendText(appendText(b, r.ContentType), r.Key)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Decode reads the records that a message describes. The parameter at is the sequence of the
// message in its JetStream stream, and reads is the newest version that this node reads. If the
// message has a newer version, the error is engine.ErrTooNew.
func Decode(h nats.Header, at uint64, reads byte) ([]Record, error) { return Append(nil, h, at, reads) }

// Append is like Decode, but appends the records to others.
func Append(others []Record, h nats.Header, at uint64, reads byte) ([]Record, error) {
	b, err := base64.RawURLEncoding.DecodeString(h.Get(field))
	if err != nil || len(b) < 6 {
		return nil, ErrInvalid
	}
	body := b[:len(b)-4]
	if Checksum(body) != binary.BigEndian.Uint32(b[len(body):]) {
		return nil, ErrInvalid
	}
	version := body[0]
	if version > reads {
		return nil, fmt.Errorf("%w: a message has format version %d, this node reads versions up to %d", engine.ErrTooNew, version, reads)
	}
	if version < unnamed {
		return nil, ErrInvalid
	}
	d := decoder{b: body[1:]}
	position, group, n := d.number(), binary.BigEndian.Uint64(d.take(8)), d.number()
	if n == 0 || n > uint64(len(d.b)) {
		return nil, ErrInvalid
	}
	all := slices.Grow(others, int(n))[:len(others)+int(n)]
	offset, contentType := uint32(0), ""
	if len(others) > 0 {
		contentType = others[len(others)-1].ContentType
	}
	for i := range n {
		r := &all[len(others)+int(i)]
		*r = Record{}
		r.Position, r.Group, r.At, r.Offset = position+i, group, at, offset
		d.record(r, contentType)
		if version >= named {
			r.Publisher = string(d.take(d.number()))
		}
		if version == Tagged {
			r.Tag = string(d.take(d.number()))
		}
		offset += r.Size
		contentType = r.ContentType
	}
	if d.short || len(d.b) > 0 {
		return nil, ErrInvalid
	}
	return all, nil
}

// record reads the fields of a record. Most records of a message have the same content type, and
// share its memory.
func (d *decoder) record(r *Record, contentType string) {
	r.Kind = engine.Kind(d.take(1)[0])
	r.Parts, r.Sum = uint32(d.number()), binary.BigEndian.Uint32(d.take(4))
	r.Flags = engine.Flags(d.take(1)[0])
	r.Seq, r.First = weir.Seq(d.number()), weir.Seq(d.number())
	r.Time = weir.Time(d.signed())
	r.Count, r.Size = uint32(d.number()), uint32(d.number())
	r.ContentType = contentType
	if b := d.take(d.number()); string(b) != contentType {
		r.ContentType = string(b)
	}
	r.Key = string(d.take(d.number()))
}

// IsEntry reports whether the record is an entry.
func (r *Record) IsEntry() bool { return r.Kind == engine.Batch || r.Kind == engine.GapClosed }

// decoder reads fields one after another. The field short is set if the bytes run out.
type decoder struct {
	b     []byte
	short bool
}

func (d *decoder) number() uint64 {
	v, n := binary.Uvarint(d.b)
	d.skip(n)
	return v
}

func (d *decoder) signed() int64 {
	v, n := binary.Varint(d.b)
	d.skip(n)
	return v
}

func (d *decoder) skip(n int) {
	if n <= 0 {
		d.short, n = true, 0
	}
	d.b = d.b[n:]
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.short, d.b = true, nil
		return make([]byte, min(n, 8))
	}
	taken := d.b[:n]
	d.b = d.b[n:]
	return taken
}
