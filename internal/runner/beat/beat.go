// Package beat aligns the periodic work of the runner, so that it happens at the same moments.
//
// A runner is idle most of the time, and waking an idle process costs more than its work: the
// monitor thread of the Go runtime wakes too, and then polls several times until everything is idle
// again. With a hundred sandboxes on a machine, one wake-up per second instead of three makes a
// noticeable difference.
package beat

import "time"

// began is when the process began; the moments are multiples of an interval after it.
var began = time.Now()

// Next returns the time until the next moment of an interval: more than 0, and at most the interval.
func Next(interval time.Duration) time.Duration { return next(began, interval) }

func next(began time.Time, interval time.Duration) time.Duration {
	return interval - time.Since(began)%interval
}
