package session

import "time"

// MaxSecrets bounds the secrets of an installation.
const MaxSecrets = 1000

// Values of secrets that were replaced or deleted stay masked, since sandboxes may know them: so many of a
// name, and of all names together. The oldest are dropped.
const (
	MaxReplacedValues  = 8
	MaxReplacedSecrets = 1000
)

// SecretInfo is what is shown of a secret: never its value.
type SecretInfo struct {
	Name string
	// Hosts are those that the secret may be sent to; none for the default of its provider.
	Hosts     []string
	CreatedAt time.Time
	UpdatedAt time.Time
}
