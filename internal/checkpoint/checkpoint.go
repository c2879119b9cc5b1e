// Package checkpoint says when a session saves a bundle while it is awake, and how many bundles it keeps.
package checkpoint

import (
	"fmt"
	"time"
)

// Policy says when a session saves a bundle while it is awake: Hibernate, Turn, or a duration as
// time.Duration prints it, after which the end of a turn saves one. Empty means the installation's.
type Policy string

// The policies that have a name: only when the session hibernates, and after each turn.
const (
	Hibernate Policy = "hibernate"
	Turn      Policy = "turn"
)

// Bounds of a policy that is a duration.
const (
	minInterval = time.Second
	maxInterval = 7 * 24 * time.Hour
)

// How many of the newest bundles of a session are kept.
const (
	defaultKeep = 10
	MaxKeep     = 1000
)

// Parse reads a policy. The error says what it must be.
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

// Due reports whether the end of a turn saves a bundle. newest is when the one before was committed; zero if there is none.
func (c Policy) Due(newest, now time.Time) bool {
	d := c.Interval()
	return c == Turn || d > 0 && now.Sub(newest) >= d
}

// Timed reports whether the policy is a duration.
func (c Policy) Timed() bool { return c.Interval() > 0 }

// Interval is the policy as a duration; zero if it is none.
func (c Policy) Interval() time.Duration {
	d, err := time.ParseDuration(string(c))
	if err != nil {
		return 0
	}
	return d
}

// Saves is when a session saves bundles while it is awake.
type Saves struct {
	Policy Policy    // of the session, or else of the installation
	Newest time.Time // when its newest bundle was committed; zero if there is none, or it is not needed for CheckpointAt
}
