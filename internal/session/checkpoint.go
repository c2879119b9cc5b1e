package session

import (
	"fmt"
	"time"
)

// Checkpoint says when a session saves a bundle while it is awake: CheckpointHibernate, CheckpointTurn, or a duration as
// time.Duration prints it, after which the end of a turn saves one. Empty means the installation's.
type Checkpoint string

// The policies that have a name: only when the session hibernates, and after each turn.
const (
	CheckpointHibernate Checkpoint = "hibernate"
	CheckpointTurn      Checkpoint = "turn"
)

// Bounds of a policy that is a duration.
const (
	MinCheckpoint = time.Second
	MaxCheckpoint = 7 * 24 * time.Hour
)

// How many of the newest bundles of a session are kept.
const (
	DefaultKeepBundles = 10
	MaxKeepBundles     = 1000
)

// ParseCheckpoint reads a policy. The error says what it must be.
func ParseCheckpoint(text string) (Checkpoint, error) {
	switch c := Checkpoint(text); c {
	case CheckpointHibernate, CheckpointTurn:
		return c, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < MinCheckpoint || d > MaxCheckpoint {
		return "", fmt.Errorf("must be hibernate, turn, or a duration from 1s to 168h")
	}
	return Checkpoint(d.String()), nil
}

// Due reports whether the end of a turn saves a bundle. newest is when the one before was committed; zero if there is none.
func (c Checkpoint) Due(newest, now time.Time) bool {
	d := c.Interval()
	return c == CheckpointTurn || d > 0 && now.Sub(newest) >= d
}

// Timed reports whether the policy is a duration.
func (c Checkpoint) Timed() bool { return c.Interval() > 0 }

// Interval is the policy as a duration; zero if it is none.
func (c Checkpoint) Interval() time.Duration {
	d, err := time.ParseDuration(string(c))
	if err != nil {
		return 0
	}
	return d
}

// Saves is when a session saves bundles while it is awake.
type Saves struct {
	Policy Checkpoint // of the session, or else of the installation
	Newest time.Time  // when its newest bundle was committed; zero if there is none, or it is not needed for CheckpointAt
}
