package dashboard

import (
	"testing"
	"time"

	"weir"
	"weir/internal/api"
)

func TestText(t *testing.T) {
	for in, want := range map[any]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 150 << 10: "150 KiB", 100<<30 - 40<<20: "100 GiB", 99<<30 + 900<<20: "99.9 GiB", int64(5) << 40: "5.0 TiB", 1.5: "2 B"} {
		if got := bytesText(in); got != want {
			t.Errorf("bytesText(%v) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[any]string{0: "0", 999: "999", 1000: "1\u202f000", uint64(1234567): "1\u202f234\u202f567", 0.25: "0.2", -1500: "-1\u202f500", weir.Seq(7): "7"} {
		if got := numberText(in); got != want {
			t.Errorf("numberText(%v) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[any]string{0: "0.0 ms", 20 * time.Microsecond: "<0.1 ms", 50 * time.Microsecond: "0.1 ms", 9.94: "9.9 ms", 12.3: "12 ms"} {
		if got := msText(in); got != want {
			t.Errorf("msText(%v) = %q, want %q", in, got, want)
		}
	}
	if got := api.StatusOf(weir.Errorf(weir.StreamNotFound, "")); got != 404 {
		t.Errorf("StatusOf(StreamNotFound) = %d, want 404", got)
	}
}
