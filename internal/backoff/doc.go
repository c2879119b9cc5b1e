// Package backoff has the pauses of retry loops, which double up to a limit, with jitter.
package backoff
