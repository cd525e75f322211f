package weir

import (
	"errors"
	"strconv"
)

// Seq is the sequence number of a batch within its stream, from 0 to MaxSeq (D1).
type Seq uint64

// MaxSeq is the highest sequence number: 2^53-1, so that a JavaScript number holds every sequence
// number exactly (D1).
const MaxSeq Seq = 1<<53 - 1

// ErrSeq is the error of ParseSeq.
var ErrSeq = errors.New("a sequence number is a decimal integer from 0 to " + MaxSeq.String() +
	", without sign or leading zeros")

// ParseSeq parses a sequence number. It accepts plain decimal only: no sign, no leading zeros, no
// exponent, so that every sequence has exactly one spelling (D1). The only error is ErrSeq.
func ParseSeq(s string) (Seq, error) {
	if s == "" || len(s) > 16 || (s[0] == '0' && len(s) > 1) {
		return 0, ErrSeq
	}
	var n Seq
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, ErrSeq
		}
		n = n*10 + Seq(s[i]-'0')
	}
	if n > MaxSeq {
		return 0, ErrSeq
	}
	return n, nil
}

// String returns the one spelling that ParseSeq accepts.
func (s Seq) String() string { return strconv.FormatUint(uint64(s), 10) }

// InClosedGap is part of the message of an InvalidSequence error if the sequence number is in a
// closed gap: no batch was ever stored under this number, and none ever will be (D4). An
// InvalidSequence error without this text may be about a batch that was stored and then evicted.
// Clients look for the text to tell the two cases apart.
const InClosedGap = "is in a closed gap"
