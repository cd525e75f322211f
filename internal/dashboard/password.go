package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"weir"
	"weir/internal/engine"
)

// Parameters of argon2id: 19 MiB and two passes take some tens of milliseconds. Each hash records
// its parameters, so a later version can raise them without making old hashes invalid.
const (
	argonMemory  = 19 << 10 // KiB
	argonTime    = 2
	argonThreads = 1
	saltBytes    = 16
	hashBytes    = 32
)

// Length limits of a password. The upper limit prevents clients from making the server hash
// megabytes.
const (
	minPassword = 8    // characters
	maxPassword = 1024 // bytes
)

// hashers is the number of passwords that are hashed at the same time. More would only compete for
// the CPU, and each needs 19 MiB.
const hashers = 2

// CheckPassword returns InvalidRequest unless the string is acceptable as a password: valid UTF-8,
// a single line, at least 8 characters and at most 1024 bytes, and not one of the passwords that
// attackers guess first.
func CheckPassword(password string) error {
	switch n := utf8.RuneCountInString(password); {
	case !utf8.ValidString(password):
		return weir.Errorf(weir.InvalidRequest, "a password must be valid UTF-8")
	case n < minPassword || len(password) > maxPassword:
		return weir.Errorf(weir.InvalidRequest, "a password must have at least %d characters and at most %d bytes", minPassword, maxPassword)
	case strings.ContainsAny(password, "\r\n\x00"):
		return weir.Errorf(weir.InvalidRequest, "a password must be a single line without NUL characters")
	case isCommon(password):
		return weir.Errorf(weir.InvalidRequest, "this password is one of the first that are guessed; choose another, such as four random words")
	}
	return nil
}

// hashPassword returns the salted hash of a password in the usual argon2 notation.
func hashPassword(password string) string {
	salt := make([]byte, saltBytes)
	rand.Read(salt) // never returns an error: it crashes the program instead
	sum := argon2.IDKey([]byte(password), salt, argonTime, argonMemory, argonThreads, hashBytes)
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, argonMemory, argonTime, argonThreads,
		b64.EncodeToString(salt), b64.EncodeToString(sum))
}

var errHash = errors.New("the stored password hash is malformed")

// matches reports whether a hash was made from this password. The comparison takes constant time.
func matches(hash, password string) (bool, error) {
	parts := strings.Split(hash, "$")
	if len(parts) != 6 || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return false, errHash
	}
	var memory, passes uint32
	var threads uint8
	if n, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &memory, &passes, &threads); n != 3 || err != nil || passes == 0 || threads == 0 {
		return false, errHash
	}
	salt, err := base64.RawStdEncoding.DecodeString(parts[4])
	want, err2 := base64.RawStdEncoding.DecodeString(parts[5])
	if err != nil || err2 != nil || len(want) == 0 {
		return false, errHash
	}
	got := argon2.IDKey([]byte(password), salt, passes, memory, threads, uint32(len(want)))
	return subtle.ConstantTimeCompare(got, want) == 1, nil
}

// unmatchable is a hash that no known password matches. For an unknown user name, the password is
// checked against this hash, so that the response time does not reveal whether the name exists.
const unmatchable = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// verify reports whether a name and password are those of the account. It also returns the revision
// of the account that it checked. It takes the same time for every name. If the maximum number of
// passwords (hashers) is already being hashed, verify waits until one is done or ctx ends.
func (d *Dashboard) verify(ctx context.Context, name, password string) (ok bool, checked engine.Revision, err error) {
	select {
	case d.hashing <- struct{}{}:
		defer func() { <-d.hashing }()
	case <-ctx.Done():
		return false, 0, ctx.Err()
	}
	hash, checked := d.account.hash()
	known := name == Account
	if !known || hash == "" || len(password) > maxPassword {
		hash, known = unmatchable, false
	}
	if len(password) > maxPassword {
		password = password[:maxPassword]
	}
	ok, err = matches(hash, password)
	return ok && known, checked, err
}
