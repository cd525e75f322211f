package access

import (
	"crypto/hmac"
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
	// tokenPrefix is as long as the prefixes of keys, so that Redacted finds tokens and keys alike.
	tokenPrefix = "svc_mgmt_"
	keyLength   = len(livePrefix) + 32
)

// KeyForm describes the form of a key, for messages and help texts. The digits are 128 random bits.
const KeyForm = livePrefix + " or " + testPrefix + " followed by 32 lowercase hexadecimal digits"

// TokenForm describes the form of a management token, for messages and help texts.
const TokenForm = tokenPrefix + " followed by 32 lowercase hexadecimal digits"

// digest is the SHA-256 of a key or a management token. The store holds digests, never keys. A fast
// hash is enough: a key of 128 random bits cannot be found in a dictionary. A pepper (a secret that
// is hashed together with each key) would not help, because it would be stored next to the digests
// and leak together with them.
type digest [sha256.Size]byte

// digestOf returns the digest of a string that has the form of a key or a token.
func digestOf(key string) digest {
	var b [keyLength]byte // on the stack, so that digestOf does not allocate
	return sha256.Sum256(b[:copy(b[:], key)])
}

// document returns the name of the document that holds the record of the key, or of the token if
// kind is Management.
func (d digest) document(kind Kind) string {
	if kind == Management {
		return tokenDocuments + hex.EncodeToString(d[:])
	}
	return keyPrefix + hex.EncodeToString(d[:])
}

// digestIn parses the digest in the name of the document of a key or a token.
func digestIn(document string) (d digest, err error) {
	_, name, _ := strings.Cut(document, "/")
	if len(name) != hex.EncodedLen(len(d)) {
		return d, fmt.Errorf("document name %s does not contain a digest", document)
	}
	_, err = hex.Decode(d[:], []byte(name))
	return d, err
}

// kindOf returns the kind of a key, and false if s does not have the form of a key.
func kindOf(s string) (Kind, bool) {
	kind, ok := formOf(s)
	return kind, ok && kind != Management
}

// formOf returns the kind of a key or a management token, and false if s has the form of neither.
func formOf(s string) (Kind, bool) {
	if len(s) != keyLength {
		return "", false
	}
	kind := Live
	switch s[:len(livePrefix)] {
	case livePrefix:
	case testPrefix:
		kind = Test
	case tokenPrefix:
		kind = Management
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

// IsToken reports whether s has the form of a management token.
func IsToken(s string) bool {
	kind, ok := formOf(s)
	return ok && kind == Management
}

// masked returns a key or a token in the masked form shown in lists (D21).
func masked(key string) string { return key[:12] + "..." + key[len(key)-4:] }

// Redacted returns s with every key and every management token in it masked. Use it for strings that
// end up in logs and messages: a person may have entered a key in the wrong place.
func Redacted(s string) string {
	for i := 0; i+keyLength <= len(s); i++ {
		if _, ok := formOf(s[i : i+keyLength]); ok {
			s = s[:i] + masked(s[i:i+keyLength]) + s[i+keyLength:]
		}
	}
	return s
}

// Secret is a newly created key or management token. Only Reveal returns it. If a Secret is printed,
// logged or marshalled, it is masked.
type Secret struct {
	// fmt prints unexported fields of a struct without calling their methods. For a Secret in such
	// a field, the pointer makes fmt print an address instead of the key.
	key *string
}

func newSecret(kind Kind) Secret {
	var b [16]byte
	rand.Read(b[:]) // never fails: it crashes the program instead
	return secretOf(kind, b)
}

// secretOf returns the secret of this kind whose hexadecimal digits are the bytes b.
func secretOf(kind Kind, b [16]byte) Secret {
	key := map[Kind]string{Live: livePrefix, Test: testPrefix, Management: tokenPrefix}[kind] + hex.EncodeToString(b[:])
	return Secret{&key}
}

// derivedSecret returns the secret of the key that a request with this token and idempotency key
// creates in this hour (D36). The same arguments give the same secret. So a repeated request finds
// the key that the first one made, and can show it again, although the store holds only digests.
// The secret is as hard to guess as the token.
func derivedSecret(kind Kind, token, idempotencyKey string, hour int64) Secret {
	h := hmac.New(sha256.New, []byte(token))
	fmt.Fprintf(h, "weir key %d %s", hour, idempotencyKey)
	return secretOf(kind, [16]byte(h.Sum(nil)))
}

// Reveal returns the key or the token itself, to be shown once.
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
