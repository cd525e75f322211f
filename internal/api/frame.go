package api

import (
	"encoding/base64"
	"strconv"

	"weir"
	"weir/internal/hub"
)

// This file encodes the frames of a subscription (D16). A line break inside a field of a frame
// would end the field. No field contains a line break, because events are stored without white
// space between tokens, and JSON strings escape line breaks.

var (
	heartbeatFrame = []byte(":\n\n")
	deletedFrame   = []byte("event: end\ndata: {\"reason\":\"stream_deleted\"}\n\n")
	expiredFrame   = []byte("event: end\ndata: {\"reason\":\"expired\"}\n\n")
	closedFrame    = []byte("event: end\ndata: {\"reason\":\"stream_closed\"}\n\n")
)

// Frame appends a batch to b in the form that subscribers receive. It is meant for
// hub.Options.Frame. If b is nil, Frame allocates memory exactly once.
func Frame(b []byte, mode weir.Mode, batch *weir.Batch) []byte {
	const fixed = len("id: 9007199254740991\nevent: batch\ndata: ") + len(`{"seq":9007199254740991,"ts":"2026-11-15T00:00:00.000Z"`) +
		len(`,"content_type":"","data":""`) + len("}\n\n")
	size := fixed + len(batch.Payload)
	if mode == weir.Raw {
		size = fixed + len(batch.ContentType) + base64.StdEncoding.EncodedLen(len(batch.Payload))
	}
	if b == nil {
		b = make([]byte, 0, size)
	}
	b = append(b, "id: "...)
	b = appendSeq(b, batch.Seq)
	b = append(b, "\nevent: batch\ndata: "...)
	b = appendBatch(b, mode, batch)
	return append(b, "\n\n"...)
}

// appendBatch appends the batch object, which is the data of a frame and an element of a page. The
// object of a raw batch has the body in base64.
func appendBatch(b []byte, mode weir.Mode, batch *weir.Batch) []byte {
	b = appendBatchHead(b, batch.Seq, batch.Time)
	if mode == weir.Raw {
		b = append(b, `,"content_type":`...)
		b = appendString(b, batch.ContentType)
		b = append(b, `,"data":"`...)
		b = base64.StdEncoding.AppendEncode(b, batch.Payload)
		b = append(b, '"')
	} else {
		b = append(b, `,"events":`...)
		b = append(b, batch.Payload...)
	}
	return append(b, '}')
}

// gapFrame returns a frame that reports sequences that were evicted before they could be sent, or
// that are lost. The id of the frame is the last of these sequences, so a client that reconnects
// resumes after the gap.
func gapFrame(g *hub.Gap) []byte {
	b := append(make([]byte, 0, 128), "id: "...)
	b = appendSeq(b, g.To)
	b = append(b, "\nevent: gap\ndata: "...)
	return append(appendGap(b, g), "\n\n"...)
}

// appendGap appends the gap object.
func appendGap(b []byte, g *hub.Gap) []byte {
	b = append(b, `{"from":`...)
	b = appendSeq(b, g.From)
	b = append(b, `,"to":`...)
	b = appendSeq(b, g.To)
	if g.Lost {
		return append(b, `,"reason":"lost"}`...)
	}
	return append(b, `,"reason":"evicted"}`...)
}

// helloFrame returns the first frame of a subscription. The id of the frame is the position at
// which the subscription starts. A client that loses the connection before the first batch resumes
// at this position. The frame has no data, so a client remembers the id but reports no event. If
// the parameter known is false, there is no such position, and the frame has no id.
func helloFrame(at weir.Seq, known bool) []byte {
	b := append(make([]byte, 0, 64), "retry: 1000\n"...)
	if known {
		b = appendSeq(append(b, "id: "...), at)
		b = append(b, '\n')
	}
	return append(b, '\n')
}

// retryFrame returns a frame that asks the client to wait this many milliseconds before it
// reconnects.
func retryFrame(ms int) []byte {
	return append(strconv.AppendInt([]byte("retry: "), int64(ms), 10), "\n\n"...)
}
