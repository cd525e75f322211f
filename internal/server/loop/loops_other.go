//go:build !linux

package loop

import (
	"context"
	"net"
)

// Loops does not exist on this system: New always fails.
type Loops struct{}

// New returns ErrUnsupported.
func New(Options) (*Loops, error) { return nil, ErrUnsupported }

// Add is never called.
func (*Loops) Add(*net.TCPConn, Place, *Session) {}

// Park is never called.
func (*Loops) Park(Parked, bool, func() (*net.TCPConn, Place, []byte, error)) bool { return false }

// Stop is never called.
func (*Loops) Stop() {}

// Wait is never called.
func (*Loops) Wait(context.Context) error { return nil }
