package jsonbody

import (
	"strings"
	"testing"
)

// If a small payload is part of a large body, the function Events returns a copy of the payload.
// Otherwise the batch would keep the whole body in memory.
func TestPayloadIsCopiedOutOfLargeBody(t *testing.T) {
	body := []byte(`{"pad":"` + strings.Repeat("x", 1000) + `","events":[1, 2]}`)
	payload, _, err := Events(body)
	if err != nil {
		t.Fatal(err)
	}
	clear(body)
	if string(payload) != "[1,2]" {
		t.Errorf("the payload is a part of the body: %q after the body was cleared", payload)
	}
	whole := []byte(`{"events":["` + strings.Repeat("x", 1000) + `"]}`)
	if payload, _, err = Events(whole); err != nil {
		t.Fatal(err)
	}
	clear(whole)
	if payload[0] != 0 {
		t.Error("a payload that is nearly as large as the body was copied")
	}
	if b := Compact(make([]byte, 1<<20), make([]byte, 0, 4<<20)); cap(b) > 2<<20 {
		t.Errorf("a part of 1 MiB keeps a buffer of %d bytes in memory", cap(b))
	}
}
