package disk

import (
	"bytes"
	"slices"
	"testing"
)

// The kernel writes fewer bytes than requested only at a limit or after a signal, and a test can
// hardly cause that. So this test calls the code for a short write directly.
func TestSkipAfterShortWrite(t *testing.T) {
	for n := range len("abcdefghi") + 1 {
		bufs := [][]byte{[]byte("abc"), nil, []byte("d"), []byte("efgh"), nil, []byte("i")}
		rest := skip(slices.Clone(bufs), n)
		if got := string(bytes.Join(rest, nil)); got != "abcdefghi"[n:] {
			t.Errorf("after %d bytes: %q left", n, got)
		}
		if left := skipEmpty(rest); len(left) > 0 && len(left[0]) == 0 {
			t.Errorf("after %d bytes: the first buffer is empty", n)
		}
	}
}
