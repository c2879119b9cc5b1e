package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/overwinter-dev/overwinter/internal/breaker"
	"github.com/overwinter-dev/overwinter/internal/problem"
	"github.com/overwinter-dev/overwinter/internal/sandbox"
)

// BreakerOpen is the type of the error of a start that has to wait: so many starts have failed in a
// row that only one is tried at a time. It is not final.
const BreakerOpen = "BreakerOpen"

// breakerStore stores the circuit breakers of starts. See breaker.Breaker.
type breakerStore interface {
	// BreakerTry returns how long a start of the session's sandbox must wait; 0 if it may begin.
	BreakerTry(ctx context.Context, provider, sessionID string) (b breaker.Breaker, wait time.Duration, err error)
	// BreakerFail counts a failed start, and reports whether it opened the breaker.
	BreakerFail(ctx context.Context, provider, sessionID, reason string) (opened bool, err error)
	// BreakerRelease ends the trial of a start whose result does not depend on the provider.
	BreakerRelease(ctx context.Context, provider, sessionID string) error
	// BreakerClose resets the failures, and returns the time at which the breaker was opened.
	BreakerClose(ctx context.Context, provider, sessionID string) (openedAt time.Time, err error)
	// ProblemReport adds an error event to the session's log.
	ProblemReport(ctx context.Context, sessionID, code, message string) error
}

// silentError is the error of a sandbox whose runner does not answer.
type silentError struct{ cause error }

func (e *silentError) Error() string { return e.cause.Error() }
func (e *silentError) Unwrap() error { return e.cause }

// pass asks the breaker whether a start may begin. If not, an event reports why the session waits,
// and Temporal retries after the delay in the error.
func (g *sandboxes) pass(ctx context.Context, in SandboxRequest) error {
	b, wait, err := g.store.BreakerTry(ctx, g.Sandbox.Describe().Driver, in.SessionID)
	if err != nil {
		return stored(err)
	}
	if wait <= 0 {
		return nil
	}
	message := fmt.Sprintf("starts of sandboxes of agent %s have failed %d times in a row since %s, and are tried one at a time; this one waits until %s: %s",
		b.Agent, b.Failures, b.OpenedAt.UTC().Format(time.RFC3339), time.Now().Add(wait).UTC().Format(time.RFC3339), b.Reason)
	g.Metrics.BreakerRefused(b.Agent)
	if activity.GetInfo(ctx).Attempt == 1 { // later attempts have nothing new to report
		code := problem.ProvisioningDelayed
		if in.Generation > 1 {
			code = problem.RestoringDelayed
		}
		if err := g.store.ProblemReport(ctx, in.SessionID, code, message); err != nil {
			return stored(err)
		}
	}
	return temporal.NewApplicationErrorWithOptions(message, BreakerOpen, temporal.ApplicationErrorOptions{
		NextRetryDelay: wait + time.Duration(rand.Int64N(int64(time.Second))), //nolint:gosec // jitter, so that they do not all start at once
		Category:       temporal.ApplicationErrorCategoryBenign,               // the start only waits; the failures themselves are logged
	})
}

// passed reports the result of a start to the breaker.
func (g *sandboxes) passed(ctx context.Context, in SandboxRequest, from origin, cause error) {
	stopped := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	provider := g.Sandbox.Describe().Driver
	attrs := []any{slog.String("session_id", in.SessionID), slog.String("provider", provider)}
	var err error
	switch {
	case cause == nil:
		var since time.Time
		if since, err = g.store.BreakerClose(ctx, provider, in.SessionID); !since.IsZero() {
			g.Logger.InfoContext(ctx, "starts succeed again; closed the breaker", append(attrs, slog.Time("open_since", since))...)
		}
	case TypeOf(cause) == BreakerOpen:
	case !stopped && countsAgainstProvider(cause, from):
		var opened bool
		if opened, err = g.store.BreakerFail(ctx, provider, in.SessionID, ReasonOf(cause)); opened {
			g.Metrics.BreakerOpened()
			g.Logger.WarnContext(ctx, "starts fail; opened the breaker, so they are tried one at a time", append(attrs, slog.Any("error", cause))...)
		}
	default:
		err = g.store.BreakerRelease(ctx, provider, in.SessionID)
	}
	if err != nil { // the result of the start is unaffected
		g.Logger.WarnContext(ctx, "could not record how a start has ended", append(attrs, slog.Any("error", err))...)
	}
}

// countsAgainstProvider reports whether the failure of a start predicts that of other sessions: the
// provider was unavailable, had no room or took too long, or a runner did not start from the
// agent's image. A snapshot belongs to one session.
func countsAgainstProvider(err error, from origin) bool {
	if _, ok := errors.AsType[*silentError](err); ok {
		return !from.snapshot
	}
	e, ok := errors.AsType[*sandbox.Error](err)
	return ok && !e.Final()
}
