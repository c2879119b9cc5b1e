package workflows

import (
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/overwinter-dev/overwinter/activities"
	"github.com/overwinter-dev/overwinter/internal/contract"
	"github.com/overwinter-dev/overwinter/internal/session"
)

// leavesError is the change since which a session in error watches its sandbox, and retries if the
// cause may be transient. Since quickRetryVersion it retries after seconds instead of minutes, only
// refusals and damage lead to error, and environment/terminate recovers from it.
const (
	leavesError       = "leaves-error"
	quickRetryVersion = 2
)

const (
	// errorGrace is how long a sandbox is kept in error before it is saved and terminated, so that
	// a person can inspect it.
	errorGrace = 15 * time.Minute
	// firstRetry is the pause before a session leaves error by itself in workflows from before quickRetryVersion; it
	// doubles up to maxRetry.
	firstRetry = 30 * time.Second
	maxRetry   = 10 * time.Minute
	// unusableReason is the prefix of the reason of a session whose generations were all unusable.
	unusableReason = "no sandbox came to use: "
	// reasonInError is the reason for the termination of such a sandbox.
	reasonInError = "in error"
)

// passingReasons are parts of the reasons that earlier versions recorded for transient errors:
// those of the database, of the provider and of timeouts.
var passingReasons = []string{
	unusableReason, "the database is not available", ": unavailable", ": throttled", ": timeout", ": conflict",
	"timeout (type:", "connection refused", "connection reset", "context deadline exceeded",
}

// mayPass reports whether the cause of a session's error may be transient. This version retries
// transient errors before they lead to error, and records the cause; earlier versions recorded the
// reason only.
func (l *life) mayPass(ctx workflow.Context) bool {
	if l.errorVersion(ctx) < quickRetryVersion {
		return strings.HasPrefix(l.reason, unusableReason)
	}
	return l.errorCause == "" && slices.ContainsFunc(passingReasons, func(part string) bool { return strings.Contains(l.reason, part) })
}

func (l *life) errorVersion(ctx workflow.Context) workflow.Version {
	return workflow.GetVersion(ctx, leavesError, workflow.DefaultVersion, quickRetryVersion)
}

// trouble is the error of a session, and its retries.
type trouble struct {
	since      time.Time // zero until its first step
	looked     bool      // the row was checked for a sandbox
	tries      int       // how often it has left error by itself since it was last running
	generation int64     // generation of the sandbox that the session still has
	sandboxID  string
}

func (l *life) retryAt(ctx workflow.Context) time.Time {
	if l.errorVersion(ctx) < quickRetryVersion {
		return l.trouble.since.Add(min(firstRetry<<min(l.trouble.tries, 10), maxRetry))
	}
	return l.trouble.since.Add(l.backoff(l.trouble.tries + 1))
}

func (t trouble) lost(s contract.SandboxSignal) bool {
	return t.sandboxID != "" && s.Generation == t.generation && (s.SandboxID == "" || s.SandboxID == t.sandboxID)
}

// stepInError takes one step of a session in error that was not recovered: it saves and releases a
// sandbox that has ended or was kept long enough, retries if the cause may be transient, or waits.
func (l *life) stepInError(ctx workflow.Context) error {
	now := workflow.Now(ctx)
	if l.trouble.since.IsZero() {
		l.trouble.since = now
	}
	if !l.trouble.looked {
		return l.findSandbox(ctx)
	}
	retry, release := l.retryAt(ctx), l.trouble.since.Add(errorGrace)
	mayPass := l.mayPass(ctx)
	switch {
	case l.pendingID(session.CommandDrop) != "" && l.errorVersion(ctx) >= quickRetryVersion:
		return l.dropFiles(ctx)
	case l.trouble.lost(l.lost):
		return l.salvage(ctx, true)
	case mayPass && !now.Before(retry):
		err := l.transit(ctx, session.EventRecover, session.ReasonRetry, nil)
		if err == nil {
			l.trouble.tries++
		}
		return err
	case l.trouble.sandboxID != "" && !now.Before(release):
		return l.salvage(ctx, false)
	}
	var until time.Time
	if l.trouble.sandboxID != "" {
		until = release
	}
	if mayPass && (until.IsZero() || retry.Before(until)) {
		until = retry
	}
	l.wait(ctx, "wait for recover or stop", until)
	return nil
}

// dropFiles recovers a session in error without the files of its sandbox. Its last output is flushed if that is quick.
func (l *life) dropFiles(ctx workflow.Context) error {
	l.generation, l.sandboxID = l.trouble.generation, l.trouble.sandboxID
	if l.sandboxID != "" && !l.trouble.lost(l.lost) {
		l.flush(ctx)
	}
	// Otherwise the restore could reuse this sandbox, or one from a create whose response was lost.
	if err := l.release(ctx, session.ReasonDropped); err != nil || l.wants.Stop {
		return err
	}
	l.trouble.sandboxID = ""
	err := l.transit(ctx, session.EventRecover, session.ReasonDropped, nil)
	if err == nil {
		l.trouble = trouble{}
	}
	return err
}

// findSandbox reads the sandbox from the row, since a failed create may have created one. The
// generation to continue from is unchanged, so that recover may reuse that sandbox.
func (l *life) findSandbox(ctx workflow.Context) error {
	generation, sandboxID := l.generation, l.sandboxID
	if err := l.load(ctx); err != nil {
		return err
	}
	if l.state == session.Error {
		l.trouble.looked = true
		l.trouble.generation, l.trouble.sandboxID = l.generation, l.sandboxID
		l.generation, l.sandboxID = generation, sandboxID
	}
	return nil
}

// salvage saves the work of a session in error that no bundle covers, and ends the sandbox. A
// sandbox that cannot be saved is kept for another period of the same length, unless it has ended
// and saving its remains is refused; a restore retries the rescue.
func (l *life) salvage(ctx workflow.Context, lost bool) error {
	request := activities.SaveRequest{
		SessionID: l.id, Generation: l.trouble.generation, SandboxID: l.trouble.sandboxID, Unsaved: true,
	}
	saved, err := l.saveOf(ctx, request, lost)
	switch {
	case activities.TypeOf(err) == activities.StaleWorkflow:
		return err
	case l.wants.Stop:
		return nil
	case err != nil && (!lost || !activities.IsFinal(err)):
		workflow.GetLogger(ctx).Warn("could not save the sandbox of a session in error", "session_id", l.id, "error", err)
		l.trouble.since, l.lost = workflow.Now(ctx), contract.SandboxSignal{}
		return nil
	case err == nil && saved.BundleID != "":
		l.bundleID = saved.BundleID
	}
	l.generation, l.sandboxID = l.trouble.generation, l.trouble.sandboxID
	if err := l.release(ctx, reasonInError); err != nil {
		return err
	}
	l.trouble.sandboxID = ""
	return nil
}
