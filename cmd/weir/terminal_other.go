//go:build !linux

package main

import "os"

func isTTY(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// columns returns 80, the usual width of a terminal, because there is no portable way to ask for
// the width.
func columns(*os.File) int { return 80 }
