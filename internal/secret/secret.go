package secret

import (
	"log/slog"
	"regexp"
)

// MaxBytes bounds the value of one secret.
const MaxBytes = 32 << 10

var (
	variable = regexp.MustCompile(`^[A-Z_][A-Z0-9_]{0,127}$`)
	gitHost  = regexp.MustCompile(`^git:[a-z0-9.-]{1,253}(:[0-9]{1,5})?$`)
)

// ValidName reports whether a secret may have the name: that of an environment
// variable, at most 128 of A-Z 0-9 _, or git:HOST with an optional port.
func ValidName(name string) bool { return variable.MatchString(name) || gitHost.MatchString(name) }

// GitName returns the name of the credentials for a host, including its port if it has one.
func GitName(host string) string { return "git:" + host }

// Value is a secret in plain text. It prints as [redacted] wherever it is formatted, logged or
// marshalled. Reveal returns its text.
type Value struct{ text string }

// NewValue wraps text.
func NewValue(text string) Value { return Value{text} }

// Reveal returns the text.
func (v Value) Reveal() string { return v.text }

// Empty reports whether there is no text.
func (v Value) Empty() bool { return v.text == "" }

// Stored is a secret of the installation.
type Stored struct {
	Value Value
	// Hosts are the hosts to which it is bound; empty for the default of its provider.
	Hosts []string
}

// UnmarshalText sets the text, from a flag or an environment variable.
func (v *Value) UnmarshalText(text []byte) error {
	v.text = string(text)
	return nil
}

// String hides the text.
func (Value) String() string { return "[redacted]" }

// GoString hides the text.
func (Value) GoString() string { return "[redacted]" }

// LogValue hides the text.
func (Value) LogValue() slog.Value { return slog.StringValue("[redacted]") }

// MarshalText hides the text.
func (Value) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }
