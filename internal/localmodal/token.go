package localmodal

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	clientTokenLife = 20 * time.Minute
	routerTokenLife = time.Hour
	// routerSubject precedes the task id in the subject of a router token, so that no other token
	// is accepted as a router token.
	routerSubject = "router:"
)

// signer issues and checks the JSON web tokens that the SDK requires. Its key is valid for the
// lifetime of the server; the SDK requests a new token after a refusal.
type signer struct{ key []byte }

func newSigner() signer {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return signer{key: key}
}

type claims struct {
	Subject string `json:"sub"`
	Expires int64  `json:"exp"` // seconds since 1970
}

var errToken = errors.New("invalid token")

func (s signer) mac(text string) string {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

func (s signer) issue(subject string, life time.Duration) (string, error) {
	payload, err := json.Marshal(claims{Subject: subject, Expires: time.Now().Add(life).Unix()})
	if err != nil {
		return "", fmt.Errorf("issue token: %w", err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode(payload)
	return text + "." + s.mac(text), nil
}

// check returns the subject of a token that this signer issued and that has not expired.
func (s signer) check(token string) (string, error) {
	cut := strings.LastIndexByte(token, '.')
	if cut < 0 || !hmac.Equal([]byte(s.mac(token[:cut])), []byte(token[cut+1:])) {
		return "", errToken
	}
	_, encoded, _ := strings.Cut(token[:cut], ".")
	payload, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return "", errToken
	}
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil || time.Now().Unix() > c.Expires {
		return "", errToken
	}
	return c.Subject, nil
}
