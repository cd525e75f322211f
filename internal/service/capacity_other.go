//go:build !linux

package service

import "math"

// systemMemory is unknown on this system: open files alone limit connections.
func systemMemory() int64 { return math.MaxInt64 }
