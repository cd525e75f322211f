package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"weir"
)

// A page token is where a list goes on, in a form that nobody takes for a number: base64url of a version, the place, and
// eight bytes of a hash over both and the project. The hash is no secret. It finds what is not ours and what belongs to
// another project; who makes a token up sees nothing but the own project's streams all the same.
const (
	tokenVersion = 1
	tokenLength  = 1 + 8 + 8
)

var tokenText = base64.RawURLEncoding.Strict()

func pageToken(project weir.ProjectID, before uint64) string {
	b := tokenBytes(project, before)
	return tokenText.EncodeToString(b[:])
}

func parsePageToken(project weir.ProjectID, s string) (before uint64, ok bool) {
	var b [tokenLength]byte
	if len(s) != tokenText.EncodedLen(tokenLength) {
		return 0, false
	}
	if _, err := tokenText.Decode(b[:], []byte(s)); err != nil {
		return 0, false
	}
	before = binary.BigEndian.Uint64(b[1:])
	return before, before != 0 && b == tokenBytes(project, before) // 0 would mean to begin anew
}

func tokenBytes(project weir.ProjectID, before uint64) (b [tokenLength]byte) {
	b[0] = tokenVersion
	binary.BigEndian.PutUint64(b[1:], before)
	sum := sha256.Sum256(append(b[:9:9], "weir page token "+string(project)...))
	copy(b[9:], sum[:])
	return b
}
