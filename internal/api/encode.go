package api

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"weir"
)

// This file encodes the JSON objects of the API. The encoders use no reflection. They write the
// members in the order of the specification.

func appendAck(b []byte, a *weir.Ack) []byte {
	b = append(b, `{"stream_id":"`...)
	b = append(b, a.StreamID...)
	b = append(b, `","seq":`...)
	b = appendSeq(b, a.Seq)
	b = append(b, `,"accepted":`...)
	b = strconv.AppendUint(b, uint64(a.Accepted), 10)
	b = append(b, `,"cursor":`...)
	b = appendSeq(b, a.Cursor)
	b = append(b, `,"duplicate":`...)
	b = strconv.AppendBool(b, a.Duplicate)
	return append(b, '}')
}

func appendStream(b []byte, s *weir.Stream) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, s.ID...)
	b = append(b, `","name":`...)
	b = appendString(b, s.Name)
	b = append(b, `,"created_at":"`...)
	b = s.CreatedAt.AppendFormat(b)
	b = append(b, `","retention_seconds":`...)
	b = strconv.AppendInt(b, s.RetentionSeconds, 10)
	b = append(b, `,"max_bytes":`...)
	b = strconv.AppendInt(b, s.MaxBytes, 10)
	b = append(b, `,"cursor":`...)
	b = appendSeq(b, s.Cursor)
	b = append(b, `,"bytes_stored":`...)
	b = strconv.AppendInt(b, s.BytesStored, 10)
	b = append(b, `,"mode":"`...)
	b = append(b, s.Mode...)
	b = append(b, '"')
	if s.TTLSeconds > 0 {
		b = append(b, `,"ttl_seconds":`...)
		b = strconv.AppendInt(b, s.TTLSeconds, 10)
	}
	if s.Closed {
		b = append(b, `,"closed":true`...)
	}
	return append(b, '}')
}

func appendCursor(b []byte, c *weir.Cursor) []byte {
	b = append(b, `{"cursor":`...)
	b = appendSeq(b, c.Cursor)
	b = append(b, `,"updated_at":"`...)
	b = c.UpdatedAt.AppendFormat(b)
	return append(b, `"}`...)
}

// appendBatchHead appends the start of a batch object, up to and including the member ts. The
// caller appends the members with the payload, and the closing brace.
func appendBatchHead(b []byte, seq weir.Seq, ts weir.Time) []byte {
	b = append(b, `{"seq":`...)
	b = appendSeq(b, seq)
	b = append(b, `,"ts":"`...)
	return append(ts.AppendFormat(b), '"')
}

func appendSeq(b []byte, s weir.Seq) []byte { return strconv.AppendUint(b, uint64(s), 10) }

// appendString appends a JSON string. It replaces invalid UTF-8 with U+FFFD, because the response
// must be valid JSON.
func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}
