//go:build !linux

package client

import "syscall"

// limitUnsent does nothing: the option is set on Linux only.
func limitUnsent(_, _ string, _ syscall.RawConn) error { return nil }
