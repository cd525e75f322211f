package directory

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// A slot of the file "end" is read as it was written, and zeros are not a valid slot.
func TestEndRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var n [5]uint64
		for i := range n {
			n[i] = rapid.Uint64().Draw(t, "number")
		}
		r := endRecord{Count: n[0], Latest: Ending{n[1], int64(n[2]), n[3]}, size: int64(n[4])}
		binary.LittleEndian.PutUint64(r.salt[:], n[0]^n[4])
		b := r.encode()
		if got, ok := decodeEnd(b); got != r || !ok {
			t.Fatalf("%+v, want %+v", got, r)
		}
		if b[rapid.IntRange(0, endSlot-1).Draw(t, "at")] ^= 1; decodes(b) || decodes(make([]byte, endSlot)) {
			t.Fatal("a damaged slot or zeros decode as a valid slot")
		}
	})
}

func decodes(b []byte) bool {
	_, ok := decodeEnd(b)
	return ok
}
