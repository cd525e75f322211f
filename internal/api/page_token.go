package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"weir"
)

// A page token is the position at which a list continues. It is opaque, so that clients do not
// compute with it: base64url of a version, the position, and eight bytes of a hash over both and
// the project. The hash uses no secret. It only detects malformed tokens and tokens of another
// project; a client that forges a token still sees no streams but those of its own project.
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
	return before, before != 0 && b == tokenBytes(project, before) // 0 would mean the first page
}

func tokenBytes(project weir.ProjectID, before uint64) (b [tokenLength]byte) {
	b[0] = tokenVersion
	binary.BigEndian.PutUint64(b[1:], before)
	sum := sha256.Sum256(append(b[:9:9], "weir page token "+string(project)...))
	copy(b[9:], sum[:])
	return b
}
