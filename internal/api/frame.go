package api

import (
	"encoding/base64"
	"strconv"

	"weir"
	"weir/internal/hub"
)

// The frames of a subscription (D16). No frame holds a line break inside a field: events are stored without white space
// between tokens, and inside a JSON string a line break is always an escape.

var (
	helloFrame     = []byte("retry: 1000\n\n")
	heartbeatFrame = []byte(":\n\n")
	endFrame       = []byte("event: end\ndata: {\"reason\":\"stream_deleted\"}\n\n")
)

// Frame appends a batch as subscribers get it. It is what hub.Options.Frame wants.
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
	return append(b, "}\n\n"...)
}

// gapFrame tells that sequences were evicted before they could be sent, or are lost; whoever resumes after it resumes
// behind them.
func gapFrame(g *hub.Gap) []byte {
	b := append(make([]byte, 0, 128), "id: "...)
	b = appendSeq(b, g.To)
	b = append(b, "\nevent: gap\ndata: {\"from\":"...)
	b = appendSeq(b, g.From)
	b = append(b, `,"to":`...)
	b = appendSeq(b, g.To)
	if g.Lost {
		return append(b, ",\"reason\":\"lost\"}\n\n"...)
	}
	return append(b, ",\"reason\":\"evicted\"}\n\n"...)
}

// retryFrame tells clients to come back after so many milliseconds.
func retryFrame(ms int) []byte {
	return append(strconv.AppendInt([]byte("retry: "), int64(ms), 10), "\n\n"...)
}
