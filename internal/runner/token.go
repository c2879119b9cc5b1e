package runner

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
)

// NewToken returns a fresh token of 256 random bits, as hexadecimal digits, and
// what TokenVariable must hold for serve to accept it.
func NewToken() (token, hash string) {
	var b [32]byte
	rand.Read(b[:]) // never fails
	token = hex.EncodeToString(b[:])
	return token, TokenHash(token)
}

// TokenHash is the SHA-256 of a token's text as hexadecimal digits.
func TokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// TokenMatches reports, in constant time, whether token has that hash.
func TokenMatches(token, hash string) bool {
	return subtle.ConstantTimeCompare([]byte(TokenHash(token)), []byte(hash)) == 1
}
