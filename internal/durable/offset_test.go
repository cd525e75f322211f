package durable

import (
	"crypto/sha256"
	"fmt"
	"math/big"
	"testing"

	"weir"
)

// The id of a path is the first 128 bits of a hash, as 22 digits in base 62. Streams are stored
// under these ids, so the ids must never change.
func TestIDOfPath(t *testing.T) {
	for i := range 1000 {
		path := fmt.Sprint("chats/", i)
		sum := sha256.Sum256([]byte("project\x00" + path))
		n, digit, want := new(big.Int).SetBytes(sum[:16]), new(big.Int), ""
		for range 22 {
			n.DivMod(n, big.NewInt(62), digit)
			want = string(weir.Base62Alphabet[digit.Int64()]) + want
		}
		if got := new(Handler).idOf("project", path); string(got) != want {
			t.Fatalf("the id of %s is %s, want %s", path, got, want)
		}
	}
}

// Every position has an offset of two numbers with 16 digits, from which it can be read again.
func TestOffsets(t *testing.T) {
	for pos, want := range map[weir.Seq]string{
		0: "0000000000000000_0000000000000000", 1: "0000000000000000_0000000000000001", 2: "0000000000000001_0000000000000000",
		11: "0000000000000010_0000000000000000", weir.MaxSeq + 1: "9007199254740991_0000000000000000",
	} {
		got := offset(pos)
		if back, ok := parseOffset(got); got != want || back != pos || !ok {
			t.Errorf("the offset of %d is %s, want %s; read again it is %d, %v", pos, got, want, back, ok)
		}
	}
}
