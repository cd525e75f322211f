package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"weir"
)

// A page token contains the position at which a list continues. It is the base64url encoding of a
// version, the position, and eight bytes of a hash over the version, the position and the project.
// The encoding keeps clients from computing positions themselves. The hash uses no secret: it only
// detects malformed tokens and tokens of another project. A client that forges a token still sees
// only the streams of its own project.
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
	// Position 0 would mean the first page, which has no token.
	return before, before != 0 && b == tokenBytes(project, before)
}

func tokenBytes(project weir.ProjectID, before uint64) (b [tokenLength]byte) {
	b[0] = tokenVersion
	binary.BigEndian.PutUint64(b[1:], before)
	sum := sha256.Sum256(append(b[:9:9], "weir page token "+string(project)...))
	copy(b[9:], sum[:])
	return b
}
