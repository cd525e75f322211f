package segments

import (
	"fmt"
	"strconv"
	"strings"
)

// Name returns the file name of a segment.
func Name(number uint64) string { return fmt.Sprintf("%012d.seg", number) }

// NumberOf returns the number of the segment with this file name. It returns false if a segment cannot
// have this name.
func NumberOf(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ".seg")
	n, err := strconv.ParseUint(digits, 10, 32) // the in-memory index stores segment numbers in 32 bits
	return n, ok && err == nil && len(digits) == 12
}
