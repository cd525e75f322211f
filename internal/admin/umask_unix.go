//go:build unix

package admin

import "syscall"

// umask sets the file mode creation mask, so that other users cannot open a new socket, not even in
// the moment after its creation.
func umask(mask int) int { return syscall.Umask(mask) }
