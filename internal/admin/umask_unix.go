//go:build unix

package admin

import "syscall"

// umask sets the file mode creation mask, so that the socket is never open to others, not even for a
// moment.
func umask(mask int) int { return syscall.Umask(mask) }
