//go:build !linux

package client

import "syscall"

// limitUnsent does nothing: only on Linux does the client limit the unsent bytes of a connection.
func limitUnsent(_, _ string, _ syscall.RawConn) error { return nil }
