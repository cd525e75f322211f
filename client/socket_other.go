//go:build !linux

package client

import "syscall"

// limitUnsent does nothing: only Linux needs this option and has it under this number.
func limitUnsent(_, _ string, _ syscall.RawConn) error { return nil }
