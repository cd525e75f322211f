//go:build !linux

package main

import "os"

func isTTY(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// columns assumes the usual width: this system has no portable way to ask.
func columns(*os.File) int { return 80 }
