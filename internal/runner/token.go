package runner

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
)

// NewToken returns a new token of 256 random bits, in hexadecimal, and the value that TokenVariable
// must have for serve to accept it.
func NewToken() (token, hash string) {
	var b [32]byte
	rand.Read(b[:]) // never fails
	token = hex.EncodeToString(b[:])
	return token, TokenHash(token)
}

// TokenHash returns the SHA-256 of a token's text in hexadecimal.
func TokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// TokenMatches reports, in constant time, whether token has that hash.
func TokenMatches(token, hash string) bool {
	return subtle.ConstantTimeCompare([]byte(TokenHash(token)), []byte(hash)) == 1
}
