package dashboard

import (
	"testing"

	"weir"
	"weir/internal/api"
)

func TestText(t *testing.T) {
	for in, want := range map[any]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 150 << 10: "150 KiB", int64(5) << 40: "5.0 TiB", 1.5: "2 B"} {
		if got := bytesText(in); got != want {
			t.Errorf("bytesText(%v) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[any]string{0: "0", 999: "999", 1000: "1\u202f000", uint64(1234567): "1\u202f234\u202f567", 0.25: "0.2", -1500: "-1\u202f500", weir.Seq(7): "7"} {
		if got := numberText(in); got != want {
			t.Errorf("numberText(%v) = %q, want %q", in, got, want)
		}
	}
	if got := api.StatusOf(weir.Errorf(weir.StreamNotFound, "")); got != 404 {
		t.Errorf("StatusOf(StreamNotFound) = %d, want 404", got)
	}
}
