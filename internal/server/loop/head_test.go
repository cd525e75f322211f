package loop

import (
	"fmt"
	"testing"
)

// The parser recognises the header fields of the previous request. A request is whole only when the
// last byte of its body has arrived.
func TestRecallsFields(t *testing.T) {
	var p parser
	var m remembered
	for i := range 3 {
		body := fmt.Sprint("body", 10*i)
		raw := []byte(fmt.Sprintf("POST /%d HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\nx-a: b\r\n\r\n%s", i, len(body), body))
		if r, _ := m.recall(raw); (r != nil) != (i > 0) {
			t.Fatalf("request %d: fields recalled: %v, want %v", i, r != nil, i > 0)
		}
		for n := range raw {
			if _, _, v := p.next(&m, raw[:n]); v != partial {
				t.Fatalf("request %d, first %d bytes: verdict %d, want partial", i, n, v)
			}
		}
		r, head, v := p.next(&m, append(raw, "POST"...))
		if v != whole || head != len(raw)-len(body) || r.ContentLength != int64(len(body)) || r.URL.Path != fmt.Sprint("/", i) || r.Header.Get("X-A") != "b" {
			t.Fatalf("request %d: verdict %d, head of %d bytes, %+v", i, v, head, r)
		}
	}
}
