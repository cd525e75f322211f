package h2

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"
)

// What the encoder writes, a decoder reads, whatever the fields are.
func TestEncoder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for round := range 50 {
		e, d := newEncoder(), hpack.NewDecoder(tableSize, nil)
		shrinks := round%3 == 0
		for response := range 60 {
			if shrinks && response == 20 {
				e.limit(100)
				d.SetAllowedMaxDynamicTableSize(100)
			}
			status := []int{200, 202, 204, 404, 413, 599}[r.IntN(6)]
			want := fmt.Sprintf(":status=%d\n", status)
			b := e.status(e.begin(nil), status)
			for range r.IntN(12) {
				name := []string{"Content-Type", "Date", "X-A", "Set-Cookie", "X-" + strings.Repeat("b", r.IntN(300)), fmt.Sprint("X-", r.IntN(200))}[r.IntN(6)]
				value := []string{"", "a", "b", strings.Repeat("c", r.IntN(2000)), fmt.Sprint(r.IntN(10))}[r.IntN(5)]
				b = e.append(b, []byte(name), []byte(value), name == "Date", name == "Set-Cookie")
				want += strings.ToLower(name) + "=" + value + "\n"
			}
			fields, err := d.DecodeFull(b)
			got := ""
			for _, f := range fields {
				got += f.Name + "=" + f.Value + "\n"
				if (f.Name == "set-cookie") != f.Sensitive {
					t.Errorf("round %d, response %d: %q is sensitive: %v", round, response, f.Name, f.Sensitive)
				}
			}
			if err != nil || got != want {
				t.Fatalf("round %d, response %d: got %q (%v), want %q", round, response, got, err, want)
			}
		}
	}
}

// The fields of a usual response take a few bytes from the second response on.
func TestEncoderIsCompact(t *testing.T) {
	e := newEncoder()
	var b []byte
	for i := range 2 {
		b = e.status(e.begin(nil), 202)
		b = e.append(b, []byte("Content-Type"), []byte("application/json"), false, false)
		b = e.append(b, []byte("X-Request-Id"), fmt.Append(nil, "request-", i), false, false)
		b = e.append(b, []byte("Content-Length"), []byte("60"), true, false)
	}
	if want := 1 + 1 + 12 + 5; len(b) > want {
		t.Errorf("the second response has %d bytes of header fields, want at most %d: %q", len(b), want, b)
	}
}
