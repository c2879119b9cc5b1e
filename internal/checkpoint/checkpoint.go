// Package checkpoint has the policy for saving bundles of an awake session and for the number of
// bundles to keep.
package checkpoint

import (
	"fmt"
	"time"
)

// Policy selects when an awake session saves a bundle: Hibernate, Turn, or a duration in the format
// of time.Duration, after which the end of a turn saves one. Empty selects the installation's
// policy.
type Policy string

// The named policies: only when the session hibernates, and after each turn.
const (
	Hibernate Policy = "hibernate"
	Turn      Policy = "turn"
)

// Bounds of a policy that is a duration.
const (
	minInterval = time.Second
	maxInterval = 7 * 24 * time.Hour
)

// The number of newest bundles of a session that are kept.
const (
	defaultKeep = 10
	MaxKeep     = 1000
)

// Parse parses a policy. The error describes the valid values.
func Parse(text string) (Policy, error) {
	switch c := Policy(text); c {
	case Hibernate, Turn:
		return c, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < minInterval || d > maxInterval {
		return "", fmt.Errorf("must be hibernate, turn, or a duration from 1s to 168h")
	}
	return Policy(d.String()), nil
}

// Due reports whether the end of a turn saves a bundle. newest is the time of the previous bundle's
// commit; zero if there is none.
func (c Policy) Due(newest, now time.Time) bool {
	d := c.Interval()
	return c == Turn || d > 0 && now.Sub(newest) >= d
}

// Timed reports whether the policy is a duration.
func (c Policy) Timed() bool { return c.Interval() > 0 }

// Interval returns the policy as a duration; zero if it is not a duration.
func (c Policy) Interval() time.Duration {
	d, err := time.ParseDuration(string(c))
	if err != nil {
		return 0
	}
	return d
}

// Saves describes when an awake session saves bundles.
type Saves struct {
	Policy Policy    // of the session, or else of the installation
	Newest time.Time // commit of its newest bundle; zero if there is none, or if CheckpointAt does not need it
}
