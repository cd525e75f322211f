//go:build unix

package main

import "syscall"

// umask sets the mask of files to be made, so that the socket is never open to others, not even for a moment.
func umask(mask int) int { return syscall.Umask(mask) }
