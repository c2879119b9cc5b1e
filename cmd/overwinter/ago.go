package main

import (
	"fmt"
	"time"

	"github.com/overwinter-dev/overwinter/client"
)

// when formats a time for tables: relative to now, or as a timestamp with --absolute.
func (c *apiFlags) when(t client.Time) string {
	if c.Absolute {
		return t.String()
	}
	return ago(time.Since(t.Time))
}

// ago formats a duration before or after now in its largest whole unit.
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

// savedAt describes which turn saves a bundle, given the time after which turns save one.
func (c *apiFlags) savedAt(t client.Time) string {
	if !c.Absolute && !time.Now().Before(t.Time) {
		return "when the next turn ends"
	}
	return "when a turn ends, " + c.when(t) + " or later"
}
