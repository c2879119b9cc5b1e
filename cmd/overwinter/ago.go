package main

import (
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/client"
)

// when is a time as tables show it: how long ago it is, or with --absolute the timestamp.
func (c *apiFlags) when(t client.Time) string {
	if c.Absolute {
		return t.String()
	}
	return ago(time.Since(t.Time))
}

// ago says how long ago something was, or in how long it will be, in the largest whole unit.
func ago(d time.Duration) string {
	format := "%d%s ago"
	if d < 0 {
		format, d = "in %d%s", -d
	}
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf(format, d/time.Second, "s")
	case d < time.Hour:
		return fmt.Sprintf(format, d/time.Minute, "m")
	case d < 2*day:
		return fmt.Sprintf(format, d/time.Hour, "h")
	}
	return fmt.Sprintf(format, d/day, "d")
}

// savedAt says which turn ends with a bundle, given the time from which on turns do.
func (c *apiFlags) savedAt(t client.Time) string {
	if !c.Absolute && !time.Now().Before(t.Time) {
		return "when the next turn ends"
	}
	return "when a turn ends, " + c.when(t) + " or later"
}
