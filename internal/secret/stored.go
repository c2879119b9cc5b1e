package secret

import "time"

// MaxStored bounds the secrets of an installation.
const MaxStored = 1000

// Values of secrets that were replaced or deleted stay masked, since sandboxes may know them: so many of a
// name, and of all names together. The oldest are dropped.
const (
	MaxReplacedValues = 8
	MaxReplaced       = 1000
)

// Info is what is shown of a secret: never its value.
type Info struct {
	Name string
	// Hosts are those that the secret may be sent to; none for the default of its provider.
	Hosts     []string
	CreatedAt time.Time
	UpdatedAt time.Time
}
