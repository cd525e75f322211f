package weir

import "crypto/sha256"

// KeyDigest stands for an idempotency key of up to 255 characters: 128 bits of SHA-256, enough that
// no client can construct two keys with the same digest. The zero value stands for no key.
type KeyDigest [16]byte

// DigestKey returns the digest of an idempotency key.
func DigestKey[T string | []byte](key T) KeyDigest {
	sum := sha256.Sum256([]byte(key))
	return KeyDigest(sum[:len(KeyDigest{})])
}
