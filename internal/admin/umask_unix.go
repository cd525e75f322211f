//go:build unix

package admin

import "syscall"

// umask sets the file mode creation mask. With it, other users cannot open a new socket, not even
// in the moment after its creation.
func umask(mask int) int { return syscall.Umask(mask) }
