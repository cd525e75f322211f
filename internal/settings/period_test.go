package settings

import "testing"

// A size is a positive number of bytes, with or without a unit.
func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{"1": 1, "256MiB": 256 << 20, "4 GiB": 4 << 30, "0": 0, "-1": 0, "x": 0, "MiB": 0, "9999999999999999999": 0, "549755813887GiB": 0, "1.5MiB": 0} {
		if got, ok := ParseSize(s); ok != (want > 0) || ok && got != want {
			t.Errorf("%s is %d, %t", s, got, ok)
		}
	}
}
