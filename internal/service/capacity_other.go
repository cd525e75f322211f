//go:build !linux

package service

import "math"

// systemMemory returns the largest int64, because the memory is unknown on this system. Only the
// limit on open files then limits the connections.
func systemMemory() int64 { return math.MaxInt64 }
