// Package backoff is the pace at which loops try again: pauses that double up to a limit, with jitter.
package backoff
