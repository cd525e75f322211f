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

// The cost of a password: 19 MiB and two passes, which is some tens of milliseconds. Hashes name theirs, so that these can be
// raised later.
const (
	argonMemory  = 19 << 10 // KiB
	argonTime    = 2
	argonThreads = 1
	saltBytes    = 16
	hashBytes    = 32
)

// The bounds of a password. The longest keeps anybody from having megabytes hashed.
const (
	minPassword = 8
	maxPassword = 1024
)

// hashers is how many passwords are hashed at once: more would only wait for each other, with 19 MiB each.
const hashers = 2

// CheckPassword refuses what is no password: InvalidRequest.
func CheckPassword(password string) error {
	switch n := utf8.RuneCountInString(password); {
	case !utf8.ValidString(password):
		return weir.Errorf(weir.InvalidRequest, "a password must be valid UTF-8")
	case n < minPassword || len(password) > maxPassword:
		return weir.Errorf(weir.InvalidRequest, "a password must have %d characters at least, and %d bytes at most", minPassword, maxPassword)
	case strings.ContainsAny(password, "\r\n\x00"):
		return weir.Errorf(weir.InvalidRequest, "a password is one line")
	}
	return nil
}

// hashPassword makes what is stored of a password.
func hashPassword(password string) string {
	salt := make([]byte, saltBytes)
	rand.Read(salt) // never fails: it crashes the program instead
	sum := argon2.IDKey([]byte(password), salt, argonTime, argonMemory, argonThreads, hashBytes)
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, argonMemory, argonTime, argonThreads,
		b64.EncodeToString(salt), b64.EncodeToString(sum))
}

var errHash = errors.New("the stored hash of the password cannot be read")

// matches tells whether a password is the one that a hash was made of.
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

// nobody is the hash of a password that nobody has: whoever asks for a name that does not exist waits as long.
const nobody = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// verify tells whether a name and a password are those of the account, and at which revision of it. It takes the same time for
// every name.
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
		hash, known = nobody, false
	}
	if len(password) > maxPassword {
		password = password[:maxPassword]
	}
	ok, err = matches(hash, password)
	return ok && known, checked, err
}
