package weir

import (
	"crypto/rand"
	"errors"
)

// StreamID identifies a stream: 22 base62 characters, unique across all projects.
type StreamID string

// idLength is the length of every identifier that the service generates.
const idLength = 22

// IDForm describes the form of an identifier, for messages and help texts.
const IDForm = "22 characters from 0-9, A-Z and a-z"

// ErrStreamID is the error of ParseStreamID.
var ErrStreamID = errors.New("a stream id is " + IDForm)

// NewStreamID generates an identifier of 131 random bits.
func NewStreamID() StreamID { return StreamID(Base62(idLength)) }

// ParseStreamID checks the form of an identifier. It does not check that such a stream exists. The
// only error is ErrStreamID.
func ParseStreamID(s string) (StreamID, error) {
	if !IsID(s) {
		return "", ErrStreamID
	}
	return StreamID(s), nil
}

// IsID reports whether s has the form of an identifier: 22 base62 characters.
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

// Base62Alphabet holds the 62 characters that identifiers are made of.
const Base62Alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Base62 returns n characters drawn from Base62Alphabet, each with the same probability. The source
// is cryptographically secure.
//
// It takes six bits of each random byte and draws again for the two values that have no character.
// Reducing a byte modulo 62 instead would make the first characters more likely than the rest.
func Base62(n int) string {
	out := make([]byte, 0, n)
	var pool [32]byte
	for len(out) < n {
		rand.Read(pool[:]) // never fails: it crashes the program instead
		for _, b := range pool {
			if b &= 63; b < 62 && len(out) < n {
				out = append(out, Base62Alphabet[b])
			}
		}
	}
	return string(out)
}
