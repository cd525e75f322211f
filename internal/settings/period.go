package settings

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Seconds returns the value of a flag in seconds, and 0 if the flag is not set.
func Seconds(flag, value string) (seconds int64, err error) {
	if value == "" {
		return 0, nil
	}
	d, ok := ParsePeriod(value)
	if !ok {
		return 0, fmt.Errorf("%s %q: not a time such as 90m, 24h or 7d, in whole seconds", flag, value)
	}
	return int64(d / time.Second), nil
}

// ParsePeriod parses a positive time in whole seconds. Besides the units of Go, it knows d for days.
func ParsePeriod(s string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err == nil && n > 0
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d > 0 && d%time.Second == 0
}

// Unit is a unit of sizes.
type Unit struct {
	Name  string
	Bytes int64
}

// Units are the units that ParseSize knows, the largest first.
var Units = []Unit{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// ParseSize parses a number of bytes, with or without a unit.
func ParseSize(s string) (int64, bool) {
	factor := int64(1)
	for _, u := range Units {
		if rest, ok := strings.CutSuffix(s, u.Name); ok {
			s, factor = strings.TrimSpace(rest), u.Bytes
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 40)
	return n * factor, err == nil && n > 0 && n <= 1<<62/factor
}
