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

const (
	livePrefix = "svc_live_"
	testPrefix = "svc_test_"
	keyLength  = len(livePrefix) + 32
)

// KeyForm describes the form of a key, for messages and help texts. The digits are 128 random bits.
const KeyForm = livePrefix + " or " + testPrefix + " followed by 32 lowercase hexadecimal digits"

// digest is the SHA-256 of a key. The store holds digests, never keys. A fast hash is enough: a key
// of 128 random bits cannot be found in a dictionary. A pepper would not help, because it would be
// stored next to the digests and leak together with them.
type digest [sha256.Size]byte

// digestOf returns the digest of a string that has the form of a key.
func digestOf(key string) digest {
	var b [keyLength]byte // on the stack
	return sha256.Sum256(b[:copy(b[:], key)])
}

// document returns the name of the document that holds the record of this API key.
func (d digest) document() string { return keyPrefix + hex.EncodeToString(d[:]) }

// digestIn parses the digest in a document's name.
func digestIn(document string) (d digest, err error) {
	name := strings.TrimPrefix(document, keyPrefix)
	if len(name) != hex.EncodedLen(len(d)) {
		return d, fmt.Errorf("document name %s does not contain a digest", document)
	}
	_, err = hex.Decode(d[:], []byte(name))
	return d, err
}

// kindOf reports whether s has the form of a key, and if so, its kind.
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

// IsKey reports whether s has the form of a key. It does not check that such a key exists.
func IsKey(s string) bool {
	_, ok := kindOf(s)
	return ok
}

// masked returns a key in the masked form shown in lists (D21).
func masked(key string) string { return key[:12] + "..." + key[len(key)-4:] }

// Redacted returns s with every key in it masked. Use it for strings that end up in logs and
// messages: a person may have entered a key in the wrong place.
func Redacted(s string) string {
	for i := 0; i+keyLength <= len(s); i++ {
		if _, ok := kindOf(s[i : i+keyLength]); ok {
			s = s[:i] + masked(s[i:i+keyLength]) + s[i+keyLength:]
		}
	}
	return s
}

// Secret is a newly created key. Only Reveal returns the key. If a Secret is printed, logged or
// marshalled, the key is masked.
type Secret struct {
	// fmt prints unexported fields of a struct without calling their methods. For a Secret in such
	// a field, the pointer makes fmt print an address instead of the key.
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

// Reveal returns the key itself, to be shown once.
func (s Secret) Reveal() string {
	if s.key == nil {
		return ""
	}
	return *s.key
}

// String returns the masked form.
func (s Secret) String() string {
	if s.key == nil {
		return ""
	}
	return masked(*s.key)
}

// Format prints the masked form for every verb.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// LogValue returns the masked form.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns the masked form. JSON encoding uses it too.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
