package record

import (
	"encoding/base64"
	"testing"

	"github.com/nats-io/nats.go"

	"weir/internal/engine"
)

// Encoding and decoding the records of a message gives the same records. A header field that is cut
// short or has a wrong character is rejected.
func TestRecords(t *testing.T) {
	want := []Record{
		{Position: 7, Group: 99, Parts: 1, Sum: 1, Header: engine.Header{Kind: engine.Batch, Seq: 3, Time: -5, Count: 2, Size: 10, ContentType: "a/b", Key: "key", Tag: "tag"}},
		{Position: 8, Group: 99, Parts: 1, Header: engine.Header{Kind: engine.GapClosed, First: 4, Seq: 1<<53 - 1, Flags: engine.Lost | engine.Ends}},
		{Position: 9, Group: 99, Parts: 1, Sum: 2, Header: engine.Header{Kind: Trim, Seq: 2, Size: 6}},
	}
	text := Header(want...).Get(field)
	if raw, err := base64.RawURLEncoding.DecodeString(text); err != nil || raw[0] != Tagged {
		t.Errorf("a message that closes a stream has version %d, %v; want %d, which older programs refuse", raw[0], err, Tagged)
	}
	got, err := Decode(nats.Header{field: {text}}, 11, Tagged)
	if err != nil || len(got) != len(want) {
		t.Fatalf("decoded %+v, %v; want %d records", got, err, len(want))
	}
	for i, offset := range []uint32{0, 10, 10} {
		want[i].At, want[i].Offset = 11, offset
		if got[i] != want[i] {
			t.Errorf("decoded %+v, want %+v", got[i], want[i])
		}
	}
	for i := range text {
		for _, wrong := range []string{text[:i], text[:i] + "~" + text[i+1:], text[:i] + string(text[i]^1) + text[i+1:]} {
			if got, err := Decode(nats.Header{field: {wrong}}, 11, Tagged); err == nil {
				t.Errorf("Decode(%s) = %+v, want an error", wrong, got)
			}
		}
	}
}
