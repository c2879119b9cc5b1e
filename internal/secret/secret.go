package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
)

// KeyBytes is the length of an installation's key.
const KeyBytes = 32

// MaxBytes bounds the value of one secret.
const MaxBytes = 32 << 10

// version of the sealed form.
const version = 1

var (
	variable = regexp.MustCompile(`^[A-Z_][A-Z0-9_]{0,127}$`)
	gitHost  = regexp.MustCompile(`^git:[a-z0-9.-]{1,253}(:[0-9]{1,5})?$`)
)

// ValidName reports whether a secret may have the name: that of an environment
// variable, at most 128 of A-Z 0-9 _, or git:HOST with an optional port.
func ValidName(name string) bool { return variable.MatchString(name) || gitHost.MatchString(name) }

// GitName is the name of the credentials for a host, with its port if it has one.
func GitName(host string) string { return "git:" + host }

// Value is a secret in the clear. It prints as [redacted] wherever it is
// formatted, logged or marshalled; Reveal is the way to its text.
type Value struct{ text string }

// NewValue wraps text.
func NewValue(text string) Value { return Value{text} }

// Reveal returns the text.
func (v Value) Reveal() string { return v.text }

// String hides the text.
func (Value) String() string { return "[redacted]" }

// GoString hides the text.
func (Value) GoString() string { return "[redacted]" }

// LogValue hides the text.
func (Value) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// MarshalText hides the text.
func (Value) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }

// Box seals and opens secrets under one key. It is safe for concurrent use.
type Box struct{ aead cipher.AEAD }

// NewBox returns a box for a key of KeyBytes.
func NewBox(key []byte) (*Box, error) {
	if len(key) != KeyBytes {
		return nil, fmt.Errorf("the key has %d bytes; it must have %d", len(key), KeyBytes)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &Box{aead}, nil
}

// Seal returns the sealed form of a value under its name.
func (b *Box) Seal(name string, v Value) []byte {
	nonce := make([]byte, b.aead.NonceSize())
	rand.Read(nonce) // never fails
	sealed := append([]byte{version}, nonce...)
	return b.aead.Seal(sealed, nonce, []byte(v.text), []byte(name))
}

// ErrSealed means that a sealed secret does not open: another key sealed it, it is
// another name's, or it was changed.
var ErrSealed = errors.New("the secret does not open with this key")

// Open returns what was sealed under the name.
func (b *Box) Open(name string, sealed []byte) (Value, error) {
	n := 1 + b.aead.NonceSize()
	if len(sealed) < n || sealed[0] != version {
		return Value{}, ErrSealed
	}
	text, err := b.aead.Open(nil, sealed[1:n], sealed[n:], []byte(name))
	if err != nil {
		return Value{}, ErrSealed
	}
	return Value{string(text)}, nil
}
