package backoff

import (
	"context"
	"time"

	"github.com/sethvargo/go-retry"
)

// jitter is the maximum deviation of a pause from its nominal length, in percent, so that processes
// that lost the same server do not all reconnect at the same time.
const jitter = 25

// New returns pauses whose nominal length begins with first and doubles up to longest. It never stops.
func New(first, longest time.Duration) retry.Backoff {
	return retry.WithJitterPercent(jitter, retry.WithCappedDuration(longest, retry.NewExponential(first)))
}

// Retry calls try until it succeeds or returns an error that retry.RetryableError has not marked. It returns that error, or the
// error of ctx once ctx has ended. The cause of ctx is for logs: the callers distinguish context.Canceled.
func Retry(ctx context.Context, pauses retry.Backoff, try retry.RetryFunc) error {
	err := retry.Do(ctx, pauses, try)
	if ended := ctx.Err(); err != nil && ended != nil {
		return ended
	}
	return err
}
