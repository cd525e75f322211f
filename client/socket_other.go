//go:build !linux

package client

import "syscall"

// limitUnsent does nothing: only Linux needs it and has the option under this number.
func limitUnsent(_, _ string, _ syscall.RawConn) error { return nil }
