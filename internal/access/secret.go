package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// A key is svc_live_ or svc_test_ and 32 lower case hexadecimal digits: 128 random bits.
const (
	livePrefix = "svc_live_"
	testPrefix = "svc_test_"
	keyLength  = len(livePrefix) + 32
)

// digest is the SHA-256 of a key: what is stored and looked up. A key of 128 random bits has no dictionary to try, so a
// fast hash is right, and a pepper beside the digests would fall into the same hands as they do.
type digest [sha256.Size]byte

// digestOf is the digest of what has the shape of a key.
func digestOf(key string) digest {
	var b [keyLength]byte // on the stack
	return sha256.Sum256(b[:copy(b[:], key)])
}

// document is the name under which the record of a key is stored.
func (d digest) document() string { return keyPrefix + hex.EncodeToString(d[:]) }

// digestIn reads the digest out of the name of a document.
func digestIn(document string) (d digest, err error) {
	name := strings.TrimPrefix(document, keyPrefix)
	if len(name) != hex.EncodedLen(len(d)) {
		return d, fmt.Errorf("document %s is not named after a digest", document)
	}
	_, err = hex.Decode(d[:], []byte(name))
	return d, err
}

// kindOf tells whether s has the shape of a key, and which kind of key it is.
func kindOf(s string) (Kind, bool) {
	if len(s) != keyLength {
		return "", false
	}
	kind := Live
	switch s[:len(livePrefix)] {
	case livePrefix:
	case testPrefix:
		kind = Test
	default:
		return "", false
	}
	for i := len(livePrefix); i < len(s); i++ {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", false
		}
	}
	return kind, true
}

// IsKey tells whether s has the shape of a key.
func IsKey(s string) bool {
	_, ok := kindOf(s)
	return ok
}

// masked is the form of a key that lists show (D21).
func masked(key string) string { return key[:12] + "..." + key[len(key)-4:] }

// Redacted is s with every key in it masked: what somebody typed in the wrong place is not repeated to logs and screens.
func Redacted(s string) string {
	for i := 0; i+keyLength <= len(s); i++ {
		if _, ok := kindOf(s[i : i+keyLength]); ok {
			s = s[:i] + masked(s[i:i+keyLength]) + s[i+keyLength:]
		}
	}
	return s
}

// Secret is a key that was just made. It shows itself to Reveal alone: printed, logged or marshalled it is masked.
type Secret struct {
	// A pointer, because fmt prints unexported fields of a struct around it without asking its methods, and of a pointer
	// down there it prints the address.
	key *string
}

func newSecret(kind Kind) Secret {
	var b [16]byte
	rand.Read(b[:]) // never fails: it crashes the program instead
	key := testPrefix
	if kind == Live {
		key = livePrefix
	}
	key += hex.EncodeToString(b[:])
	return Secret{&key}
}

// Reveal is the key itself, to be shown once.
func (s Secret) Reveal() string {
	if s.key == nil {
		return ""
	}
	return *s.key
}

// String is the masked form.
func (s Secret) String() string {
	if s.key == nil {
		return ""
	}
	return masked(*s.key)
}

// Format prints the masked form under every verb.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// LogValue is the masked form.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is the masked form, also inside JSON.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
