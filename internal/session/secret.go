package session

import "time"

// MaxSecrets bounds the secrets of an installation.
const MaxSecrets = 1000

// SecretInfo is what is shown of a secret: never its value.
type SecretInfo struct {
	Name      string
	CreatedAt time.Time
	UpdatedAt time.Time
}
