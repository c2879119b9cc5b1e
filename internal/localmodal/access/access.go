// Package access stores the credentials of a local Modal. A client with these credentials can run
// programs as the server's user. They are random, created once for each data directory, and stored
// there in a file that only its owner can read.
package access

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/overwinter-dev/overwinter/internal/durable"
)

// fileName is the name of the file in the data directory. A shell can source it: `set -a; . FILE;
// set +a` sets the variables that Modal's SDK reads.
const fileName = "token"

const (
	idVariable     = "MODAL_TOKEN_ID"
	secretVariable = "MODAL_TOKEN_SECRET"
	secretBytes    = 32
	// minSecret is the minimum length of a secret chosen by a person.
	minSecret = 16
)

// Token is the credential that a client sends with every call.
type Token struct{ ID, Secret string }

// String hides the secret.
func (t Token) String() string { return t.ID + ":[redacted]" }

// Environment returns the variables that pass the token to a child process.
func (t Token) Environment() []string {
	return []string{idVariable + "=" + t.ID, secretVariable + "=" + t.Secret}
}

// Validate returns an error for a token that was chosen by a person and is too easy to guess.
func (t Token) Validate() error {
	if t.ID == "" || len(t.Secret) < minSecret {
		return fmt.Errorf("%s and %s: the ID must not be empty and the secret must have at least %d characters", idVariable, secretVariable, minSecret)
	}
	return nil
}

// Matches compares in constant time.
func (t Token) Matches(id, secret string) bool {
	gotID, gotSecret := sha256.Sum256([]byte(id)), sha256.Sum256([]byte(secret))
	wantID, wantSecret := sha256.Sum256([]byte(t.ID)), sha256.Sum256([]byte(t.Secret))
	// Always compare both.
	return subtle.ConstantTimeCompare(gotID[:], wantID[:])&subtle.ConstantTimeCompare(gotSecret[:], wantSecret[:]) == 1
}

// New returns a random token.
func New() Token {
	id, secret := make([]byte, 8), make([]byte, secretBytes)
	_, _ = rand.Read(id) // never fails
	_, _ = rand.Read(secret)
	return Token{ID: "ak-" + encode(id), Secret: "as-" + encode(secret)}
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// Path returns the file of the token of a data directory.
func Path(dir string) string { return filepath.Join(dir, fileName) }

// Load returns the token in dir, which must exist. It creates the token if it does not exist yet,
// and replaces one that other users may have read.
func Load(dir string) (Token, error) {
	path := Path(dir)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return create(path)
	}
	if err != nil {
		return Token{}, fmt.Errorf("read token: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Token{}, fmt.Errorf("read token: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return create(path)
	}
	t, err := parse(f)
	if err != nil {
		return Token{}, fmt.Errorf("read token %s: %w; delete the file to get a new one", path, err)
	}
	return t, nil
}

func parse(f *os.File) (Token, error) {
	var t Token
	for lines := bufio.NewScanner(f); lines.Scan(); {
		switch name, value, _ := strings.Cut(lines.Text(), "="); name {
		case idVariable:
			t.ID = value
		case secretVariable:
			t.Secret = value
		}
	}
	return t, t.Validate()
}

// create writes a new token atomically, so that readers never see a partial token.
func create(path string) (Token, error) {
	t := New()
	if err := durable.WriteFile(path, []byte(strings.Join(t.Environment(), "\n")+"\n")); err != nil {
		return Token{}, fmt.Errorf("make token: %w", err)
	}
	return t, nil
}
