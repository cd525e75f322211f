package weir

import (
	"crypto/rand"
	"encoding/binary"
	"time"
)

// Jitter returns a random duration from 0 to limit, both included. It adds variation to pauses, so
// that clients that were disconnected together do not return together. Its source is that of
// Base62, which a test can determine with testing/cryptotest.
func Jitter(limit time.Duration) time.Duration {
	var b [8]byte
	rand.Read(b[:]) // never fails: it crashes the program instead
	return time.Duration(binary.NativeEndian.Uint64(b[:]) % uint64(limit+1))
}
