package dashboard

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// A long message is cut so that its cookie fits, also if JSON writes its characters as six bytes.
func TestCut(t *testing.T) {
	for _, text := range []string{"", "saved", strings.Repeat("x", 5000), strings.Repeat("<", 5000), strings.Repeat("ä", 5000), strings.Repeat("\x80", 5000)} {
		got := cut(text, maxNotice)
		quoted, err := json.Marshal(got)
		if err != nil || len(quoted) > maxNotice+len(`""`) {
			t.Errorf("%.5q…: %d bytes of JSON, %v, want at most %d", text, len(quoted), err, maxNotice)
		}
		if !strings.HasPrefix(text, got) || len(text) < 300 && got != text || utf8.ValidString(text) != utf8.ValidString(got) || len(text) > 300 && len(got) < 300 {
			t.Errorf("%.5q…: cut to %d bytes", text, len(got))
		}
	}
}
