package disk

import (
	"bytes"
	"slices"
	"testing"
)

// The kernel writes short only when it runs into a limit or a signal, so what follows a short write is checked alone.
func TestSkipAfterShortWrite(t *testing.T) {
	for n := range len("abcdefghi") + 1 {
		bufs := [][]byte{[]byte("abc"), nil, []byte("d"), []byte("efgh"), nil, []byte("i")}
		rest := skip(slices.Clone(bufs), n)
		if got := string(bytes.Join(rest, nil)); got != "abcdefghi"[n:] {
			t.Errorf("after %d bytes %q is left", n, got)
		}
		if left := skipEmpty(rest); len(left) > 0 && len(left[0]) == 0 {
			t.Errorf("after %d bytes an empty buffer comes first", n)
		}
	}
}
