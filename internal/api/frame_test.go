package api

import (
	"bytes"
	"strings"
	"testing"

	"weir"
	"weir/internal/hub"
)

func TestFrames(t *testing.T) {
	ts := weir.Time(1_794_700_800_000)
	for _, c := range []struct{ got, want string }{
		{string(Frame(nil, weir.JSON, &weir.Batch{Seq: 7, Time: ts, Payload: []byte(`[1,{"a":"\n"}]`)})),
			"id: 7\nevent: batch\ndata: {\"seq\":7,\"ts\":\"2026-11-15T00:00:00.000Z\",\"events\":[1,{\"a\":\"\\n\"}]}\n\n"},
		{string(Frame(nil, weir.Raw, &weir.Batch{Seq: 0, Time: ts, ContentType: `application/octet-stream; x="y"`, Payload: []byte("\n\nevent: end\ndata: x\n\n")})),
			"id: 0\nevent: batch\ndata: {\"seq\":0,\"ts\":\"2026-11-15T00:00:00.000Z\",\"content_type\":\"application/octet-stream; x=\\\"y\\\"\",\"data\":\"CgpldmVudDogZW5kCmRhdGE6IHgKCg==\"}\n\n"},
		{string(gapFrame(&hub.Gap{From: 8, To: 41})), "id: 41\nevent: gap\ndata: {\"from\":8,\"to\":41,\"reason\":\"evicted\"}\n\n"},
		{string(deletedFrame), "event: end\ndata: {\"reason\":\"stream_deleted\"}\n\n"},
		{string(retryFrame(4711)), "retry: 4711\n\n"},
		{string(helloFrame(6, true)), "retry: 1000\nid: 6\n\n"},
		{string(helloFrame(0, true)), "retry: 1000\nid: 0\n\n"},
		{string(helloFrame(0, false)), "retry: 1000\n\n"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// Frame allocates memory once, because its first allocation is large enough.
func TestFrameSize(t *testing.T) {
	b := &weir.Batch{Seq: weir.MaxSeq, Payload: bytes.Repeat([]byte("1,"), 5000), ContentType: "application/octet-stream"}
	for _, mode := range []weir.Mode{weir.JSON, weir.Raw} {
		if n := testing.AllocsPerRun(100, func() { Frame(nil, mode, b) }); n > 1 {
			t.Errorf("a %s frame costs %v allocations, want 1", mode, n)
		}
	}
}

func TestAccept(t *testing.T) {
	for _, c := range []struct {
		accept string // the Accept header fields, separated by |
		want   bool
	}{
		{"text/event-stream", true}, {"TEXT/Event-Stream", true}, {" text/event-stream ", true}, {"text/event-stream;q=0.9, */*;q=0.1", true},
		{"*/*;q=0.1,text/event-stream ; q=0.001", true}, {"application/json|text/event-stream", true}, {"text/event-stream;charset=utf-8", true},
		{"text/event-stream;q=1.000", true}, {"text/event-stream;Q=0.5", true}, {`text/event-stream;a="x,;y";q=0.5`, true}, {`a/b;c="\",",text/event-stream`, true},
		{"", false}, {"*/*", false}, {"text/*", false}, {"text/event-stream;q=0", false}, {"text/event-stream; q=0.000", false}, {"text/event-stream;q=", false},
		{"text/event-stream;q=x", false}, {"text/event-stream;q=-1", false}, {"text/event-stream;q=NaN", false}, {"text/event-stream;q=2", false}, {"text/event-streams", false},
		{"text/html, application/json", false}, {`a/b;c="text/event-stream"`, false}, {`a/b;c=",text/event-stream,"`, false}, {"text/event-stream;q=0, text/event-stream;q=0.1", true},
	} {
		if got := acceptsEvents(strings.Split(c.accept, "|")); got != c.want {
			t.Errorf("acceptsEvents(%q): %v, want %v", c.accept, got, c.want)
		}
	}
	if acceptsEvents(nil) {
		t.Error("acceptsEvents is true for a request without an Accept header field")
	}
}

func TestGapFrame(t *testing.T) {
	for want, g := range map[string]hub.Gap{
		"id: 41\nevent: gap\ndata: {\"from\":8,\"to\":41,\"reason\":\"evicted\"}\n\n": {From: 8, To: 41},
		"id: 7\nevent: gap\ndata: {\"from\":7,\"to\":7,\"reason\":\"lost\"}\n\n":      {From: 7, To: 7, Lost: true},
	} {
		if got := string(gapFrame(&g)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
