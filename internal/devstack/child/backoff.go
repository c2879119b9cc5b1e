package child

import "time"

const (
	backoffFirst = 200 * time.Millisecond
	backoffMost  = 10 * time.Second
	// healthyAfter is how long a child must be ready before its past failures are forgotten.
	healthyAfter = 30 * time.Second
)

// backoff is the pause before the next start.
type backoff struct{ failures int }

// next returns the pause after a run in which the child was ready for that long.
func (b *backoff) next(ready time.Duration) time.Duration {
	if ready >= healthyAfter {
		b.failures = 0
	}
	pause := backoffMost
	if b.failures < 6 { // 200 ms << 6 exceeds the maximum
		pause = backoffFirst << b.failures
		b.failures++
	}
	return min(pause, backoffMost)
}
