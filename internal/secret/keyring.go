package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// KeyBytes is the length of an installation's key.
const KeyBytes = 32

// The versions of the sealed form, in its first byte.
const (
	// versionPlainKey was written by releases without key ids: sealed with the installation's key
	// itself.
	versionPlainKey = 1
	// versionDerived is sealed with a key derived from the one that the key id identifies.
	versionDerived = 2
)

const (
	keyIDBytes = 8
	nonceBytes = 12
	// headerBytes are the version, the key id and the nonce.
	headerBytes = 1 + keyIDBytes + nonceBytes
)

// The uses of derived keys.
const (
	useKeyID   = "overwinter key id"
	useSecrets = "overwinter secrets"
	useLinks   = "overwinter runner links"
	useData    = "overwinter data: "
	// useSignatures precedes the use of a signature.
	useSignatures = "overwinter signatures: "
)

// key is one key of an installation and the keys derived from it.
type key struct {
	id      [keyIDBytes]byte
	master  []byte
	secrets cipher.AEAD
	plain   cipher.AEAD // for versionPlainKey
	owners  *ownerCiphers
}

// ownerCiphers keeps the ciphers for the data of recent owners. The state of a turn is sealed with
// every commit, and deriving a key costs more than sealing a small state with it.
type ownerCiphers struct {
	mu   sync.Mutex
	kept map[string]cipher.AEAD
}

// maxOwnerCiphers bounds the kept ciphers; beyond it all are dropped. One takes about a kilobyte.
const maxOwnerCiphers = 2048

// get returns the cipher for a use and owner, made by derive if it is not kept.
func (c *ownerCiphers) get(name string, derive func() cipher.AEAD) cipher.AEAD {
	c.mu.Lock()
	aead, ok := c.kept[name]
	c.mu.Unlock()
	if ok {
		return aead
	}
	aead = derive()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) >= maxOwnerCiphers {
		clear(c.kept)
	}
	c.kept[name] = aead
	return aead
}

func newKey(master []byte) (key, error) {
	if len(master) != KeyBytes {
		return key{}, fmt.Errorf("the key has %d bytes; it must have %d", len(master), KeyBytes)
	}
	k := key{master: slices.Clone(master), owners: &ownerCiphers{kept: map[string]cipher.AEAD{}}}
	copy(k.id[:], k.derive(useKeyID))
	var err error
	if k.secrets, err = newAEAD(k.derive(useSecrets)); err != nil {
		return key{}, err
	}
	k.plain, err = newAEAD(k.master)
	return k, err
}

func (k key) derive(use string) []byte {
	derived, err := hkdf.Key(sha256.New, k.master, nil, use, KeyBytes)
	if err != nil { // only for lengths that SHA-256 does not support
		panic(fmt.Sprintf("secret: derive a key: %v", err))
	}
	return derived
}

func newAEAD(k []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(k)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Keyring seals with the current key of an installation and opens data that any of its keys has
// sealed. It is safe for concurrent use.
type Keyring struct{ keys []key } // the current one first

// NewKeyring returns a keyring with the current key and other keys, such as the previous one. Each
// must have KeyBytes.
func NewKeyring(current []byte, others ...[]byte) (*Keyring, error) {
	b := &Keyring{}
	for _, master := range append([][]byte{current}, others...) {
		k, err := newKey(master)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(b.keys, func(have key) bool { return have.id == k.id }) {
			b.keys = append(b.keys, k)
		}
	}
	return b, nil
}

// KeyID returns the id of the current key. It reveals nothing about the key.
func (b *Keyring) KeyID() string { return hex.EncodeToString(b.keys[0].id[:]) }

// Current reports whether sealed was sealed with the current key in the current form.
func (b *Keyring) Current(sealed []byte) bool {
	return len(sealed) >= headerBytes && sealed[0] == versionDerived && [keyIDBytes]byte(sealed[1:]) == b.keys[0].id
}

// Seal returns the sealed form of a value under its name.
func (b *Keyring) Seal(name string, v Value) []byte {
	return seal(b.keys[0], b.keys[0].secrets, name, []byte(v.text))
}

// Open returns the value that was sealed under the name.
func (b *Keyring) Open(name string, sealed []byte) (Value, error) {
	if len(sealed) > 0 && sealed[0] == versionPlainKey {
		for _, k := range b.keys {
			if text, err := open(k.plain, name, sealed[1:]); err == nil {
				return Value{string(text)}, nil
			}
		}
		return Value{}, ErrSealed
	}
	k, err := b.keyOf(sealed)
	if err != nil {
		return Value{}, err
	}
	text, err := open(k.secrets, name, sealed[1+keyIDBytes:])
	return Value{string(text)}, err
}

// SealData seals data of an owner, such as the transcripts of a session, under a name. Each use and
// owner has its own key.
func (b *Keyring) SealData(use, owner, name string, data []byte) []byte {
	return seal(b.keys[0], b.keys[0].data(use, owner), name, data)
}

// OpenData returns the data that SealData sealed for the same use, owner and name.
func (b *Keyring) OpenData(use, owner, name string, sealed []byte) ([]byte, error) {
	k, err := b.keyOf(sealed)
	if err != nil {
		return nil, err
	}
	return open(k.data(use, owner), name, sealed[1+keyIDBytes:])
}

// IsSealedData reports whether data may be the result of SealData, and not data of a format that
// does not begin with the byte 2.
func IsSealedData(data []byte) bool { return len(data) >= headerBytes && data[0] == versionDerived }

// LinkKey returns the key from which the tokens of runner links are derived: that of a key id, or,
// for an empty id, the one that releases without key ids used, which is the oldest key of the
// keyring. It fails with ErrKeyMissing if the keyring does not have the key.
func (b *Keyring) LinkKey(id string) ([]byte, error) {
	if id == "" {
		return slices.Clone(b.keys[len(b.keys)-1].master), nil
	}
	for _, k := range b.keys {
		if hex.EncodeToString(k.id[:]) == id {
			return k.derive(useLinks), nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrKeyMissing, id)
}

// Sign returns the signature of data for a use, with the current key. Each use has its own key.
func (b *Keyring) Sign(use string, data []byte) []byte { return b.keys[0].sign(use, data) }

// Verify reports whether Sign returned a signature for the use and data, with any of the keys.
func (b *Keyring) Verify(use string, data, signature []byte) bool {
	return slices.ContainsFunc(b.keys, func(k key) bool { return hmac.Equal(signature, k.sign(use, data)) })
}

func (k key) sign(use string, data []byte) []byte {
	mac := hmac.New(sha256.New, k.derive(useSignatures+use))
	mac.Write(data)
	return mac.Sum(nil)
}

// ErrSealed means that sealed data does not open: it was sealed under another name, or it was
// changed.
var ErrSealed = errors.New("the secret cannot be decrypted with this key")

// ErrKeyMissing means that data was sealed with a key that the keyring does not have.
var ErrKeyMissing = fmt.Errorf("%w: it was encrypted with another key", ErrSealed)

// keyOf returns the key with which data of versionDerived was sealed.
func (b *Keyring) keyOf(sealed []byte) (key, error) {
	if !IsSealedData(sealed) {
		return key{}, ErrSealed
	}
	id := [keyIDBytes]byte(sealed[1:])
	for _, k := range b.keys {
		if k.id == id {
			return k, nil
		}
	}
	return key{}, fmt.Errorf("%w: %x", ErrKeyMissing, id)
}

// data returns the cipher for the data of an owner.
func (k key) data(use, owner string) cipher.AEAD {
	name := useData + use + "\x00" + owner
	return k.owners.get(name, func() cipher.AEAD {
		aead, err := newAEAD(k.derive(name))
		if err != nil { // the key has the right length
			panic(fmt.Sprintf("secret: %v", err))
		}
		return aead
	})
}

func seal(k key, aead cipher.AEAD, name string, text []byte) []byte {
	sealed := make([]byte, headerBytes, headerBytes+len(text)+aead.Overhead())
	sealed[0] = versionDerived
	copy(sealed[1:], k.id[:])
	nonce := sealed[1+keyIDBytes:]
	rand.Read(nonce) // never fails
	return aead.Seal(sealed, nonce, text, []byte(name))
}

// open opens a nonce with the ciphertext that follows it.
func open(aead cipher.AEAD, name string, sealed []byte) ([]byte, error) {
	if len(sealed) < nonceBytes {
		return nil, ErrSealed
	}
	text, err := aead.Open(nil, sealed[:nonceBytes], sealed[nonceBytes:], []byte(name))
	if err != nil {
		return nil, ErrSealed
	}
	return text, nil
}
