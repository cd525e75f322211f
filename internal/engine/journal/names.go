package journal

import (
	"fmt"
	"strconv"
	"strings"
)

func segmentName(number uint64) string { return fmt.Sprintf("%012d.seg", number) }

func segmentNumber(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ".seg")
	n, err := strconv.ParseUint(digits, 10, 32) // the in-memory index stores segment numbers in 32 bits
	return n, ok && err == nil && len(digits) == 12
}
