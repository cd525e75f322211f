package weir

import (
	"errors"
	"strconv"
)

// Seq is the sequence number of a batch within its stream, from 0 to MaxSeq (D1).
type Seq uint64

// MaxSeq is the highest sequence: 2^53-1, so that JavaScript holds every sequence exactly (D1).
const MaxSeq Seq = 1<<53 - 1

var errSeq = errors.New("a sequence is a decimal integer from 0 to 9007199254740991, without sign or leading zeros")

// ParseSeq reads a sequence in its only spelling: plain decimal, no sign, no leading zeros, no exponent (D1).
func ParseSeq(s string) (Seq, error) {
	if s == "" || len(s) > 16 || (s[0] == '0' && len(s) > 1) {
		return 0, errSeq
	}
	var n Seq
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, errSeq
		}
		n = n*10 + Seq(s[i]-'0')
	}
	if n > MaxSeq {
		return 0, errSeq
	}
	return n, nil
}

// String is the spelling that ParseSeq reads.
func (s Seq) String() string { return strconv.FormatUint(uint64(s), 10) }
