package weir_test

import (
	"bytes"
	"crypto/rand"
	"io"
	"strings"
	"testing"

	"weir"
)

// alphabet is written out again here, so that a typing error in weir.Base62Alphabet fails a test.
const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

func TestNewStreamID(t *testing.T) {
	seen := map[weir.StreamID]bool{}
	for range 10_000 {
		id := weir.NewStreamID()
		if seen[id] {
			t.Fatalf("%s was generated twice", id)
		}
		seen[id] = true
		if len(id) != 22 || strings.Trim(string(id), alphabet) != "" {
			t.Fatalf("%q is not 22 base62 characters", id)
		}
		if parsed, err := weir.ParseStreamID(string(id)); err != nil || parsed != id {
			t.Fatalf("ParseStreamID(%q) = %q, %v", id, parsed, err)
		}
	}
}

func TestBase62Length(t *testing.T) {
	for _, n := range []int{0, 1, 16, 22, 31, 32, 33, 1000} {
		if got := weir.Base62(n); len(got) != n || strings.Trim(got, alphabet) != "" {
			t.Errorf("Base62(%d) = %q", n, got)
		}
	}
}

// TestBase62HasNoBias feeds Base62 every byte value equally often and expects every character
// equally often. Byte values without a character must be skipped. One round of all byte values
// would not be enough: it gives 248 characters, and a wrong Base62, one that reduces modulo 62,
// would draw them from the first 248 byte values, which it maps evenly.
func TestBase62HasNoBias(t *testing.T) {
	const rounds, each = 8, 256 / 62 // 4 byte values per character, and 8 that are skipped
	var every []byte
	for i := range rounds * 256 {
		every = append(every, byte(i))
	}
	source := &fixed{bytes.NewReader(every)}
	defer func(r io.Reader) { rand.Reader = r }(rand.Reader)
	rand.Reader = source

	got := weir.Base62(rounds * 62 * each)
	if source.Len() != 0 {
		t.Errorf("%d of %d random bytes were not used", source.Len(), len(every))
	}
	for _, c := range alphabet {
		if n := strings.Count(got, string(c)); n != rounds*each {
			t.Errorf("%c was drawn %d times in %d rounds of all byte values, want %d", c, n, rounds, rounds*each)
		}
	}
}

// fixed is a source of given bytes that panics when it is exhausted.
type fixed struct{ *bytes.Reader }

func (f *fixed) Read(b []byte) (int, error) {
	n, err := f.Reader.Read(b)
	if err != nil {
		panic("Base62 drew more random bytes than an even mapping needs")
	}
	return n, nil
}

// TestBase62IsUniform checks the characters that come from the real random source.
// TestBase62HasNoBias checks only the mapping from bytes to characters. With 61 degrees of freedom,
// chi-square exceeds 160 once in 10^10 runs. Reducing modulo 62 would give about 400.
func TestBase62IsUniform(t *testing.T) {
	const each = 1000
	counts := map[rune]int{}
	for _, c := range weir.Base62(62 * each) {
		counts[c]++
	}
	var chi float64
	for _, c := range alphabet {
		d := float64(counts[c] - each)
		chi += d * d / each
	}
	if chi > 160 {
		t.Errorf("chi-square over 62 characters is %.0f, want at most 160", chi)
	}
}

func TestParseStreamID(t *testing.T) {
	const good = "0123456789ABCXYZabcxyz"
	for _, c := range []struct {
		in   string
		want bool
	}{
		{good, true},
		{"demo000000000000000000", true},
		{strings.Repeat("0", 22), true},
		{strings.Repeat("z", 22), true},
		{"", false},
		{good[1:], false},
		{good + "0", false},
		{" " + good[1:], false},
		{good[1:] + "\n", false},
		{good[1:] + "-", false},
		{good[1:] + "_", false},
		{good[1:] + "/", false}, // this character and the next five come directly before and after 0-9, A-Z and a-z in ASCII
		{good[1:] + ":", false},
		{good[1:] + "@", false},
		{good[1:] + "[", false},
		{good[1:] + "`", false},
		{good[1:] + "{", false},
		{good[1:] + "\x00", false},
		{good[2:] + "é", false}, // 22 bytes
		{good[1:] + "é", false}, // 22 characters
		{good[3:] + "٣x", false},
	} {
		id, err := weir.ParseStreamID(c.in)
		if (err == nil) != c.want || weir.IsID(c.in) != c.want {
			t.Errorf("ParseStreamID(%q) = %q, %v; want ok: %t", c.in, id, err, c.want)
		}
		if c.want && string(id) != c.in || !c.want && id != "" {
			t.Errorf("ParseStreamID(%q) = %q", c.in, id)
		}
	}
}

func FuzzParseStreamID(f *testing.F) {
	for _, s := range []string{"", "0123456789ABCXYZabcxyz", "0123456789ABCXYZabcxy/", "0123456789ABCXYZabcxyé"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want := len(s) == 22 && strings.Trim(s, alphabet) == ""
		id, err := weir.ParseStreamID(s)
		if (err == nil) != want || (err == nil && string(id) != s) {
			t.Errorf("ParseStreamID(%q) = %q, %v; want ok: %t", s, id, err, want)
		}
	})
}
