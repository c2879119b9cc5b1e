package activities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
)

const (
	// heartbeatMargin is how long Temporal may stall just before a heartbeat without losing the
	// attempt: the guaranteed ten seconds, the retry after them, and a slow answer.
	heartbeatMargin = 12 * time.Second
	// heartbeatCall bounds one call. It is longer than the interval, because a late answer is as
	// good as one in time.
	heartbeatCall = 5 * time.Second
	// heartbeatRetry is the pause after a call that failed.
	heartbeatRetry = 500 * time.Millisecond
	// defaultHeartbeatTimeout is assumed for an activity without a heartbeat timeout.
	defaultHeartbeatTimeout = 15 * time.Second
)

// errStalled ends an attempt whose loop is stuck. The next attempt, on any worker,
// resumes after the last committed frame.
var errStalled = fmt.Errorf("%w: the turn has made no progress", errHandOver)

// pulse sends the heartbeats of one attempt at an activity from its own goroutine.
//
// The SDK's own RecordHeartbeat cancels the activity as soon as one call fails or takes longer than
// the throttle interval. A pulse retries instead: only an answer that ends the attempt (cancelled,
// paused, reset, not found) stops it. While Temporal does not answer, the attempt continues. If
// another one was started meanwhile, the run's attempt token fences this one.
type pulse struct {
	cancel context.CancelCauseFunc // of the attempt
	logger *slog.Logger
	stall  time.Duration // heartbeats stop after so long without progress; 0 for never

	began time.Time
	// progressed is the time of the last progress, as a duration since began; negative while the
	// attempt waits for the agent, because that wait has no limit.
	progressed atomic.Int64

	stopped context.CancelFunc
	done    chan struct{}
}

// startPulse sends heartbeats until stop is called. The context it returns ends with the cause
// errStalled after stall without progress, or when Temporal revokes the attempt.
func startPulse(ctx context.Context, stall time.Duration, logger *slog.Logger) (context.Context, *pulse) {
	beating, stopped := context.WithCancel(ctx)
	p := &pulse{stall: stall, logger: logger, began: time.Now(), stopped: stopped, done: make(chan struct{})}
	ctx, p.cancel = context.WithCancelCause(ctx)
	go p.run(beating)
	return ctx, p
}

// beat sends the heartbeats of a short activity until stop is called.
func beat(ctx context.Context) (stop func()) {
	_, p := startPulse(ctx, 0, slog.New(slog.DiscardHandler))
	return p.stop
}

func (p *pulse) stop() {
	p.stopped()
	<-p.done
	p.cancel(nil)
}

// Made implements turn.Progress: the attempt has finished a step.
func (p *pulse) Made() { p.progressed.Store(int64(time.Since(p.began))) }

// Waiting implements turn.Progress: the attempt waits for the agent until the next progress.
func (p *pulse) Waiting() { p.progressed.Store(-1) }

// IsWaiting implements turn.Progress.
func (p *pulse) IsWaiting() bool { return p.progressed.Load() < 0 }

func (p *pulse) stalled() bool {
	at := p.progressed.Load()
	return p.stall > 0 && at >= 0 && time.Since(p.began)-time.Duration(at) >= p.stall
}

func (p *pulse) run(ctx context.Context) {
	defer close(p.done)
	timeout := activity.GetInfo(ctx).HeartbeatTimeout
	if timeout <= 0 {
		timeout = defaultHeartbeatTimeout
	}
	interval := heartbeatInterval(timeout)
	timer := time.NewTimer(firstInterval(interval)) // the start of the attempt counts as a heartbeat
	defer timer.Stop()
	var look <-chan time.Time
	if p.stall > 0 {
		ticker := time.NewTicker(p.stall / 20)
		defer ticker.Stop()
		look = ticker.C
	}
	for failing := false; ; {
		due := false
		select {
		case <-timer.C:
			due = true
		case <-look:
		case <-ctx.Done():
			return
		}
		switch {
		case p.stalled():
			p.logger.WarnContext(ctx, "turn makes no progress; another attempt takes over", slog.Duration("stalled_for", p.stall))
			p.cancel(errStalled)
			return
		case !due:
			continue
		}
		taken, err := p.send(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case taken:
			// The SDK receives the same answer and cancels the activity with the matching error.
			activity.RecordHeartbeat(ctx)
			p.cancel(context.Canceled)
			return
		case err != nil:
			if !failing {
				p.logger.WarnContext(ctx, "heartbeat failed; retrying", slog.Any("error", err))
			}
			failing = true
			timer.Reset(min(interval, heartbeatRetry))
		default:
			failing = false
			timer.Reset(interval)
		}
	}
}

// heartbeatInterval returns the time between heartbeats. Each costs Temporal a write of the
// workflow's state, so there are no more than the timeout requires. A single lost heartbeat never
// costs the attempt.
func heartbeatInterval(timeout time.Duration) time.Duration {
	return max(timeout/5, min(timeout/3, timeout-heartbeatMargin))
}

// firstInterval returns the time until the first heartbeat of an attempt. It is random, so that
// attempts that begin together do not send all their heartbeats at the same moments: together, those
// of a hundred turns occupy Temporal for a second.
func firstInterval(interval time.Duration) time.Duration {
	return interval/2 + rand.N(interval/2+1)
}

// send sends one heartbeat and reports whether Temporal has revoked the attempt. An error means
// that this is unknown.
func (p *pulse) send(ctx context.Context) (taken bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatCall)
	defer cancel()
	info := activity.GetInfo(ctx)
	answer, err := activity.GetClient(ctx).WorkflowService().RecordActivityTaskHeartbeat(ctx, &workflowservice.RecordActivityTaskHeartbeatRequest{
		Namespace: info.Namespace, TaskToken: info.TaskToken, Details: awaitedDetails(ctx),
	})
	if gone, ok := errors.AsType[*serviceerror.NotFound](err); ok {
		return true, gone
	}
	if err != nil {
		return false, err
	}
	return answer.GetCancelRequested() || answer.GetActivityPaused() || answer.GetActivityReset(), nil
}
