package durable

import (
	"encoding/json"
	"testing"
)

// Attributes have the same content as those that encoding/json writes.
func TestEncodeAttributes(t *testing.T) {
	seconds := int64(5)
	for _, text := range []string{"chats/42", "", `quote " and back\slash`, "é\u2028<html>&", "\x00\x7f", "not UTF-8: \xff"} {
		for _, a := range []attributes{{Path: text, Type: typeJSON}, {Path: "p", Type: text}, {Path: text, Type: typeJSON, TTL: &seconds}, {Path: text, Type: text, Pending: true}} {
			standard, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			var got, want attributes
			if err := json.Unmarshal([]byte(a.encode()), &got); err != nil {
				t.Fatalf("%s: %v", a.encode(), err)
			}
			if err := json.Unmarshal(standard, &want); err != nil || (got.TTL == nil) != (want.TTL == nil) {
				t.Fatalf("wrote %s, want the content of %s (%v)", a.encode(), standard, err)
			}
			if got.TTL, want.TTL = nil, nil; got != want {
				t.Errorf("wrote %s, want the content of %s", a.encode(), standard)
			}
		}
	}
}
