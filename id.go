package weir

import (
	"crypto/rand"
	"errors"
)

// StreamID names a stream: 22 base62 characters, unique over all projects.
type StreamID string

// idLength is the length of every identifier that the service makes.
const idLength = 22

var errStreamID = errors.New("a stream id is 22 characters out of 0-9, A-Z and a-z")

// NewStreamID makes an identifier of 131 random bits.
func NewStreamID() StreamID { return StreamID(Base62(idLength)) }

// ParseStreamID checks the shape of an identifier; it does not look anything up.
func ParseStreamID(s string) (StreamID, error) {
	if !IsID(s) {
		return "", errStreamID
	}
	return StreamID(s), nil
}

// IsID tells whether s has the shape of an identifier: 22 base62 characters.
func IsID(s string) bool {
	if len(s) != idLength {
		return false
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case '0' <= c && c <= '9', 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z':
		default:
			return false
		}
	}
	return true
}

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Base62 returns n random characters out of 0-9, A-Z and a-z, each equally likely: six random bits at a time, and the
// two values that have no character are drawn again rather than folded back (which would favour some characters).
func Base62(n int) string {
	out := make([]byte, 0, n)
	var pool [32]byte
	for len(out) < n {
		rand.Read(pool[:]) // never fails: it crashes the program instead
		for _, b := range pool {
			if b &= 63; b < 62 && len(out) < n {
				out = append(out, base62[b])
			}
		}
	}
	return string(out)
}
