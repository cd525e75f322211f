package weir_test

import (
	"regexp"
	"strconv"
	"testing"

	"weir"
)

// A sequence has exactly one spelling (D1).
func TestParseSeq(t *testing.T) {
	for _, c := range []struct {
		in   string
		want weir.Seq
		ok   bool
	}{
		{"0", 0, true},
		{"1", 1, true},
		{"7", 7, true},
		{"10", 10, true},
		{"1024", 1024, true},
		{"9007199254740990", weir.MaxSeq - 1, true},
		{"9007199254740991", weir.MaxSeq, true},

		{"9007199254740992", 0, false},
		{"9999999999999999", 0, false},      // as many digits as MaxSeq
		{"10000000000000000", 0, false},     // 17 digits
		{"18446744073709551615", 0, false},  // 2^64-1: 20 digits
		{"18446744073709551616", 0, false},  // overflows 64 bits to 0
		{"36893488147419103239", 0, false},  // overflows 64 bits to 7
		{"184467440737095516160", 0, false}, // overflows 64 bits to 0, 21 digits

		{"", 0, false},
		{"-1", 0, false},
		{"-0", 0, false},
		{"+1", 0, false},
		{"00", 0, false},
		{"01", 0, false},
		{"0000000000000001", 0, false},
		{"1.0", 0, false},
		{"1.", 0, false},
		{".1", 0, false},
		{"1e3", 0, false},
		{"1E3", 0, false},
		{"0x1", 0, false},
		{"0b1", 0, false},
		{"1_000", 0, false},
		{"1,000", 0, false},
		{" 1", 0, false},
		{"1 ", 0, false},
		{"1\n", 0, false},
		{"\t1", 0, false},
		{"1\x00", 0, false},
		{"1/", 0, false}, // in ASCII, / comes directly before 0, and : directly after 9
		{"1:", 0, false},
		{"١", 0, false}, // Arabic 1
		{"1٢", 0, false},
		{"１", 0, false}, // full-width 1
		{"²", 0, false},
		{"one", 0, false},
		{"publish", 0, false},
		{"NaN", 0, false},
		{"Infinity", 0, false},
		{"null", 0, false},
	} {
		got, err := weir.ParseSeq(c.in)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("ParseSeq(%q) = %d, %v; want %d, ok: %t", c.in, got, err, c.want, c.ok)
		}
		if c.ok && got.String() != c.in {
			t.Errorf("String of the sequence parsed from %q is %q", c.in, got)
		}
	}
}

// A JavaScript number distinguishes MaxSeq from the next integer, but not that integer from the one
// after it.
func TestMaxSeq(t *testing.T) {
	if weir.MaxSeq != 9007199254740991 {
		t.Errorf("MaxSeq is %d", weir.MaxSeq)
	}
	if top := float64(weir.MaxSeq); weir.Seq(top) != weir.MaxSeq || top+1 == top || top+2 != top+1 {
		t.Error("MaxSeq is not the largest safe integer of JavaScript")
	}
}

var plainDecimal = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

func FuzzParseSeq(f *testing.F) {
	for _, s := range []string{"", "0", "01", "-1", "1e3", "9007199254740991", "9007199254740992", "18446744073709551616", "١"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := strconv.ParseUint(s, 10, 64)
		want := err == nil && plainDecimal.MatchString(s) && n <= 1<<53-1
		got, err := weir.ParseSeq(s)
		if (err == nil) != want {
			t.Fatalf("ParseSeq(%q) = %d, %v; want ok: %t", s, got, err, want)
		}
		if want && (uint64(got) != n || got.String() != s) || !want && got != 0 {
			t.Fatalf("ParseSeq(%q) = %d", s, got)
		}
	})
}
