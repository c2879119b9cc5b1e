package secret

import "time"

// MaxStored bounds the secrets of an installation.
const MaxStored = 1000

// Values of secrets that were replaced or deleted stay masked, because sandboxes may have seen
// them: up to this many per name, and in total. The oldest are dropped.
const (
	MaxReplacedValues = 8
	MaxReplaced       = 1000
)

// Info describes a secret without its value.
type Info struct {
	Name string
	// Hosts are the hosts to which the secret may be sent; empty for the default of its provider.
	Hosts     []string
	CreatedAt time.Time
	UpdatedAt time.Time
}
