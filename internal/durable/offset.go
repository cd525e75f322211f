package durable

import (
	"net/url"
	"strconv"

	"weir"
)

// An offset is a position in a stream: two numbers of 16 digits. The first is the sequence of the
// batch before the position, and the second is 0. There is one exception: the offset after a batch
// under sequence 0, which only /v1 can store, has the numbers 0 and 1. The numbers 0 and 0 are the
// start of the stream.

// offset returns the offset of the position before the batch with the sequence pos.
func offset(pos weir.Seq) string {
	b := []byte("0000000000000000_0000000000000000")
	if pos == 1 {
		b[32] = '1'
		return string(b)
	}
	for i, seq := 15, max(pos, 1)-1; seq > 0; i, seq = i-1, seq/10 { // a sequence has at most 16 digits
		b[i] = byte('0' + seq%10)
	}
	return string(b)
}

// parseOffset returns the position that an offset names.
func parseOffset(s string) (weir.Seq, bool) {
	if len(s) != 33 || s[16] != '_' {
		return 0, false
	}
	seq, first := strconv.ParseUint(s[:16], 10, 53)
	part, second := strconv.ParseUint(s[17:], 10, 53)
	switch {
	case first != nil || second != nil || s[0] == '+' || s[17] == '+':
		return 0, false
	case seq == 0 && part <= 1:
		return weir.Seq(part), true
	case part > 0 || weir.Seq(seq) > weir.MaxSeq:
		return 0, false
	}
	return weir.Seq(seq) + 1, true
}

// start is where a read begins.
type start struct {
	given  bool     // the request has the parameter offset
	oldest bool     // begin with the oldest data that is kept
	now    bool     // begin at the end of the stream
	pos    weir.Seq // the position; set by read() if oldest or now is true
}

// parseStart parses the parameter offset.
func parseStart(q url.Values) (start, error) {
	values := q["offset"]
	switch {
	case len(values) == 0:
		return start{oldest: true}, nil
	case len(values) > 1 || values[0] == "":
		return start{}, weir.Errorf(weir.InvalidRequest, "send offset once, with an offset that this server has sent, -1 or now")
	case values[0] == "-1":
		return start{given: true, oldest: true}, nil
	case values[0] == "now":
		return start{given: true, now: true}, nil
	}
	pos, ok := parseOffset(values[0])
	if !ok {
		return start{}, weir.Errorf(weir.InvalidRequest, "invalid offset: send one that this server has sent, -1 or now")
	}
	return start{given: true, pos: pos}, nil
}
